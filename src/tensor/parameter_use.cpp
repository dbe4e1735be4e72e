#include <tensor/parameter_use.h>

#include <array>
#include <utility>

#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <comm/call_cause.h>
#include <tensor/dispatch.h>
#include <tensor/dry_run.h>
#include <tensor/loss_parallel.h>
#include <tensor/wrapper.h>
#include <tessera/layout/notation.h>
#include <tessera/tensor/dtensor.h>
#include <torch/csrc/autograd/graph_task.h>

namespace tessera::detail {

namespace {

using c10::DispatchKeySet;
using c10::OperatorHandle;
using torch::jit::Stack;

/// Where an operator takes its input and its parameter.
struct ParameterRoles {
  const char* name;
  size_t input;
  size_t parameter;
};

constexpr std::array kRoles{
    ParameterRoles{"aten::linear", 0, 1},
    ParameterRoles{"aten::matmul", 0, 1},
    ParameterRoles{"aten::mm", 0, 1},
    ParameterRoles{"aten::addmm", 1, 2},
    ParameterRoles{"aten::embedding", 1, 0},
    ParameterRoles{"aten::layer_norm", 0, 2},
    ParameterRoles{"aten::native_layer_norm", 0, 2},
    ParameterRoles{"aten::rms_norm", 0, 2},
    ParameterRoles{"aten::conv1d", 0, 1},
    ParameterRoles{"aten::conv2d", 0, 1},
    ParameterRoles{"aten::conv3d", 0, 1},
    ParameterRoles{"aten::convolution", 0, 1},
};

// The move that was made last, so that layers that read one tensor (queries,
// keys and values) move it once, and its gradient once.
struct LastMove {
  c10::weak_intrusive_ptr<c10::TensorImpl> source{
      c10::intrusive_ptr<c10::TensorImpl>()};
  uint32_t version = 0;
  Placements target;
  bool grad_mode = false;
  bool requires_grad = false;
  at::Tensor result;
};
thread_local LastMove last_move;

bool is_last_source(const at::Tensor& t) {
  const auto source = last_move.source.lock();
  return source && source.get() == t.unsafeGetTensorImpl() &&
         !t.is_inference() && last_move.version == t._version() &&
         last_move.grad_mode == c10::GradMode::is_enabled() &&
         last_move.requires_grad == t.requires_grad();
}

at::Tensor move_once(const at::Tensor& t, const Placements& target) {
  if (is_last_source(t) && last_move.target == target) {
    return last_move.result;
  }
  at::Tensor result = redistribute(t, target);
  if (!t.is_inference()) {
    last_move = {
        c10::weak_intrusive_ptr<c10::TensorImpl>(t.getIntrusivePtr()),
        static_cast<uint32_t>(t._version()),
        target,
        c10::GradMode::is_enabled(),
        t.requires_grad(),
        result};
  }
  return result;
}

Placement in_tensor(
    const Placement& placement, const at::Tensor& t, const ParameterUse& use) {
  if (!placement.is_shard()) {
    return placement;
  }
  const int64_t dim =
      placement.dim() < 0 ? placement.dim() + t.dim() : placement.dim();
  TORCH_CHECK_INDEX(
      dim >= 0 && dim < t.dim(), use.name, ": the layout ",
      to_string(placement), " needs a dim that the tensor has not; got shape ",
      t.sizes(), "; give the style another layout");
  return placement.with_dim(dim);
}

// A plain tensor is this rank's part in `layout.plain`.
at::Tensor as_sharded(
    const at::Tensor& t, const DeviceMesh& mesh, const UseLayout& layout,
    const ParameterUse& use) {
  if (is_sharded(t)) {
    return t;
  }
  Placements placements(static_cast<size_t>(mesh.ndim()), Replicate());
  placements[static_cast<size_t>(use.mesh_dim)] =
      in_tensor(layout.plain, t, use);
  return from_local(t, mesh, placements);
}

template <class Move>
at::Tensor as_asked(
    const at::Tensor& t, const UseLayout& layout, const ParameterUse& use,
    const Move& move) {
  if (!layout.to) {
    return t;
  }
  Placements placements = spec_of(t).placements();
  Placement& here = placements[static_cast<size_t>(use.mesh_dim)];
  const Placement target = in_tensor(*layout.to, t, use);
  if (layout.from && here != in_tensor(*layout.from, t, use)) {
    return t;
  }
  // What is whole already moves backward: ranks that each use it have addends
  // of its gradient, which are summed up here, once for all that use it.
  if (here == target && !(target.is_replicate() && t.requires_grad())) {
    return t;
  }
  here = target;
  const CallCause cause(use.name, &spec_of(t).mesh());
  return move(t, placements);
}

// A forward pass that is repeated inside a backward pass records again.
bool is_backward() {
  return torch::autograd::get_current_graph_task_id() != -1 &&
         !c10::GradMode::is_enabled();
}

// Runs a call as its parameter asks for; returns false, and does nothing, where
// it does not.
bool run_as_used(const OpCall& call, const ParameterRoles& roles) {
  if (is_backward()) {
    last_move = {};  // would keep the graph
    return false;
  }
  const c10::IValue& taken = call.argument(roles.parameter);
  if (!taken.isTensor() || !is_sharded(taken.toTensor()) ||
      DryRun::current() != nullptr) {
    return false;
  }
  const std::shared_ptr<const ParameterUse> use =
      moving_meta_of(taken.toTensor()).use;
  if (!use) {
    return false;
  }
  const DeviceMesh mesh = spec_of(taken.toTensor()).mesh();
  const c10::impl::ExcludeDispatchKeyGuard once(kUseKey);
  c10::IValue& input = call.argument(roles.input);
  input = as_asked(
      as_sharded(input.toTensor(), mesh, use->input, *use), use->input, *use,
      move_once);
  call.op().callBoxed(call.stack());
  c10::IValue& result =
      (*call.stack())[call.stack()->size() - call.schema().returns().size()];
  const at::Tensor moved = as_asked(
      result.toTensor(), use->output, *use,
      [](const at::Tensor& t, const Placements& target) {
        return redistribute(t, target);
      });
  result = use->local_output ? to_local(moved) : moved;
  return true;
}

template <size_t I>
void use_kernel(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  ensure_registered();
  if (!run_as_used(OpCall(op, stack), kRoles[I])) {
    run_below_use(op, keys, stack);
  }
}

template <size_t... I>
std::vector<c10::BoxedKernel> use_kernels(std::index_sequence<I...>) {
  return {c10::BoxedKernel::makeFromFunction<&use_kernel<I>>()...};
}

}  // namespace

void run_below_use(
    const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  op.redispatchBoxed(
      keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, kUseKey), stack);
}

