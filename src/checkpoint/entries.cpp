#include <checkpoint/entries.h>

#include <checkpoint/dtype.h>
#include <checkpoint/leaves.h>

namespace tessera::detail::inline checkpoint_layer {

using checkpoint::Entry;
using checkpoint::StateDict;
using checkpoint::StateValue;
using Kind = StateValue::Kind;

namespace {

// Calls f(name, value) for all values of a state, dicts and lists first.
template <class F>
void for_each_value(const std::string& name, StateValue& value, const F& f) {
  f(name, value);
  if (value.kind() == Kind::kDict) {
    for (auto& [key, item] : value.to_dict()) {
      for_each_value(name + "." + key, item, f);
    }
  } else if (value.kind() == Kind::kList) {
    for (size_t i = 0; i < value.to_list().size(); ++i) {
      for_each_value(name + "." + std::to_string(i), value.to_list()[i], f);
    }
  }
}

// The entries of a name and below it, by what follows the name and its dot.
std::vector<Entry> entries_below(
    const std::string& name, const io::Reader& reader,
    const std::function<bool(const std::string&)>& is_asked_for) {
  std::vector<Entry> below;
  for (const io::Entry& stored : reader.entries()) {
    const bool is_below =
        stored.name == name || stored.name.starts_with(name + ".");
    if (is_below && is_asked_for(stored.name)) {
      Entry entry = entry_of(reader, stored);
      entry.name.erase(0, std::min(name.size() + 1, entry.name.size()));
      below.push_back(std::move(entry));
    }
  }
  return below;
}

}  // namespace

Entry entry_of(const io::Reader& reader, const io::Entry& stored) {
  Entry entry;
  entry.name = stored.name;
  if (!stored.is_tensor()) {
    const io::Value value = reader.read_value(stored);
    entry.value = text_of(value);
    return entry;
  }
  entry.dtype = from_io(*stored.dtype);
  entry.shape = stored.shape;
  entry.chunks = static_cast<int64_t>(stored.chunks.size());
  entry.bytes = io::byte_count(stored.shape, *stored.dtype).value_or(0);
  return entry;
}

OpenedValues::~OpenedValues() {
  for (auto& [value, original] : replaced_) {
    *value = std::move(original);
  }
}

void OpenedValues::open(
    StateDict& state, const io::Reader& reader,
    const std::function<bool(const std::string&)>& is_asked_for) {
  for (auto& [key, item] : state) {
    for_each_value(key, item, [&](const std::string& name, StateValue& value) {
      if (!value.has_on_open()) {
        return;
      }
      const auto below = entries_below(name, reader, is_asked_for);
      if (!below.empty()) {
        StateValue opened = value.open(below);
        replaced_.emplace_back(&value, std::move(value));
        value = std::move(opened);
      }
    });
  }
}

}  // namespace tessera::detail::inline checkpoint_layer
