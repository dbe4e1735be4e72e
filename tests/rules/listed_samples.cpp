// Samples of operators whose schema does not say what their arguments may be.
#include <map>

#include <rules/samples.h>

namespace tessera::oracle {

namespace {

using Table = std::map<std::string, std::vector<std::string>>;

const Table& table() {
  static const auto* all = new Table{
      {"aten::mm", {"[a,b]; [b,d]", "[b,a]; [a,c]"}},
      {"aten::bmm", {"[a,b,c]; [a,c,d]"}},
      {"aten::mv", {"[a,b]; [b]"}},
      {"aten::dot", {"[b]; [b]"}},
      {"aten::vdot", {"[b]; [b]"}},
  };
  return *all;
}

}  // namespace

const std::vector<std::string>* listed_texts(const std::string& name) {
  const auto found = table().find(name);
  return found == table().end() ? nullptr : &found->second;
}

}  // namespace tessera::oracle
