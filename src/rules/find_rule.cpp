// Variants of an operator follow its rule; the schema says what is a variant.
// Pointwise operators of torch._prims follow that of the same name.
#include <optional>

#include <rules/rule_entry.h>

namespace tessera::detail::inline rules_layer {

namespace {

struct Name {
  std::string base;  // "aten::add"
  std::string overload;
};

std::string full(const Name& name) {
  return name.overload.empty() ? name.base : name.base + "." + name.overload;
}

const Rule* own_rule(const RuleTable& table, const Name& name) {
  const Rule* rule = lookup_rule(table, full(name));
  return rule != nullptr ? rule : lookup_rule(table, name.base + ".*");
}

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() > end.size() &&
         text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Two overloads take the same arguments, out tensors aside.
bool same_arguments(
    const c10::FunctionSchema& variant, const c10::FunctionSchema& of) {
  std::vector<const c10::Argument*> left, right;
  for (const auto& argument : variant.arguments()) {
    if (!argument.is_out()) {
      left.push_back(&argument);
    }
  }
  for (const auto& argument : of.arguments()) {
    // Out variants take no dtype, layout, device: those of the out tensor hold.
    const bool option =
        argument.kwarg_only() &&
        (argument.name() == "dtype" || argument.name() == "layout" ||
         argument.name() == "device" || argument.name() == "pin_memory");
    if (argument.is_out()) {
      return false;
    }
    if (!option) {
      right.push_back(&argument);
    }
  }
  size_t i = 0;
  for (const auto* argument : left) {
    const bool option = argument->kwarg_only() && argument->name() == "dtype";
    if (option) {
      continue;
    }
    if (i == right.size() || right[i]->name() != argument->name() ||
        right[i]->type()->str() != argument->type()->str()) {
      return false;
    }
    ++i;
  }
  return i == right.size();
}

bool is_out_variant(const c10::FunctionSchema& schema) {
  for (const auto& argument : schema.arguments()) {
    if (argument.is_out()) {
      return true;
    }
  }
  return false;
}

// The overload of which `schema` is the out variant has a rule.
const Rule* rule_of_out_variant(
    const RuleTable& table, const Name& name, const c10::FunctionSchema& schema,
    const OverloadsFn& overloads) {
  for (const c10::FunctionSchema* other : overloads(name.base)) {
    if (same_arguments(schema, *other)) {
      if (const Rule* rule =
              own_rule(table, {name.base, other->overload_name()})) {
        return rule;
      }
    }
  }
  return nullptr;
}

// Overloads of the scalar operator that a foreach overload applies.
std::vector<std::string> scalar_overloads(const std::string& foreach) {
  if (foreach == "List" || foreach == "Tensor") {
    return {"Tensor", foreach, ""};
  }
  if (foreach == "Scalar" || foreach == "ScalarList") {
    return {"Scalar", "Tensor", "Tensor_Scalar", ""};
  }
  return {foreach, "Tensor", ""};
}

const Rule* foreach_rule(const RuleTable& table, const Name& name) {
  constexpr std::string_view kPrefix = "::_foreach_";
  const size_t prefix = name.base.find(kPrefix);
  if (prefix == std::string::npos) {
    return nullptr;
  }
  std::string overload = name.overload;
  if (ends_with(overload, "_out")) {
    overload.resize(overload.size() - 4);
  } else if (overload == "out") {
    overload.clear();
  }
  // ATen has the single form of some among its linear algebra.
  for (const char* space : {"::", "::linalg__"}) {
    const std::string base = name.base.substr(0, prefix) + space +
                             name.base.substr(prefix + kPrefix.size());
    for (const std::string& scalar : scalar_overloads(overload)) {
      if (const Rule* rule = own_rule(table, {base, scalar})) {
        return rule;
      }
    }
  }
  return nullptr;
}

std::optional<Name> without_suffix(const Name& name, std::string_view suffix) {
  if (!ends_with(name.base, suffix) || ends_with(name.base, "__")) {
    return std::nullopt;
  }
  return Name{
      name.base.substr(0, name.base.size() - suffix.size()), name.overload};
}

const Rule* rule_of_name(
    const RuleTable& table, const Name& name, const c10::FunctionSchema& schema,
    const OverloadsFn& overloads) {
  if (const Rule* rule = own_rule(table, name)) {
    return rule;
  }
  if (is_out_variant(schema)) {
    if (const Rule* rule =
            rule_of_out_variant(table, name, schema, overloads)) {
      return rule;
    }
  }
  for (const char* suffix : {"_", "_copy"}) {
    if (const auto base = without_suffix(name, suffix)) {
      if (const Rule* rule = rule_of_name(table, *base, schema, overloads)) {
        return rule;
      }
    }
  }
  // The functional form of an operator that was written in place.
  return own_rule(table, {name.base + "_", name.overload});
}

// Operators of torch._prims that ATen has under another name.
struct Renamed {
  std::string_view prim;
  std::string_view aten;
  const char* overload = "";
};
constexpr Renamed kRenamed[] = {
    {"bessel_i0", "i0"},
    {"bessel_i0e", "special_i0e"},
    {"bessel_i1", "special_i1"},
    {"bessel_i1e", "special_i1e"},
    {"bessel_j0", "special_bessel_j0"},
    {"bessel_j1", "special_bessel_j1"},
    {"convert_element_type", "_to_copy"},
    {"erf_inv", "erfinv"},
    {"erfcx", "special_erfcx"},
    {"fill", "fill", "Scalar"},
    {"ndtri", "special_ndtri"},
    {"shift_left", "bitwise_left_shift"},
    {"shift_right_arithmetic", "bitwise_right_shift"},
    {"spherical_bessel_j0", "special_spherical_bessel_j0"},
    {"where", "where", "self"},
    {"zeta", "special_zeta"},
};

// What torch._prims calls pointwise is what ATen does, on tensors of one dtype.
// Those that differ have entries of their own.
const Rule* rule_of_prim(const RuleTable& table, const Name& name) {
  constexpr std::string_view kSpace = "prims::";
  if (name.base.rfind(kSpace, 0) != 0) {
    return nullptr;
  }
  const std::string_view word =
      std::string_view(name.base).substr(kSpace.size());
  Renamed found{word, word};
  for (const Renamed& known : kRenamed) {
    found = known.prim == word ? known : found;
  }
  const Rule* rule =
      own_rule(table, {"aten::" + std::string(found.aten), found.overload});
  return rule != nullptr && rule->is_pointwise ? rule : nullptr;
}

// Every list of tensors has one element per item; what is left is shared.
bool takes_lists(const c10::FunctionSchema& schema) {
  return !schema.arguments().empty() &&
         schema.arguments()[0].type()->kind() == c10::TypeKind::ListType;
}

}  // namespace

FoundRule find_rule(
    const RuleTable& table, const c10::FunctionSchema& schema,
    const OverloadsFn& overloads) {
  const Name name{schema.name(), schema.overload_name()};
  if (const Rule* rule = rule_of_name(table, name, schema, overloads)) {
    return {rule, rule->is_pointwise && takes_lists(schema)};
  }
  if (const Rule* rule = rule_of_prim(table, name)) {
    return {rule, false};
  }
  for (Name base = name;;) {
    if (const Rule* rule = foreach_rule(table, base)) {
      return {rule, true};
    }
    const auto shorter = without_suffix(base, "_");
    if (!shorter) {
      return {};
    }
    base = *shorter;
  }
}

}  // namespace tessera::detail::inline rules_layer
