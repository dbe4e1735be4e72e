#include <tensor/call/op_traits.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <ATen/core/enum_tag.h>
#include <tensor/state/thread_state.h>

namespace tessera::detail::inline tensor_layer {

namespace {

bool returns_view(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns()) {
    const auto* alias = result.alias_info();
    if (alias != nullptr && !alias->isWrite()) {
      return true;
    }
  }
  return false;
}

// A number, as of aten::equal, speaks for all elements, tagged or not.
bool returns_tensors(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns()) {
    if (result.type()->kind() != c10::TypeKind::TensorType) {
      return false;
    }
  }
  return true;
}

// Kernels of batch norms write their running statistics, and say so nowhere.
bool is_unsaid_write(std::string_view name, const std::string& argument) {
  return (argument == "running_mean" || argument == "running_var") &&
         (name == "aten::native_batch_norm" ||
          name == "aten::cudnn_batch_norm" ||
          name == "aten::miopen_batch_norm" ||
          name == "aten::batch_norm_gather_stats" ||
          name == "aten::batch_norm_gather_stats_with_counts");
}

bool reads_values(
    const c10::FunctionSchema& schema, std::string_view argument) {
  const std::string& name = schema.name();
  return (name == "aten::tensor_split" &&
          argument == "tensor_indices_or_sections") ||
         (name == "aten::ctc_loss" &&
          (argument == "input_lengths" || argument == "target_lengths")) ||
         ((name == "aten::_pad_packed_sequence" ||
           schema.overload_name() == "data") &&
          argument == "batch_sizes");
}

ArgumentTraits::Kind kind_of(const c10::TypePtr& type) {
  const c10::TypePtr inner =
      type->kind() == c10::TypeKind::OptionalType
          ? type->castRaw<c10::OptionalType>()->getElementType()
          : type;
  if (inner->kind() == c10::TypeKind::TensorType) {
    return ArgumentTraits::Kind::kTensor;
  }
  if (inner->kind() == c10::TypeKind::ListType &&
      kind_of(inner->castRaw<c10::ListType>()->getElementType()) ==
          ArgumentTraits::Kind::kTensor) {
    return ArgumentTraits::Kind::kTensors;
  }
  return ArgumentTraits::Kind::kStatic;
}

std::vector<ArgumentTraits> argument_traits(
    const c10::FunctionSchema& schema, bool is_view) {
  std::vector<ArgumentTraits> traits;
  for (const c10::Argument& argument : schema.arguments()) {
    const auto* alias = argument.alias_info();
    ArgumentTraits one;
    one.kind = kind_of(argument.type());
    one.written = (alias != nullptr && alias->isWrite()) ||
                  is_unsaid_write(schema.name(), argument.name());
    one.out = argument.is_out();
    one.viewed = is_view && alias != nullptr;
    one.read = reads_values(schema, argument.name());
    traits.push_back(one);
  }
  return traits;
}

// All overloads by name, listed once: asking the dispatcher copies every name
// that it knows.
std::vector<const c10::FunctionSchema*> overloads_of(const std::string& name) {
  thread_local std::unordered_multimap<std::string, c10::OperatorName> known;
  auto& dispatcher = c10::Dispatcher::singleton();
  if (known.count(name) == 0) {
    known.clear();
    for (const c10::OperatorName& op : dispatcher.getAllOpNames()) {
      known.emplace(op.name, op);
    }
  }
  std::vector<const c10::FunctionSchema*> schemas;
  const auto [begin, end] = known.equal_range(name);
  for (auto it = begin; it != end; ++it) {
    if (const auto op = dispatcher.findSchema(it->second)) {
      schemas.push_back(&op->schema());
    }
  }
  return schemas;
}

// Whole values need no static argument to be decided, and forms that read none
// need no number; what else there is may change the strides of results.
void mark_keyed(const c10::FunctionSchema& schema, OpTraits& traits) {
  const Rule* rule = traits.rule.rule;
  if (rule == nullptr && traits.decomposition == nullptr) {
    return;
  }
  const bool ignores = rule != nullptr && rule->ignores_arguments &&
                       traits.decomposition == nullptr;
  for (size_t i = 0; i < traits.arguments.size(); ++i) {
    const c10::TypeKind kind = schema.arguments()[i].type()->kind();
    const bool number =
        kind == c10::TypeKind::NumberType || kind == c10::TypeKind::FloatType;
    traits.arguments[i].keyed =
        traits.arguments[i].kind == ArgumentTraits::Kind::kStatic &&
        !(ignores && number);
  }
}

OpTraits find_traits(const c10::OperatorHandle& op) {
  OpTraits traits;
  traits.is_view = returns_view(op.schema());
  traits.is_foreign = op.schema().name().rfind("aten::", 0) != 0;
  traits.arguments = argument_traits(op.schema(), traits.is_view);
  traits.reads_values = std::any_of(
      traits.arguments.begin(), traits.arguments.end(),
      [](const ArgumentTraits& one) { return one.read; });
  traits.is_random = op.hasTag(at::Tag::nondeterministic_seeded);
  find_kernels(op, traits);
  traits.rule = find_rule(rules(), op.schema(), overloads_of);
  mark_keyed(op.schema(), traits);
  traits.is_elementwise = traits.rule.rule != nullptr &&
                          traits.rule.rule->is_pointwise && !traits.is_random &&
                          returns_tensors(op.schema());
  return traits;
}

}  // namespace

std::atomic<uint64_t> removed_operators{0};

void forget_traits() {
  removed_operators.fetch_add(1, std::memory_order_relaxed);
  forget_all_decisions();
}

void TraitsCache::clear() {
  old_ = std::exchange(traits_, {});
  slots_ = {};
}

const OpTraits& TraitsCache::find_uncached(const c10::OperatorHandle& op) {
  const c10::FunctionSchema* schema = &op.schema();
  auto it = traits_.find(schema);
  if (it == traits_.end()) {
    it = traits_.emplace(schema, find_traits(op)).first;
  }
  slots_[slot_of(schema)] = {schema, &it->second};
  return it->second;
}

const OpTraits& traits_of(const c10::OperatorHandle& op) {
  return ThreadState::here().find_traits(op);
}

}  // namespace tessera::detail::inline tensor_layer
