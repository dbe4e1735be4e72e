#include <tensor/call/op_registry.h>

namespace tessera::detail::inline tensor_layer {

OpEntry& OpRegistry::at(std::string_view name) {
  const size_t dot = name.find('.');
  const std::string_view overload =
      dot == name.npos ? std::string_view() : name.substr(dot + 1);
  return entries_[c10::OperatorName(
      std::string(name.substr(0, dot)), std::string(overload))];
}

const OpEntry* OpRegistry::find(const c10::OperatorName& name) const {
  auto found = entries_.find(name);
  if (found == entries_.end()) {
    found = entries_.find({name.name, "*"});
  }
  return found == entries_.end() ? nullptr : &found->second;
}

const OpRegistry& op_registry() {
  static const auto* registry = [] {
    auto* made = new OpRegistry();
    fill(*made);
    return made;
  }();
  return *registry;
}

}  // namespace tessera::detail::inline tensor_layer
