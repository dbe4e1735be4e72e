#include <tensor/random/ops/unsharded_random.h>

#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/enum_tag.h>
#include <tensor/call/op_registry.h>
#include <tensor/random/ops/plain_draws.h>
#include <tensor/random/ops/random_call.h>
#include <tensor/run/kept_results.h>
#include <tensor/state/dispatch_keys.h>
#include <tensor/state/draws.h>
#include <tensor/state/thread_state.h>
#include <tessera/comm/device_mesh.h>

namespace tessera::detail::inline tensor_layer {

namespace {

bool returns_only_written(const OpCall& call) {
  for (size_t i = 0; i < call.schema().returns().size(); ++i) {
    if (!call.returns_written(i)) {
      return false;
    }
  }
  return true;
}

// Notes down the draw of a call on tensors without values.
void record_draw(const OpCall& call, c10::DispatchKeySet after, Draws& draws) {
  draws.offsets.push_back(next_offset(call));
  if (returns_only_written(call)) {
    call.finish(call.written().at(0));
  } else {
    call.op().redispatchBoxed(after, call.stack());
  }
}

void unsharded_kernel(
    const c10::OperatorHandle& op, c10::DispatchKeySet keys,
    torch::jit::Stack* stack) {
  const OpCall call(op, stack);
  const c10::DispatchKeySet after =
      keys &
      c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kUnshardedRandomKey);
  if (call.mesh() != nullptr || UnshardedRandom::current() == nullptr) {
    op.redispatchBoxed(after, stack);
    return;
  }
  Draws* const draws = ThreadState::here().draws;
  if (draws != nullptr && draws->is_recording) {
    return record_draw(call, after, *draws);
  }
  const c10::impl::ExcludeDispatchKeyGuard off(kUnshardedRandomKey);
  const at::AutoDispatchBelowADInplaceOrView below;
  op_registry().find(op.operator_name())->custom_kernel(call);
}

bool is_drawn(const c10::OperatorName& name) {
  const OpEntry* entry = op_registry().find(name);
  return entry != nullptr && entry->is_drawn;
}

bool has_tensor_argument(const c10::FunctionSchema& schema) {
  for (const auto& argument : schema.arguments()) {
    if (argument.type()->kind() == c10::TypeKind::TensorType) {
      return true;
    }
  }
  return false;
}

}  // namespace

void register_unsharded_random() {
  using c10::KernelFunction;
  static auto* handles = new std::vector<c10::RegistrationHandleRAII>();
  auto& dispatcher = c10::Dispatcher::singleton();
  TORCH_CHECK(
      !dispatcher.hasBackendFallbackForDispatchKey(kUnshardedRandomKey),
      "tessera: another library uses the dispatch key ", kUnshardedRandomKey,
      ", which switches random numbers of plain tensors; load only one of "
      "them");
  handles->push_back(dispatcher.registerFallback(
      kUnshardedRandomKey,
      KernelFunction::makeFromBoxedFunction<&kept_results_fallback>(),
      "tessera"));
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (op && op->hasTag(at::Tag::nondeterministic_seeded) &&
        has_tensor_argument(op->schema()) &&
        !op->hasKernelForDispatchKey(
            c10::DispatchKey::CompositeImplicitAutograd) &&
        is_drawn(name)) {
      handles->push_back(dispatcher.registerImpl(
          name, kUnshardedRandomKey,
          KernelFunction::makeFromBoxedFunction<&unsharded_kernel>(),
          std::nullopt, nullptr, "tessera"));
    }
  }
}

}  // namespace tessera::detail::inline tensor_layer
