#include <tensor/dispatch/kernels.h>

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/alias.h>
#include <c10/util/Exception.h>
#include <comm/log/call_cause.h>
#include <tensor/autograd/leaf_gradient.h>
#include <tensor/autograd/local.h>
#include <tensor/call/moves.h>
#include <tensor/call/observer.h>
#include <tensor/checks/gather_counts.h>
#include <tensor/checks/replication_check.h>
#include <tensor/checks/strict_mode.h>
#include <tensor/dispatch/several_meshes.h>
#include <tensor/fast/thread_dispatch.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/move/view_copies.h>
#include <tensor/random/ops/random_call.h>
#include <tensor/run/run_decision.h>
#include <tensor/run/run_off_mesh.h>
#include <tensor/run/strided_views.h>
#include <tensor/state/late_operators.h>
#include <tensor/state/plain_is_replicated.h>
#include <tensor/state/strides.h>
#include <tensor/uses/parameter_use.h>

namespace tessera::detail::inline tensor_layer {

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::OperatorHandle;
using torch::jit::Stack;

bool may_take_plain(const OpTraits& traits, const OpCall& call) {
  return traits.takes_plain_source && is_sharded(call.argument(0).toTensor());
}

void run_uncached(
    const OpCall& call, const OpTraits& traits, const Decision& decision) {
  const DeviceMesh mesh = *call.mesh();  // the stack is about to change
  if (is_strict()) {
    check_strict(call, traits, decision);
  }
  count_gathers(call, traits, decision);
  const auto& name = call.op().operator_name();
  const CallCause cause(
      name.name, name.overload_name, CallCause::Reason::kImplied, &mesh);
  if (!mesh.coordinate() && !traits.needs_no_data) {
    run_off_mesh(call, traits);
  } else if (needs_custom_kernel(call, traits)) {
    traits.custom_kernel(call);
  } else {
    if (decision.is_fallback) {
      count_fallback(call);
    }
    try {
      run_decision(call, traits, decision);
    } catch (c10::Error& error) {
      error.add_context(c10::str("in ", name, ", ", decision.reason));
      throw;
    }
  }
}

const DecisionPtr& custom_kernel_decision() {
  static const auto* decision =
      new DecisionPtr(new Decision{.strategy = Strategy::kCustomKernel});
  return *decision;
}

void install_leaf_hooks(const OpCall& call) {
  call.for_each_argument_tensor([](const at::Tensor& t) {
    if (is_sharded(t)) {
      install_leaf_hook(t);
    }
  });
}

// Checks a call that was not met before, and decides it.
DecisionPtr decide_checked(const OpCall& call, const OpTraits& traits) {
  call.check_one_mesh();
  if (!traits.reads_metadata_only) {
    check_plain(call, may_take_plain(traits, call));
  }
  TORCH_INTERNAL_ASSERT(
      call.mesh() != nullptr, call.op().operator_name(),
      ": no argument is sharded");
  return has_custom_kernel(call, traits) ? custom_kernel_decision()
                                         : decide(call, traits);
}

// Makes arguments whose values ATen reads plain; tells whether there are any.
bool read_values(const OpCall& call, const OpTraits& traits) {
  if (!traits.reads_values) {
    return false;
  }
  std::vector<size_t> read;
  MoveList moves;
  for (size_t i = 0; i < call.size(); ++i) {
    if (call.argument(i).isTensor() && traits.arguments[i].read) {
      read.push_back(i);
      moves.value(i, call.argument(i).toTensor());
    }
  }
  if (read.empty()) {
    return false;
  }
  if (CallObserver* observer = CallObserver::current()) {
    observer->stop_at_values(call, moves);
  }
  if (is_strict()) {
    check_strict(call, moves.moves());
  }
  count_gathers(call, moves.moves());
  const DeviceMesh mesh = *call.mesh();
  const CallCause cause(
      call.op().operator_name().name, call.op().operator_name().overload_name,
      CallCause::Reason::kImplied, &mesh);
  for (const size_t i : read) {
    map_tensors(call.argument(i), [](const at::Tensor& t) {
      return is_sharded(t) ? replicated_value(t).cpu() : t;
    });
  }
  return true;
}

}  // namespace

