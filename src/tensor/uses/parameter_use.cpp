#include <tensor/uses/parameter_use.h>

#include <algorithm>
#include <utility>

#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <comm/log/call_cause.h>
#include <tensor/call/observer.h>
#include <tensor/call/op_traits.h>
#include <tensor/checks/replication_check.h>
#include <tensor/deferred/record.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/impl/wrap.h>
#include <tensor/state/dispatch_keys.h>
#include <tensor/state/late_operators.h>
#include <tensor/state/plain_is_replicated.h>
#include <tensor/state/thread_state.h>
#include <tensor/uses/member_use.h>
#include <tessera/layout/notation.h>
#include <tessera/tensor/dtensor.h>
#include <torch/csrc/autograd/graph_task.h>

namespace tessera::detail::inline tensor_layer {

namespace {

using c10::DispatchKeySet;
using c10::OperatorHandle;
using torch::jit::Stack;

// The move that was made last, so that layers that read one tensor (queries,
// keys and values) move it once, and its gradient once. Who asks again begins
// another pass: the tensor may have been filled anew, by ways that leave no
// trace.
struct LastMove {
  c10::weak_intrusive_ptr<c10::TensorImpl> source{
      c10::intrusive_ptr<c10::TensorImpl>()};
  uint32_t version = 0;
  Placements target;
  bool grad_mode = false;
  bool requires_grad = false;
  std::vector<const ParameterUse*> served;
  at::Tensor result;
};
LastMove& last_move() {
  static thread_local LastMove move;
  return move;
}

bool is_last_source(const at::Tensor& t, const ParameterUse& use) {
  const auto source = last_move().source.lock();
  const auto& served = last_move().served;
  return source && source.get() == t.unsafeGetTensorImpl() &&
         !t.is_inference() && last_move().version == t._version() &&
         last_move().grad_mode == c10::GradMode::is_enabled() &&
         last_move().requires_grad == t.requires_grad() &&
         std::find(served.begin(), served.end(), &use) == served.end();
}

at::Tensor move_once(
    const at::Tensor& t, const Placements& target, const ParameterUse& use) {
  if (is_last_source(t, use) && last_move().target == target) {
    last_move().served.push_back(&use);
    return last_move().result;
  }
  at::Tensor result = redistribute(t, target);
  if (!t.is_inference()) {
    last_move() = {
        .source = c10::weak_intrusive_ptr<c10::TensorImpl>(t.getIntrusivePtr()),
        .version = static_cast<uint32_t>(t._version()),
        .target = target,
        .grad_mode = c10::GradMode::is_enabled(),
        .requires_grad = t.requires_grad(),
        .served = {&use},
        .result = result};
  }
  return result;
}

// Returns the placement with its dim counted from the front; nothing where the
// tensor has no such dim.
std::optional<Placement> in_tensor(
    const Placement& placement, const at::Tensor& t) {
  if (!placement.is_shard()) {
    return placement;
  }
  const Placement p = placement.resolved(t.dim());
  return p.dim() >= 0 && p.dim() < t.dim() ? std::optional(p) : std::nullopt;
}

Placement target_in(
    const Placement& placement, const at::Tensor& t, const ParameterUse& use) {
  const auto found = in_tensor(placement, t);
  TORCH_CHECK_INDEX(
      found.has_value(), use.name, ": the layout ", to_string(placement),
      " needs a dim that the tensor has not; got shape ", t.sizes(),
      "; give the style another layout");
  return *found;
}

// A plain tensor is this rank's part; what it is in other mesh dims is not
// known.
at::Tensor as_sharded(
    const at::Tensor& t, const DeviceMesh& mesh, const ParameterUse& use) {
  if (is_sharded(t)) {
    TORCH_CHECK_VALUE(
        spec_of(t).mesh() == mesh, use.name, ": the input is on ",
        to_string(spec_of(t).mesh()), ", the parameter on ", to_string(mesh),
        "; bring both onto one mesh");
    return t;
  }
  Placements placements(static_cast<size_t>(mesh.ndim()), Replicate());
  if (!PlainIsReplicated::active()) {
    TORCH_CHECK_VALUE(
        use.plain_input && mesh.size() == mesh.size(use.mesh_dim), use.name,
        " on ", to_string(mesh),
        ": the input is plain, and what it is in other dims ",
        "of the mesh is not known; got shape ", t.sizes(),
        "; from_local() or distribute_tensor() it, or hold a "
        "tessera::ImplicitReplication where it is equal on all ranks");
    placements[static_cast<size_t>(use.mesh_dim)] =
        target_in(*use.plain_input, t, use);
  }
  const bool is_unsharded =
      placements[static_cast<size_t>(use.mesh_dim)].is_replicate();
  if (checks_replication() && is_unsharded &&
      !PlainIsReplicated::by_construction()) {
    check_replication(
        use.name + " on " + to_string(mesh), {{"the input", t}}, mesh);
  }
  return from_local(t, mesh, placements);
}

// A replicated input is redistributed too, for its gradient: ranks that each
// use it have partial values of that, which are summed up here, once for all
// that use it.
bool needs_no_move(
    const at::Tensor& t, const Placement& here, const Placement& target) {
  return here == target && !(target.is_replicate() && t.requires_grad());
}

template <class Move>
at::Tensor take_steps(
    at::Tensor t, const std::vector<UseStep>& steps, const ParameterUse& use,
    const Move& move) {
  for (const UseStep& step : steps) {
    Placements placements = spec_of(t).placements();
    Placement& here = placements[static_cast<size_t>(use.mesh_dim)];
    if (step.from && in_tensor(*step.from, t) != here) {
      continue;
    }
    const Placement target = target_in(step.to, t, use);
    if (!needs_no_move(t, here, target)) {
      here = target;
      const CallCause cause(use.name, &spec_of(t).mesh());
      t = move(t, placements);
    }
  }
  return t;
}

// Brings the inputs of a layer to the dtype of a gathered parameter.
void cast_inputs(const OpCall& call, const ParameterRoles& roles) {
  const at::Tensor parameter = call.argument(roles.parameter).toTensor();
  const auto& memory = meta_nowait(parameter).state().memory;
  if (!memory || !memory->casts_inputs() ||
      roles.kind == ParameterRoles::Kind::kScale) {
    return;
  }
  call.map_argument_tensors([&](const at::Tensor& t) {
    const bool casts = t.defined() && t.is_floating_point() &&
                       t.scalar_type() != parameter.scalar_type();
    return casts ? t.to(parameter.scalar_type()) : t;
  });
}

// A forward pass that is repeated inside a backward pass records again.
bool is_backward() {
  return torch::autograd::get_current_graph_task_id() != -1 &&
         !c10::GradMode::is_enabled();
}

// Returns what the parameter of a call asks for, or nullptr.
std::shared_ptr<const ParameterUse> use_in(
    const OpCall& call, const ParameterRoles& roles) {
  const c10::IValue& taken = call.argument(roles.parameter);
  if (!taken.isTensor() || !is_sharded(taken.toTensor())) {
    return nullptr;
  }
  const at::Tensor parameter = taken.toTensor();
  std::shared_ptr<const ParameterUse> use = meta_nowait(parameter).state().use;
  if (use && roles.kind == ParameterRoles::Kind::kScale) {
    const at::Tensor input = call.argument(roles.input).toTensor();
    return use->scales && input.dim() > parameter.dim() ? use : nullptr;
  }
  const bool looks_up = roles.kind == ParameterRoles::Kind::kLookup;
  return use && use->lookup && looks_up ? use->lookup : use;
}

// Runs a call as its parameter asks for; returns false, and does nothing, where
// it does not.
bool run_as_used(const OpCall& call) {
  if (is_backward()) {
    forget_last_move();  // would keep the graph
    return false;
  }
  const ParameterRoles& roles = traits_of(call.op()).roles;
  const auto use = use_in(call, roles);
  if (!use || CallObserver::current() != nullptr) {
    return false;
  }
  const DeviceMesh mesh =
      spec_of(call.argument(roles.parameter).toTensor()).mesh();
  const c10::impl::ExcludeDispatchKeyGuard once(kUseKey);
  cast_inputs(call, roles);
  c10::IValue& input = call.argument(roles.input);
  input = take_steps(
      as_sharded(input.toTensor(), mesh, *use), use->input, *use,
      [&](const at::Tensor& t, const Placements& target) {
        return move_once(t, target, *use);
      });
  call.op().callBoxed(call.stack());
  c10::IValue& result =
      (*call.stack())[call.stack()->size() - call.schema().returns().size()];
  result = take_steps(
      result.toTensor(), use->output, *use,
      [](const at::Tensor& t, const Placements& target) {
        return redistribute(t, target);
      });
  return true;
}

// Under a DeferredInit the key is on for the thread: not for what this call is
// made of, which is about tensors that exist.
void pass_on(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  std::optional<c10::impl::ExcludeDispatchKeyGuard> off;
  if (ThreadState::here().deferrals > 0) {
    off.emplace(kUseKey);
  }
  op.redispatchBoxed(
      keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, kUseKey), stack);
}

void use_kernel(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  ensure_registered();
  if (record_call(op, stack)) {
    return;
  }
  const OpCall call(op, stack);
  use_members(call);
  if (!traits_of(op).run_as_used(call)) {
    pass_on(op, keys, stack);
  }
}

// Operators that ask for nothing by themselves.
void other_kernel(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  if (!record_call(op, stack)) {
    use_members(OpCall(op, stack));
    pass_on(op, keys, stack);
  }
}

}  // namespace

