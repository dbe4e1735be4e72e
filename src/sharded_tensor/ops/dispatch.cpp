// Tables of implementations, and the way from a call to one of them.
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include <c10/util/Exception.h>
#include <comm/log/call_cause.h>
#include <sharded_tensor/ops/builtin_ops.h>
#include <sharded_tensor/tensor/state.h>
#include <tensor/call/op_traits.h>
#include <tessera/comm/world.h>
#include <tessera/sharded_tensor/conversion.h>

namespace tessera::detail::inline sharded_tensor_layer {

using sharded_tensor::Handler;
using sharded_tensor::ShardedTensor;
using sharded_tensor::ShardingSpec;
using sharded_tensor::Value;

namespace {

struct SpecOp {
  std::type_index type;
  std::function<bool(const ShardingSpec&)> matches;
  Handler handler;
};

// What users registered; ranks may be threads of one process.
struct Tables {
  std::shared_mutex mutex;
  std::unordered_map<std::string, Handler> all;
  std::unordered_map<std::string, std::vector<SpecOp>> by_spec;
};

Tables& tables() {
  static auto* instance = new Tables();  // handlers may outlive static objects
  return *instance;
}

std::string with_namespace(const std::string& op) {
  return op.find("::") == std::string::npos ? "aten::" + op : op;
}

// The name itself, then the one that stands for all overloads.
std::vector<std::string> names_of(const std::string& op) {
  const std::string full = with_namespace(op);
  const size_t dot = full.find('.', full.find("::"));
  return dot == std::string::npos
             ? std::vector<std::string>{full}
             : std::vector<std::string>{full, full.substr(0, dot)};
}

// The spec's own type first, else the base that was registered last.
const Handler* find_spec_op(
    const std::vector<SpecOp>& ops, const ShardingSpec& spec) {
  const Handler* found = nullptr;
  for (const SpecOp& op : ops) {
    if (op.type == typeid(spec)) {
      return &op.handler;
    }
    found = op.matches(spec) ? &op.handler : found;
  }
  return found;
}

Handler find_handler(const ShardingSpec& spec, const std::string& op) {
  Tables& t = tables();
  const std::shared_lock lock(t.mutex);
  const std::vector<std::string> names = names_of(op);
  for (const std::string& name : names) {
    if (const auto it = t.all.find(name); it != t.all.end()) {
      return it->second;
    }
  }
  for (const std::string& name : names) {
    if (const auto it = t.by_spec.find(name); it != t.by_spec.end()) {
      if (const Handler* found = find_spec_op(it->second, spec)) {
        return *found;
      }
    }
  }
  return {};
}

void check_handler(
    const char* call, const std::string& op, const Handler& handler) {
  TORCH_CHECK_TYPE(
      handler, call, "('", op,
      "'): the implementation must be a function of (arguments, group)");
}

// The arguments with their anchors in the place of sharded tensors: what an
// overload is chosen by.
BoundCall bind(const std::string& op, const Values& arguments) {
  std::vector<c10::IValue> values;
  for (const Value& value : arguments) {
    const ShardedTensor* sharded = sharded_in(value);
    values.push_back(
        sharded != nullptr ? c10::IValue(sharded->state()->anchor)
                           : std::get<c10::IValue>(value));
  }
  return bind_arguments("dispatch, rank " + std::to_string(rank()), op, values);
}

std::string specs_of(const Values& arguments) {
  std::string text;
  for (const Value& value : arguments) {
    if (const ShardedTensor* sharded = sharded_in(value)) {
      text += (text.empty() ? "" : ", ") + to_string(sharded->sharding_spec());
    }
  }
  return text;
}

bool all_have_mesh(const Values& arguments) {
  for (const Value& value : arguments) {
    const ShardedTensor* sharded = sharded_in(value);
    if (sharded != nullptr && !has_mesh(*sharded)) {
      return false;
    }
  }
  return true;
}

void check_written(const BoundCall& call, const Values& arguments) {
  for (const size_t i : written_arguments(call.op.schema())) {
    TORCH_CHECK_TYPE(
        sharded_in(arguments[i]) != nullptr, "dispatch('",
        full_name(call.op.operator_name()), "'), rank ", rank(),
        ": the operator writes argument ", i,
        ", which must be a sharded tensor as the others are");
  }
}

Values run_builtin(const std::string& op, const Values& arguments) {
  if (const BuiltinOp own = find_builtin_op(with_namespace(op))) {
    return own(arguments);
  }
  const BoundCall call = bind(op, arguments);
  check_written(call, arguments);
  const bool elementwise = traits_of(call.op).is_elementwise;
  if (elementwise && fits_boxes(call, arguments)) {
    return run_on_boxes(call, arguments);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      all_have_mesh(arguments), "dispatch('", op, "'), rank ", rank(),
      elementwise ? ": the shards must be cut alike where no mesh has them"
                  : ": only elementwise operators run where no mesh has the "
                    "shards",
      "; got ", specs_of(arguments),
      "; reshard() to one box per rank on a grid first, or register the "
      "operator with custom_sharded_op()");
  return run_on_mesh(call, arguments);
}

// Throws unless there is a sharded tensor and all have the same group.
const ShardedTensor& checked_first(
    const std::string& op, const Values& arguments) {
  TORCH_CHECK_VALUE(
      !arguments.empty(), "dispatch('", op, "'), rank ", rank(),
      ": there are no arguments");
  const ShardedTensor& first = sharded_tensor::find_sharded_tensor(arguments);
  for (const Value& value : arguments) {
    const ShardedTensor* other = sharded_in(value);
    TORCH_CHECK(
        other == nullptr || other->process_group() == first.process_group(),
        "dispatch('", op, "'), rank ", rank(),
        ": the sharded tensors must have the same group; got ",
        to_string(first.process_group()), " and ",
        to_string(other->process_group()));
  }
  return first;
}

}  // namespace

void add_spec_op(
    std::type_index type, std::function<bool(const ShardingSpec&)> matches,
    const std::string& op, Handler handler) {
  check_handler("custom_sharding_spec_op", op, handler);
  Tables& t = tables();
  const std::unique_lock lock(t.mutex);
  std::vector<SpecOp>& ops = t.by_spec[with_namespace(op)];
  std::erase_if(ops, [&](const SpecOp& old) { return old.type == type; });
  ops.push_back({type, std::move(matches), std::move(handler)});
}

std::optional<Values> run_user_op(
    const std::string& op, const Values& arguments) {
  const ShardedTensor& first = checked_first(op, arguments);
  const Handler handler = find_handler(first.sharding_spec(), op);
  if (!handler) {
    return std::nullopt;
  }
  return handler(arguments, first.process_group());
}

ShardedTensor only_result(const std::string& op, const Values& results) {
  TORCH_CHECK_TYPE(
      results.size() == 1 && sharded_in(results[0]) != nullptr,
      "dispatch_one('", op, "'), rank ", rank(),
      ": the result must be one sharded tensor; got ", results.size(),
      " results", results.size() == 1 ? ", a value" : "",
      "; dispatch() returns any");
  return *sharded_in(results[0]);
}

}  // namespace tessera::detail::inline sharded_tensor_layer

