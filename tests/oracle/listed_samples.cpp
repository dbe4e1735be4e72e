// Reads samples.txt: operators whose schema does not say what their arguments
// may be.
#include <fstream>
#include <map>

#include <c10/util/Exception.h>
#include <oracle/samples.h>

namespace tessera::oracle {

namespace {

using Table = std::map<std::string, std::vector<std::string>>;

const Table& table() {
  static const auto* all = [] {
    auto* made = new Table();
    std::ifstream file(TESSERA_ORACLE_SAMPLES);
    TORCH_CHECK(file.good(), "cannot read ", TESSERA_ORACLE_SAMPLES);
    for (std::string line; std::getline(file, line);) {
      const size_t colon = line.find(": ");
      if (line.empty() || line[0] == '#') {
        continue;
      }
      TORCH_CHECK(
          colon != std::string::npos, TESSERA_ORACLE_SAMPLES,
          ": a line must look like 'aten::mm: [a,b]; [b,c]'; got '", line, "'");
      (*made)[line.substr(0, colon)].push_back(line.substr(colon + 2));
    }
    return made;
  }();
  return *all;
}

}  // namespace

const std::vector<std::string>* listed_texts(const std::string& name) {
  const auto found = table().find(name);
  return found == table().end() ? nullptr : &found->second;
}

}  // namespace tessera::oracle