// Note [A call that was met before]
// All that decides how a call runs is in its key. So a call whose key is known
// needs no check and no decision, and where nothing moves it runs at once.
void backend_kernel(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  ThreadDispatch& mine = enter_kernel();
  const OpCall call(op, stack);
  const OpTraits& traits = mine.traits_of(op);
  if (traits.is_view) {
    record_views();
  }
  ++mine.calls;
  at::AutoDispatchBelowADInplaceOrView below;
  CallObserver* const observer = mine.observer;
  std::optional<CallKey> key;
  DecisionPtr decision;
  if (!needs_custom_kernel(call, traits) && observer == nullptr) {
    key.emplace(call, traits);
    if (const DecisionPtr* known = mine.cache.find(*key)) {
      if ((*known)->is_direct && key->is_simple()) {
        if (key->has_variable()) {
          install_leaf_hooks(call);
        }
        // Held, since a kernel on shards may be anybody's and call us again.
        const DispatchCache::Hold hold(mine.cache);
        return run_cached(call, traits, **known);
      }
      decision = *known;
    }
  }
  if (!decision) {
    if (meets_on_several_meshes(call)) {
      return run_on_several_meshes(call);
    }
    decision = decide_checked(call, traits);
    if (key && key->is_complete()) {
      mine.cache.insert(*key, decision, key->specs(call));
    }
  } else if (!key->is_simple()) {
    check_plain(call, /*may_mix=*/false);
  }
  install_leaf_hooks(call);
  if (observer != nullptr) {
    return observer->take(call, traits);
  }
  run_uncached(call, traits, *decision);
}

// Composite level: ATen's own decompositions. They make plain tensors, which
// are replicated by construction, and stay differentiable.
void composite_kernel(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  ThreadDispatch& mine = enter_kernel();
  const OpCall call(op, stack);
  const OpTraits& traits = mine.traits_of(op);
  ++mine.calls;
  if (traits.custom_kernel != nullptr) {
    return traits.custom_kernel(call);
  }
  const bool several_meshes = meets_on_several_meshes(call);
  if (!several_meshes) {
    call.check_one_mesh();
  }
  const DeviceMesh mesh = *call.mesh();  // the arguments are about to change
  const bool metadata_only = traits.reads_metadata_only;
  if (!read_values(call, traits) && !metadata_only) {
    check_plain(call, /*may_mix=*/false);
  }
  const bool is_inner = PlainIsReplicated::active();
  PlainIsReplicated depth;
  std::optional<RandomOperation> draws;
  if (traits.is_random) {
    draws.emplace(call, /*counts=*/CallObserver::current() == nullptr);
  }
  if (traits.composite != nullptr && !several_meshes &&
      traits.composite(call)) {
    return;
  }
  op.callBoxedForDispatchKey(DispatchKey::CompositeImplicitAutograd, *stack);
  if (!is_inner && !metadata_only && !op.schema().is_mutable()) {
    const size_t results = op.schema().returns().size();
    for (size_t i = stack->size() - results; i < stack->size(); ++i) {
      map_tensors((*stack)[i], [&](const at::Tensor& t) {
        return as_replicated(t, mesh);
      });
    }
  }
}

// Operators without an autograd kernel pass through here; a late one gets its
// backend kernel on the way.
void autograd_fallback(
    const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  ensure_registered();
  op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
}

// A window that is the tensor itself is an alias of it, whose derivative moves
// nothing either. Elements that share memory share their gradient, which only
// the derivative of as_strided() knows.
void as_strided_autograd(
    const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  const OpCall call(op, stack);
  const at::Tensor self = call.argument(0).toTensor();
  if (shows_itself(call) && is_non_overlapping(self.sizes(), self.strides())) {
    return call.finish(at::alias(self));
  }
  op.callBoxedForDispatchKey(DispatchKey::Autograd, *stack);
}

// set_data() asks, of which module->to() is made: a parameter keeps its use.
bool shallow_copy_kernel(const at::Tensor& self, const at::Tensor& from) {
  keep_use(self, from);
  return true;
}

}  // namespace tessera::detail::inline tensor_layer