void set_parameter_use(
    const at::Tensor& parameter, std::shared_ptr<const ParameterUse> use) {
  meta_ready(parameter).change().use = std::move(use);
  add_key(parameter, kUseKey);
}

std::shared_ptr<const ParameterUse> parameter_use(const at::Tensor& parameter) {
  return meta_nowait(parameter).state().use;
}

void forget_last_move() {
  last_move() = {};
}

void keep_use(const at::Tensor& from, const at::Tensor& to) {
  if (!is_sharded(from) || !is_sharded(to) || from.is_same(to)) {
    return;
  }
  const MetaState& state = meta_nowait(from).state();
  meta_nowait(to).change().unreduced_dim = state.unreduced_dim;
  if (state.use) {
    set_parameter_use(to, state.use);
  }
  if (state.member) {
    set_member(to, state.member);
  }
}

namespace {

// Second tensors over one shard ask for nothing and cost nothing here; those of
// a deferred tensor are found by the storage they share.
void pass_aliases(std::vector<c10::RegistrationHandleRAII>& handles) {
  for (const c10::OperatorName& name :
       {c10::OperatorName("aten::alias", ""), {"aten::detach", ""}}) {
    handles.push_back(c10::Dispatcher::singleton().registerImpl(
        name, kUseKey, c10::KernelFunction::makeFallthrough(), std::nullopt,
        nullptr, "tessera"));
  }
}

}  // namespace

