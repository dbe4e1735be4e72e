#include <tessera/tensor/operators.h>

#include <algorithm>
#include <array>
#include <string_view>

#include <tensor/call/op_traits.h>
#include <tensor/inspect/named_operators.h>

namespace tessera {

namespace {

using c10::DispatchKey;
using detail::ArgumentTraits;
using detail::OpTraits;

bool takes_tensor(const OpTraits& traits) {
  return std::any_of(
      traits.arguments.begin(), traits.arguments.end(),
      [](const ArgumentTraits& argument) {
        return argument.kind != ArgumentTraits::Kind::kStatic;
      });
}

// In the order in which the dispatcher asks: ATen decomposes composites before
// any rule is looked at. A random operator without a kernel of ours draws
// nothing, or runs as others do.
std::string form_of(const c10::OperatorHandle& op, const OpTraits& traits) {
  const bool composite =
      op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd);
  if (traits.is_random && !composite && traits.is_drawn) {
    return "random";
  }
  if (traits.custom_kernel != nullptr && !traits.is_random) {
    return "kernel";
  }
  if (composite) {
    return "composite";
  }
  const detail::Rule* rule = traits.rule.rule;
  if (rule != nullptr && !(rule->form == "whole" && traits.decomposition)) {
    return rule->form;
  }
  return traits.decomposition ? "decomposed" : "fallback";
}

std::string gathers_of(const OperatorInfo& info) {
  if (const char* reason = detail::reason_to_replicate(info.name)) {
    return std::string("named: ") + reason;
  }
  if (info.form == "whole" || info.form == "fallback") {
    return "always";
  }
  constexpr std::array<std::string_view, 6> kKeepAlike{
      "pointwise", "factors", "kernel", "random", "composite", "decomposed"};
  const bool alike =
      std::find(kKeepAlike.begin(), kKeepAlike.end(), info.form) !=
      kKeepAlike.end();
  return alike ? "" : "some cuts";
}

OperatorInfo info_of(const c10::OperatorHandle& op, const OpTraits& traits) {
  OperatorInfo info{
      detail::full_name(op.operator_name()), form_of(op, traits), {}, {}, {}};
  const detail::Rule* rule = traits.rule.rule;
  if (rule != nullptr && rule->form == info.form) {
    info.rule = rule->name;
    info.text = rule->text;
    if (traits.decomposition) {
      info.text += info.text.empty() ? "+ decomposed" : " + decomposed";
    }
  }
  info.gathers = gathers_of(info);
  return info;
}

}  // namespace

std::vector<OperatorInfo> list_operators() {
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<OperatorInfo> infos;
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op) {
      continue;
    }
    const OpTraits& traits = detail::traits_of(*op);
    if (takes_tensor(traits)) {
      infos.push_back(info_of(*op, traits));
    }
  }
  std::sort(infos.begin(), infos.end(), [](const auto& a, const auto& b) {
    return a.name < b.name;
  });
  return infos;
}

bool is_rule_form(const std::string& form) {
  constexpr std::array<std::string_view, 6> kOthers{
      "kernel", "random", "composite", "decomposed", "whole", "fallback"};
  return std::find(kOthers.begin(), kOthers.end(), form) == kOthers.end();
}

}  // namespace tessera