namespace tessera::sharded_tensor {

const ShardedTensor& find_sharded_tensor(const std::vector<Value>& arguments) {
  for (const Value& value : arguments) {
    if (const ShardedTensor* sharded = detail::sharded_in(value)) {
      return *sharded;
    }
  }
  TORCH_CHECK_TYPE(
      false, "find_sharded_tensor, rank ", rank(), ": none of the ",
      arguments.size(), " arguments is a sharded tensor");
}

std::vector<Value> dispatch(
    const std::string& op, const std::vector<Value>& arguments) {
  const detail::CallCause cause(op);
  if (auto results = detail::run_user_op(op, arguments)) {
    return *std::move(results);
  }
  return detail::run_builtin(op, arguments);
}

ShardedTensor dispatch_one(
    const std::string& op, const std::vector<Value>& arguments) {
  return detail::only_result(op, dispatch(op, arguments));
}

void custom_sharded_op(const std::string& op, Handler handler) {
  detail::check_handler("custom_sharded_op", op, handler);
  detail::Tables& t = detail::tables();
  const std::unique_lock lock(t.mutex);
  t.all[detail::with_namespace(op)] = std::move(handler);
}

bool has_custom_op(const ShardingSpec& spec, const std::string& op) {
  return static_cast<bool>(detail::find_handler(spec, op));
}

}  // namespace tessera::sharded_tensor