void set_parameter_use(
    const at::Tensor& parameter, std::shared_ptr<const ParameterUse> use) {
  meta_of(parameter).use = std::move(use);
  add_key(parameter, kUseKey);
}

std::shared_ptr<const ParameterUse> parameter_use(const at::Tensor& parameter) {
  return moving_meta_of(parameter).use;
}

void register_use_kernels(std::vector<c10::RegistrationHandleRAII>& handles) {
  auto& dispatcher = c10::Dispatcher::singleton();
  if (!dispatcher.hasBackendFallbackForDispatchKey(kUseKey)) {
    handles.push_back(dispatcher.registerFallback(
        kUseKey, c10::KernelFunction::makeFallthrough(), "tessera"));
  }
  const auto kernels = use_kernels(std::make_index_sequence<kRoles.size()>());
  const auto add = [&](const char* name, const c10::BoxedKernel& kernel) {
    handles.push_back(dispatcher.registerImpl(
        {name, ""}, kUseKey, c10::KernelFunction::makeFromBoxedKernel(kernel),
        std::nullopt, nullptr, "tessera"));
  };
  for (size_t i = 0; i < kRoles.size(); ++i) {
    add(kRoles[i].name, kernels[i]);
  }
  add("aten::cross_entropy_loss", cross_entropy_kernel());
}

}  // namespace tessera::detail