void register_use_kernels(std::vector<c10::RegistrationHandleRAII>& handles) {
  auto& dispatcher = c10::Dispatcher::singleton();
  pass_aliases(handles);
  if (!dispatcher.hasBackendFallbackForDispatchKey(kUseKey)) {
    handles.push_back(dispatcher.registerFallback(
        kUseKey, c10::KernelFunction::makeFromBoxedFunction<&other_kernel>(),
        "tessera"));
  }
  for (const auto& [name, entry] : op_registry().entries()) {
    if (entry.run_as_used != nullptr) {
      handles.push_back(dispatcher.registerImpl(
          name, kUseKey,
          c10::KernelFunction::makeFromBoxedFunction<&use_kernel>(),
          std::nullopt, nullptr, "tessera"));
    }
  }
}

void add_parameter_uses(OpRegistry& ops) {
  using Kind = ParameterRoles::Kind;
  const auto add = [&](const char* name, const ParameterRoles& roles) {
    ops.at(name).run_as_used = run_as_used;
    ops.at(name).roles = roles;
  };
  for (const char* name :
       {"aten::linear", "aten::matmul", "aten::mm", "aten::conv1d",
        "aten::conv2d", "aten::conv3d", "aten::conv1d.padding",
        "aten::conv2d.padding", "aten::conv3d.padding", "aten::convolution"}) {
    add(name, {.input = 0, .parameter = 1});
  }
  for (const char* name :
       {"aten::layer_norm", "aten::native_layer_norm", "aten::rms_norm"}) {
    add(name, {.input = 0, .parameter = 2});
  }
  add("aten::addmm", {.input = 1, .parameter = 2});
  add("aten::embedding", {.input = 1, .parameter = 0, .kind = Kind::kLookup});
  add("aten::mul.Tensor", {.input = 0, .parameter = 1, .kind = Kind::kScale});
}

}  // namespace tessera::detail::inline tensor_layer
