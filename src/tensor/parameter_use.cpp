#include <tensor/parameter_use.h>

#include <array>
#include <atomic>
#include <string_view>

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <comm/call_cause.h>
#include <tensor/dispatch.h>
#include <tensor/dry_run.h>
#include <tessera/layout/notation.h>
#include <tessera/tensor/dtensor.h>
#include <torch/csrc/autograd/graph_task.h>

namespace tessera::detail {

namespace {

std::atomic<bool> any_use{false};
thread_local bool is_applying = false;

class Applying {
 public:
  Applying() { is_applying = true; }
  ~Applying() { is_applying = false; }
  Applying(const Applying&) = delete;
  Applying& operator=(const Applying&) = delete;
};

/// Where an operator takes its input and its parameter.
struct Roles {
  std::string_view name;
  size_t input;
  size_t parameter;
};

constexpr std::array kRoles{
    Roles{"aten::linear", 0, 1},
    Roles{"aten::matmul", 0, 1},
    Roles{"aten::mm", 0, 1},
    Roles{"aten::addmm", 1, 2},
    Roles{"aten::embedding", 1, 0},
    Roles{"aten::layer_norm", 0, 2},
    Roles{"aten::native_layer_norm", 0, 2},
    Roles{"aten::rms_norm", 0, 2},
    Roles{"aten::conv1d", 0, 1},
    Roles{"aten::conv2d", 0, 1},
    Roles{"aten::conv3d", 0, 1},
    Roles{"aten::convolution", 0, 1},
};

const Roles* roles_of(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  for (const Roles& roles : kRoles) {
    if (roles.name == name.name && name.overload_name.empty()) {
      return &roles;
    }
  }
  return nullptr;
}

// The move that was made last, so that layers that read one tensor (queries,
// keys and values) move it once, and its gradient once.
struct LastMove {
  c10::weak_intrusive_ptr<c10::TensorImpl> source{
      c10::intrusive_ptr<c10::TensorImpl>()};
  uint32_t version = 0;
  Placements target;
  bool grad_mode = false;
  at::Tensor result;
};
thread_local LastMove last_move;

bool is_last_source(const at::Tensor& t) {
  const auto source = last_move.source.lock();
  return source && source.get() == t.unsafeGetTensorImpl() &&
         !t.is_inference() && last_move.version == t._version() &&
         last_move.grad_mode == c10::GradMode::is_enabled();
}

at::Tensor move_once(const at::Tensor& t, const Placements& target) {
  if (is_last_source(t) && last_move.target == target) {
    return last_move.result;
  }
  at::Tensor result = redistribute(t, target);
  if (!t.is_inference()) {
    last_move = {
        c10::weak_intrusive_ptr<c10::TensorImpl>(t.getIntrusivePtr()),
        static_cast<uint32_t>(t._version()), target,
        c10::GradMode::is_enabled(), result};
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
  if (here == target ||
      (layout.from && here != in_tensor(*layout.from, t, use))) {
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

}  // namespace

void set_parameter_use(
    const at::Tensor& parameter, std::shared_ptr<const ParameterUse> use) {
  if (use) {
    any_use.store(true, std::memory_order_release);
    register_use_kernels();
  }
  meta_of(parameter).use = std::move(use);
}

std::shared_ptr<const ParameterUse> parameter_use(const at::Tensor& parameter) {
  return moving_meta_of(parameter).use;
}

bool may_take_parameter(const c10::OperatorHandle& op) {
  return roles_of(op) != nullptr;
}

bool has_parameter_uses() {
  return any_use.load(std::memory_order_acquire);
}

bool run_as_used(const OpCall& call) {
  if (is_applying || DryRun::current() != nullptr) {
    return false;
  }
  if (is_backward()) {
    last_move = {};  // would keep the graph
    return false;
  }
  const Roles* roles = roles_of(call.op());
  if (roles == nullptr || !call.argument(roles->parameter).isTensor()) {
    return false;
  }
  const at::Tensor parameter = call.argument(roles->parameter).toTensor();
  if (!is_sharded(parameter) || !moving_meta_of(parameter).use) {
    return false;
  }
  const std::shared_ptr<const ParameterUse> use = moving_meta_of(parameter).use;
  const DeviceMesh mesh = spec_of(parameter).mesh();
  const Applying applying;
  c10::IValue& input = call.argument(roles->input);
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

}  // namespace tessera::detail
