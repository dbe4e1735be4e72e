#include <tensor/state/plain_is_replicated.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/alias.h>
#include <c10/core/AutogradState.h>
#include <c10/util/Exception.h>
#include <comm/log/call_cause.h>
#include <tensor/checks/replication_check.h>
#include <tensor/checks/strict_mode.h>
#include <tensor/dispatch/several_meshes.h>
#include <tensor/fast/decision_cache.h>
#include <tensor/fast/typed_kernel.h>
#include <tensor/inspect/dry_run.h>
#include <tensor/random/ops/table.h>
#include <tensor/random/ops/unsharded_random.h>
#include <tensor/run/run_decision.h>
#include <tensor/run/strided_views.h>
#include <tensor/state/strides.h>
#include <tensor/uses/parameter_use.h>
#include <tensor/uses/smoothed_loss.h>
#include <tessera/tensor/dtensor.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/library.h>

namespace tessera {

namespace {
thread_local int replicate_depth = 0;
thread_local int users_depth = 0;  // that of ImplicitReplication alone
}  // namespace

ImplicitReplication::ImplicitReplication() {
  ++replicate_depth;
  ++users_depth;
}
ImplicitReplication::~ImplicitReplication() {
  --replicate_depth;
  --users_depth;
}

namespace detail {

PlainIsReplicated::PlainIsReplicated() {
  ++replicate_depth;
}
PlainIsReplicated::~PlainIsReplicated() {
  --replicate_depth;
}
// Derivative formulas, which run inside a graph task, mix plain tensors of
// their own in as composite kernels do.
bool PlainIsReplicated::active() {
  return replicate_depth > 0 ||
         torch::autograd::get_current_graph_task_id() != -1;
}
bool PlainIsReplicated::by_construction() {
  return replicate_depth > users_depth ||
         torch::autograd::get_current_graph_task_id() != -1;
}

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::OperatorHandle;
using torch::jit::Stack;

bool may_take_plain(const OpTraits& traits, const OpCall& call) {
  const auto& name = call.op().operator_name().name;
  return traits.special != nullptr &&
         (name == "aten::copy_" || name == "aten::set_") &&
         is_sharded(call.argument(0).toTensor());
}

// Of one argument these read the sizes or the dtype, which every rank knows, so
// a plain and a sharded tensor may meet. The result is what the other one is.
bool takes_form_only(const OpCall& call) {
  const std::string& name = call.op().operator_name().name;
  return name == "aten::is_same_size" || name == "aten::is_set_to" ||
         name == "aten::expand_as" || name == "aten::view_as" ||
         name == "aten::reshape_as" || name == "aten::type_as";
}

void run_slowly(
    const OpCall& call, const OpTraits& traits, const Decision& decision) {
  const DeviceMesh mesh = *call.mesh();  // the stack is about to change
  if (is_strict()) {
    check_strict(call, traits, decision);
  }
  const auto& name = call.op().operator_name();
  const CallCause cause(
      name.name, name.overload_name, CallCause::Reason::kImplied, &mesh);
  if (!mesh.coordinate() && !traits.needs_no_data) {
    run_outside(call, traits);
  } else if (traits.special != nullptr) {
    traits.special(call);
  } else {
    if (decision.is_fallback) {
      count_fallback(call);
    }
    try {
      run_decided(call, traits, decision);
    } catch (c10::Error& error) {
      error.add_context(c10::str("in ", name, ", ", decision.reason));
      throw;
    }
  }
}

const DecisionPtr& special_decision() {
  static const auto* decision =
      new DecisionPtr(new Decision{.way = Way::kSpecial});
  return *decision;
}

void watch_leaves(const OpCall& call) {
  call.for_each_argument_tensor([](const at::Tensor& t) {
    if (is_sharded(t) && t.requires_grad()) {
      watch_leaf(t);
    }
  });
}

// Throws where the caller has mixed plain and sharded tensors. Where that is
// allowed, the plain ones are compared if the user asks for it.
void check_plain(const OpCall& call, bool may_mix) {
  if (!may_mix) {
    call.check_no_mix();
  }
  if (checks_replication() && !PlainIsReplicated::by_construction() &&
      DryRun::current() == nullptr) {
    check_replication(call);
  }
}

// Checks a call that was not met before, and decides it.
DecisionPtr decide_checked(const OpCall& call, const OpTraits& traits) {
  call.check_one_mesh();
  if (!takes_form_only(call)) {
    check_plain(call, may_take_plain(traits, call));
  }
  TORCH_INTERNAL_ASSERT(
      call.mesh() != nullptr, call.op().operator_name(),
      ": no argument is sharded");
  return has_own_way(call, traits) ? special_decision() : decide(call, traits);
}

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
  DryRun* const dry = mine.dry_run;
  std::optional<CallKey> key;
  DecisionPtr decision;
  if (traits.special == nullptr && dry == nullptr) {
    key.emplace(call, traits);
    if (const DecisionPtr* known = mine.cache.find(*key)) {
      if ((*known)->is_direct && key->is_simple()) {
        if (key->has_variable()) {
          watch_leaves(call);
        }
        // Held, since a kernel on shards may be anybody's and call us again.
        const DispatchCache::Hold hold(mine.cache);
        return run_direct(call, traits, **known);
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
  watch_leaves(call);
  if (dry != nullptr) {
    return dry->take(call, traits);
  }
  run_slowly(call, traits, *decision);
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
  if (DryRun* dry = DryRun::current()) {
    dry->stop_at_values(call, moves);
  }
  if (is_strict()) {
    check_strict(call, moves.moves());
  }
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

// Composite level: ATen's own decompositions. They make plain tensors, which
// are replicated by construction, and stay differentiable.
void composite_kernel(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  ThreadDispatch& mine = enter_kernel();
  const OpCall call(op, stack);
  const OpTraits& traits = mine.traits_of(op);
  ++mine.calls;
  if (traits.special != nullptr) {
    return traits.special(call);
  }
  if (!meets_on_several_meshes(call)) {
    call.check_one_mesh();
  }
  const DeviceMesh mesh = *call.mesh();  // the arguments are about to change
  const bool form_only = takes_form_only(call);
  if (!read_values(call, traits) && !form_only) {
    check_plain(call, /*may_mix=*/false);
  }
  const bool is_inner = PlainIsReplicated::active();
  PlainIsReplicated depth;
  std::optional<OperationDraws> draws;
  if (traits.is_random) {
    draws.emplace(call, /*counts=*/DryRun::current() == nullptr);
    if (run_attention_with_dropout(call)) {
      return;
    }
  }
  op.callBoxedForDispatchKey(DispatchKey::CompositeImplicitAutograd, *stack);
  if (!is_inner && !form_only && !op.schema().is_mutable()) {
    const size_t results = op.schema().returns().size();
    for (size_t i = stack->size() - results; i < stack->size(); ++i) {
      map_tensors((*stack)[i], [&](const at::Tensor& t) {
        return as_replicated(t, mesh);
      });
    }
  }
}

// The one composite that ATen does not decompose as we need it: where labels
// are smoothed, see smoothed_loss.h.
void cross_entropy_composite(
    const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  ensure_registered();
  const OpCall call(op, stack);
  if (!meets_on_several_meshes(call)) {
    call.check_one_mesh();
    call.check_no_mix();
    const PlainIsReplicated depth;
    if (run_smoothed_loss(call)) {
      return;
    }
  }
  composite_kernel(op, keys, stack);
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

// Note [Which operators need a kernel of their own]
// A backend fallback serves operators without any kernel for our key. Those
// with a CompositeExplicitAutograd(NonFunctional) kernel would take that one
// instead, and those with a CompositeImplicitAutograd kernel would decompose
// without raising the depth; each of these gets an explicit kernel. Operators
// defined after us (custom ops, other libraries) are queued by a listener,
// which runs under the dispatcher's lock, and registered at the next entry.
class Registry {
 public:
  static Registry& instance() {
    static auto* registry = new Registry();  // lives as long as the dispatcher
    return *registry;
  }

  void queue(const c10::OperatorName& name) {
    std::lock_guard<std::mutex> lock(mutex_);
    late_.push_back(name);
    has_late_operators.store(true, std::memory_order_release);
  }

  void add_late() {
    std::lock_guard<std::mutex> adding(adding_);
    for (auto names = take_late(); !names.empty(); names = take_late()) {
      for (const auto& name : names) {
        if (auto op = c10::Dispatcher::singleton().findSchema(name)) {
          add_operator(*op);
        }
      }
    }
  }

 private:
  struct Listener final : c10::OpRegistrationListener {
    explicit Listener(Registry& to) : registry(to) {}
    void onOperatorRegistered(const OperatorHandle& op) override {
      registry.queue(op.operator_name());
    }
    void onOperatorDeregistered(const OperatorHandle&) override {
      forget_traits();
    }
    Registry& registry;
  };

  struct ByName {
    using Entry = std::pair<c10::OperatorName, DispatchKey>;
    bool operator()(const Entry& a, const Entry& b) const {
      return std::tie(a.first.name, a.first.overload_name, a.second) <
             std::tie(b.first.name, b.first.overload_name, b.second);
    }
  };

  Registry() {
    using c10::KernelFunction;
    auto& dispatcher = c10::Dispatcher::singleton();
    handles_.push_back(dispatcher.registerFallback(
        kShardedKey, KernelFunction::makeFromBoxedFunction<&backend_kernel>(),
        "tessera"));
    handles_.push_back(dispatcher.registerFallback(
        kShardedAutogradKey,
        KernelFunction::makeFromBoxedFunction<&autograd_fallback>(),
        "tessera"));
    aten_ = std::make_unique<torch::Library>(
        torch::Library::IMPL, "aten", kShardedKey, __FILE__, __LINE__);
    aten_->impl("_has_compatible_shallow_copy_type", shallow_copy_kernel);
    for (const auto& name : dispatcher.getAllOpNames()) {
      if (auto op = dispatcher.findOp(name)) {
        add_operator(*op);
      }
    }
    handles_.push_back(dispatcher.registerImpl(
        {"aten::as_strided", ""}, kShardedAutogradKey,
        KernelFunction::makeFromBoxedFunction<&as_strided_autograd>(),
        std::nullopt, nullptr, "tessera"));
    register_plain_random();
    register_use_kernels(handles_);
    // The dispatcher replays all known operators to a new listener.
    handles_.push_back(
        dispatcher.addRegistrationListener(std::make_unique<Listener>(*this)));
    has_scanned_ = true;
  }

  void add_operator(const OperatorHandle& op) {
    using c10::BoxedKernel;
    const c10::OperatorName& name = op.operator_name();
    if (!op.hasSchema() ||
        name.name == "aten::_has_compatible_shallow_copy_type") {
      return;
    }
    if (op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd)) {
      const auto boxed = BoxedKernel::makeFromFunction<&composite_kernel>();
      const auto typed = [&] {
        return may_be_typed() ? typed_composite(op, boxed) : std::nullopt;
      };
      add(name, kShardedKey, typed(), boxed);
      if (name.name == "aten::cross_entropy_loss") {
        add(name, kShardedAutogradKey, std::nullopt,
            BoxedKernel::makeFromFunction<&cross_entropy_composite>());
      } else {
        add(name, kShardedAutogradKey, typed(), boxed);
      }
      return;
    }
    const auto boxed = BoxedKernel::makeFromFunction<&backend_kernel>();
    auto typed = may_be_typed() ? typed_kernel(op, boxed) : std::nullopt;
    if (typed ||
        op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
        op.hasKernelForDispatchKey(
            DispatchKey::CompositeExplicitAutogradNonFunctional)) {
      add(name, kShardedKey, std::move(typed), boxed);
    }
  }

  // Operators that were there before us are LibTorch's, or stay as they are;
  // a late one may be removed and defined again with another signature.
  bool may_be_typed() const { return !has_scanned_; }

  // Returns the queue; an empty one means that no operator is late any more.
  std::vector<c10::OperatorName> take_late() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<c10::OperatorName> names;
    names.swap(late_);
    if (names.empty()) {
      has_late_operators.store(false, std::memory_order_release);
    }
    return names;
  }

  void add(
      const c10::OperatorName& name, DispatchKey key,
      std::optional<c10::KernelFunction> typed, c10::BoxedKernel boxed) {
    if (!added_.emplace(name, key).second) {
      return;  // defined, removed and defined again
    }
    handles_.push_back(c10::Dispatcher::singleton().registerImpl(
        name, key,
        typed ? *std::move(typed)
              : c10::KernelFunction::makeFromBoxedKernel(std::move(boxed)),
        std::nullopt, nullptr, "tessera"));
  }

  std::mutex adding_;  // taken before the dispatcher's lock
  std::mutex mutex_;   // guards the queue; taken under the dispatcher's lock
  std::set<std::pair<c10::OperatorName, DispatchKey>, ByName> added_;
  std::vector<c10::OperatorName> late_;
  bool has_scanned_ = false;
  std::vector<c10::RegistrationHandleRAII> handles_;
  std::unique_ptr<torch::Library> aten_;
};

}  // namespace

at::Tensor as_replicated(const at::Tensor& result, const DeviceMesh& mesh) {
  if (!result.defined() || is_sharded(result)) {
    return result;
  }
  return from_local(
      result, mesh, Placements(static_cast<size_t>(mesh.ndim()), Replicate()));
}

std::atomic<bool> has_late_operators{true};

void register_late_operators() {
  Registry::instance().add_late();
}

}  // namespace detail
}  // namespace tessera
