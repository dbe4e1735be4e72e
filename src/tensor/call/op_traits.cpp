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

bool has(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
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
    const c10::FunctionSchema& schema, const OpTraits& op) {
  std::vector<ArgumentTraits> traits;
  for (const c10::Argument& argument : schema.arguments()) {
    const auto* alias = argument.alias_info();
    ArgumentTraits one;
    one.kind = kind_of(argument.type());
    one.written = (alias != nullptr && alias->isWrite()) ||
                  has(op.written, argument.name());
    one.out = argument.is_out();
    one.viewed = op.is_view && alias != nullptr;
    one.read = has(op.read, argument.name());
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
  if (rule == nullptr && !traits.decomposition) {
    return;
  }
  const bool ignores =
      rule != nullptr && rule->ignores_arguments && !traits.decomposition;
  for (size_t i = 0; i < traits.arguments.size(); ++i) {
    const c10::TypeKind kind = schema.arguments()[i].type()->kind();
    const bool number =
        kind == c10::TypeKind::NumberType || kind == c10::TypeKind::FloatType;
    traits.arguments[i].keyed =
        traits.arguments[i].kind == ArgumentTraits::Kind::kStatic &&
        !(ignores && number);
  }
}

// A random operator that ATen decomposes draws by those that it is made of; one
// without an entry is of another library, or a fused kernel.
void find_entry(const c10::OperatorHandle& op, OpTraits& traits) {
  if (const OpEntry* entry = op_registry().find(op.operator_name())) {
    static_cast<OpEntry&>(traits) = *entry;
  }
  const bool draws =
      traits.is_random &&
      !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  if (draws && traits.custom_kernel == nullptr) {
    const OpEntry& unlisted = op_registry().unlisted_random;
    traits.custom_kernel = unlisted.custom_kernel;
    traits.custom_kernel_moves = unlisted.custom_kernel_moves;
    traits.draws = unlisted.draws;
    traits.runs_decision = unlisted.runs_decision;
    traits.skip_random = unlisted.skip_random;
  } else if (!draws && traits.is_drawn) {
    traits.custom_kernel = nullptr;
    traits.custom_kernel_moves = nullptr;
  }
}

OpTraits find_traits(const c10::OperatorHandle& op) {
  OpTraits traits;
  traits.is_random = op.hasTag(at::Tag::nondeterministic_seeded);
  find_entry(op, traits);
  traits.is_view = returns_view(op.schema());
  traits.is_foreign = op.schema().name().rfind("aten::", 0) != 0;
  for (const char* begin :
       {"aten::_foreach_", "aten::_fused_", "aten::_amp_foreach_"}) {
    traits.is_of_lists =
        traits.is_of_lists || op.schema().name().rfind(begin, 0) == 0;
  }
  traits.arguments = argument_traits(op.schema(), traits);
  traits.reads_values = std::any_of(
      traits.arguments.begin(), traits.arguments.end(),
      [](const ArgumentTraits& one) { return one.read; });
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
