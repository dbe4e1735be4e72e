#include <tensor/deferred/record.h>

#include <set>
#include <string_view>
#include <utility>

#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <tensor/call/op_call.h>
#include <tensor/deferred/memory_now.h>
#include <tensor/deferred/recorded_run.h>
#include <tensor/deferred/replay.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/state/dispatch_keys.h>
#include <tensor/state/thread_state.h>
#include <tessera/layout/notation.h>

namespace tessera::detail::inline tensor_layer {

namespace {

using c10::DispatchKey;
using c10::OperatorHandle;
using torch::jit::Stack;

// The device that the outermost of several calls asked for, of which LibTorch
// makes the others.
std::optional<c10::Device>& outer_device() {
  static thread_local std::optional<c10::Device> device;
  return device;
}

bool is_device_argument(const OpCall& call, size_t i) {
  return call.argument(i).isDevice();
}

bool takes_device(const OpCall& call) {
  for (const auto& argument : call.schema().arguments()) {
    if (argument.name() == "device") {
      return true;
    }
  }
  return false;
}

template <class F>
bool has_tensor(const OpCall& call, F f) {
  bool found = false;
  call.for_each_argument_tensor(
      [&](const at::Tensor& t) { found = found || (t.defined() && f(t)); });
  return found;
}

bool has_deferred(const OpCall& call) {
  return has_tensor(
      call, [](const at::Tensor& t) { return deferred_storage(t) != nullptr; });
}

bool asks_for_meta(const OpCall& call) {
  for (size_t i = 0; i < call.size(); ++i) {
    if (is_device_argument(call, i) && call.argument(i).toDevice().is_meta()) {
      return true;
    }
  }
  return false;
}

// Quantized and sparse tensors are made at once: they cannot be sharded.
bool can_be_deferred(const OpCall& call) {
  for (size_t i = 0; i < call.size(); ++i) {
    const auto& argument = call.schema().arguments()[i];
    const bool is_layout = argument.name() == "layout";
    if (is_layout && call.argument(i).isInt() &&
        call.argument(i).toLayout() != c10::kStrided) {
      return false;
    }
  }
  return true;
}

// The last of the calls of which Python's torch.tensor() is made, which writes
// the memory of a plain tensor before.
bool makes_constant(const OpCall& call) {
  return call.op().operator_name().name == "aten::lift_fresh" &&
         !is_sharded(call.argument(0).toTensor());
}

// Under a guard.
bool concerns_deferral(const OpCall& call) {
  if (has_deferred(call) || makes_constant(call)) {
    return true;
  }
  const bool is_factory =
      takes_device(call) &&
      !has_tensor(call, [](const at::Tensor&) { return true; });
  return (is_factory || asks_for_meta(call)) && can_be_deferred(call);
}

c10::Device intended_device(const OpCall& call) {
  if (outer_device()) {
    return *outer_device();
  }
  for (size_t i = 0; i < call.size(); ++i) {
    if (is_device_argument(call, i) && !call.argument(i).toDevice().is_meta()) {
      return call.argument(i).toDevice();
    }
  }
  c10::Device device = c10::kCPU;
  has_tensor(call, [&](const at::Tensor& t) {
    const DeferredStorage* storage = deferred_storage(t);
    device = storage != nullptr ? storage->device : device;
    return storage != nullptr;
  });
  return device;
}

// Operators that LibTorch makes of empty() and of operators that fill it.
bool is_filler(const OperatorHandle& op) {
  static const std::set<std::string_view> names{
      "aten::rand",     "aten::randn",  "aten::randint",
      "aten::randperm", "aten::normal", "aten::zeros",
      "aten::ones",     "aten::full",   "aten::scalar_tensor"};
  const std::string& name = op.operator_name().name;
  const bool by_name = names.contains(name) || name.ends_with("_like") ||
                       name.starts_with("aten::new_");
  const auto& arguments = op.schema().arguments();
  const bool has_out = !arguments.empty() && arguments.back().is_out();
  return by_name && !has_out &&
         op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd);
}

// By the tensor that a view shows, since that one has the name.
std::string describe_deferred(const at::Tensor& used) {
  const at::Tensor t = used.is_view() ? at::Tensor(used._base()) : used;
  const std::string name = t.name().empty() ? "" : "'" + t.name() + "', ";
  return name + dtype_name(t.scalar_type()) + shape_to_string(t.sizes().vec()) +
         " of " + deferred_storage(t)->version->call->name();
}

[[noreturn]] void throw_used_late(const OpCall& call) {
  at::Tensor used;
  has_tensor(call, [&](const at::Tensor& t) {
    const bool found = !used.defined() && deferred_storage(t) != nullptr;
    used = found ? t : used;
    return found;
  });
  TORCH_CHECK_VALUE(
      false, full_name(call.op().operator_name()),
      ": a tensor is used that was made under a DeferredInit and has no values "
      "yet; got ",
      describe_deferred(used),
      "; put its module in its place first: parallelize_module(), "
      "distribute_module(), make_dtensor_(), or materialize() for a plain one");
}

// Calls that say something about a tensor and touch no values; views too, of
// which C++ layers are made: the error then names the call that computes.
bool is_harmless(const OperatorHandle& op) {
  static const std::set<std::string_view> names{
      "aten::requires_grad_",
      "aten::detach",
      "aten::alias",
      "aten::t",
      "aten::transpose",
      "aten::as_strided",
      "aten::view",
      "aten::is_same_size",
      "aten::_has_compatible_shallow_copy_type"};
  return names.contains(op.operator_name().name);
}

// A number that the program wrote down, as torch::tensor(3) does, is known.
bool is_known_number(const OpCall& call) {
  if (call.op().operator_name().name != "aten::_local_scalar_dense") {
    return false;
  }
  const at::Tensor t = call.argument(0).toTensor();
  const DeferredStorage* storage = deferred_storage(t);
  if (storage == nullptr || t.nbytes() != t.storage().nbytes()) {
    return false;
  }
  const RecordedCall& made = *storage->version->call;
  const bool is_constant = !made.results.empty() && made.tensors.size() == 1 &&
                           made.tensors[0].version == nullptr;
  return made.op && (is_constant || (is_overwrite(made) && is_fill(made)));
}

// Records a copy of a plain tensor.
void record_constant(const OpCall& call) {
  const at::Tensor t = call.argument(0).toTensor();
  if (deferred_storage(t) != nullptr) {
    return call.finish(t);
  }
  auto recorded = std::make_shared<RecordedCall>();
  recorded->op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::clone", "");
  recorded->arguments = {t, c10::IValue()};
  recorded->tensors.emplace_back();
  recorded->tensors[0].writes = t.is_inference() ? -1 : t._version();
  const at::Tensor made = [&] {
    const MemoryNow memory;
    return at::empty_strided(
        t.sizes(), t.strides(), t.options().device(c10::kMeta));
  }();
  const uint64_t storage = next_sequence();
  recorded->sequence = next_sequence();
  recorded->results.push_back({0, 0, storage, Geometry(made)});
  recorded->device = t.device();
  defer(
      made,
      std::make_shared<StorageVersion>(storage, std::move(recorded), nullptr),
      t.device());
  call.finish(made);
}

void record_empty(const OpCall& call) {
  const c10::Device device = intended_device(call);
  ask_for_meta(call);
  {
    const c10::impl::ExcludeDispatchKeyGuard off(kUseKey);
    call.op().callBoxed(call.stack());
  }
  const at::Tensor made = call.stack()->back().toTensor();
  const uint64_t storage = next_sequence();
  auto recorded = std::make_shared<RecordedCall>();
  recorded->sequence = next_sequence();
  recorded->results.push_back({0, 0, storage, Geometry(made)});
  recorded->device = device;
  defer(
      made,
      std::make_shared<StorageVersion>(storage, std::move(recorded), nullptr),
      device);
}

bool is_empty(const OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return name == "aten::empty_strided" ||
         (name == "aten::empty" &&
          op.operator_name().overload_name == "memory_format");
}

void record(const OperatorHandle& op, Stack* stack) {
  const OpCall call(op, stack);
  if (op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd)) {
    op.callBoxedForDispatchKey(DispatchKey::CompositeImplicitAutograd, *stack);
  } else if (makes_constant(call)) {
    record_constant(call);
  } else if (is_empty(op)) {
    record_empty(call);
  } else if (is_known_number(call)) {
    const at::Tensor t = call.argument(0).toTensor();
    const Replaying replaying;
    const at::Tensor value = replay(deferred_storage(t)->version, Geometry(t));
    call.finish(value.item());
  } else if (is_filler(op)) {
    std::optional<c10::Device> device = intended_device(call);
    ask_for_meta(call);
    std::swap(outer_device(), device);
    try {
      op.callBoxedForDispatchKey(
          DispatchKey::CompositeExplicitAutograd, *stack);
    } catch (...) {
      std::swap(outer_device(), device);
      throw;
    }
    std::swap(outer_device(), device);
  } else {
    run_recorded_on_meta(call, intended_device(call));
  }
}

}  // namespace

void begin_deferral() {
  ++ThreadState::here().deferrals;
}

void end_deferral() {
  --ThreadState::here().deferrals;
}

bool record_call(const OperatorHandle& op, Stack* stack) {
  const bool is_on = ThreadState::here().deferrals > 0;
  if (!is_on && !exists_deferred()) {
    return false;
  }
  const OpCall call(op, stack);
  if (!is_on) {
    if (!has_deferred(call)) {
      return false;
    }
    if (!is_harmless(op)) {
      throw_used_late(call);
    }
  } else if (!concerns_deferral(call)) {
    return false;
  }
  record(op, stack);
  return true;
}

}  // namespace tessera::detail::inline tensor_layer
