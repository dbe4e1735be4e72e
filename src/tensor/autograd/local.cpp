// from_local, to_local, redistribute, full_tensor as differentiable functions.
// Each backward is written with these same functions, so derivatives of any
// order exist.
#include <tensor/autograd/local.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <comm/log/call_cause.h>
#include <comm/mesh_device.h>
#include <comm/this_rank.h>
#include <tensor/autograd/leaf_gradient.h>
#include <tensor/autograd/local_gradient.h>
#include <tensor/checks/agreement.h>
#include <tensor/checks/gradient_check.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/impl/wrap.h>
#include <tensor/move/kept_moves.h>
#include <tensor/move/plan_cache.h>
#include <tensor/move/redistribute_shard.h>
#include <tensor/move/view_copies.h>
#include <tensor/state/describe_call.h>
#include <tensor/state/replicated.h>
#include <tensor/state/strides.h>
#include <tensor/state/torch_compat.h>
#include <tessera/layout/notation.h>
#include <tessera/tensor/dtensor.h>
#include <torch/csrc/autograd/functions/utils.h>

namespace tessera {

using detail::is_sharded;
using detail::spec_of;
using torch::autograd::variable_list;

namespace {

// A gradient that ATen's formulas made plain is equal on all ranks.
at::Tensor as_sharded(const at::Tensor& gradient, const DeviceMesh& mesh) {
  return is_sharded(gradient)
             ? gradient
             : from_local(gradient, mesh, detail::replicated(mesh));
}

// Records `NodeType(arguments...)` as the history of `output`, where `input`
// needs a gradient.
template <class NodeType, class... Arguments>
void record(
    const at::Tensor& output, const at::Tensor& input,
    Arguments&&... arguments) {
  if (!torch::autograd::compute_requires_grad(input)) {
    return;
  }
  auto node =
      detail::make_node<NodeType>(std::forward<Arguments>(arguments)...);
  node->set_next_edges(torch::autograd::collect_next_edges(input));
  if (is_sharded(input)) {
    detail::install_leaf_hook(input);
  }
  torch::autograd::set_history(output, node);
}

struct FromLocalBackward final : torch::autograd::Node {
  FromLocalBackward(SpecPtr of, detail::LocalGradient as)
      : spec(std::move(of)), local(std::move(as)) {}
  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined()) {
      return {at::Tensor()};
    }
    const detail::CallCause cause("gradient of from_local", &spec->mesh());
    detail::check_known("backward of from_local", local, *spec);
    const at::Tensor gradient = to_local(
        redistribute(as_sharded(gradients[0], spec->mesh()), local.placements));
    return {local.scale == 1 ? gradient : gradient.div(local.scale)};
  }
  SpecPtr spec;
  detail::LocalGradient local;
};

struct ToLocalBackward final : torch::autograd::Node {
  ToLocalBackward(SpecPtr of, detail::LocalGradient as)
      : spec(std::move(of)), local(std::move(as)) {}
  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined()) {
      return {at::Tensor()};
    }
    detail::check_known("backward of to_local", local, *spec);
    const at::Tensor gradient = in_format_of_tensor(
        local.scale == 1 ? gradients[0] : gradients[0].mul(local.scale));
    if (detail::checks_gradients()) {
      detail::check_gradient(
          gradient, "the gradient of to_local() of " +
                        detail::name_of_source(next_edge(0), *spec));
    }
    return {gradient};
  }

  // Gradients may lie differently on the ranks, which must say the same of the
  // sharded one: that it lies as the tensor does.
  at::Tensor in_format_of_tensor(const at::Tensor& gradient) const {
    const std::vector<int64_t>& shape = spec->shape();
    const std::vector<int64_t> strides = detail::strides_in_format(
        shape, spec->strides(), c10::MemoryFormat::Preserve);
    const bool row_major = strides == detail::contiguous_strides(shape);
    return from_local(
        row_major || !spec->has_shard()
            ? gradient
            : detail::arranged(
                  gradient,
                  detail::shard_strides(gradient.sizes(), shape, strides)),
        spec->mesh(), local.placements, {.shape = shape, .stride = strides});
  }

  SpecPtr spec;
  detail::LocalGradient local;
};

// Brings the gradient to the source's mesh and placements, in the dtype that
// was asked for. Where the source is Partial, every partial value has the
// gradient of the sum: a whole gradient stays whole.
struct RedistributeBackward final : torch::autograd::Node {
  RedistributeBackward(SpecPtr from, DeviceMesh to, c10::ScalarType sent_dtype)
      : source(std::move(from)),
        mesh(std::move(to)),
        dtype(sent_dtype),
        name("gradient of " + detail::CallCause::current()->name()) {}
  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined()) {
      return {at::Tensor()};
    }
    const detail::CallCause cause(name, &mesh);
    const at::Tensor gradient = as_sharded(gradients[0], mesh).to(dtype);
    const bool moves_mesh = !(mesh == source->mesh());
    Placements target = source->placements();
    for (size_t m = 0; m < target.size(); ++m) {
      if (target[m].is_partial() &&
          (moves_mesh || !spec_of(gradient).placements()[m].is_partial())) {
        target[m] = Replicate();
      }
    }
    return {redistribute(gradient, source->mesh(), target).to(source->dtype())};
  }
  SpecPtr source;
  DeviceMesh mesh;  // of the result
  c10::ScalarType dtype;
  std::string name;  // as a cause
};

// The global shape when every shard is as large as this one.
std::vector<int64_t> even_shape(
    const at::Tensor& local, const DeviceMesh& mesh,
    const Placements& placements) {
  std::vector<int64_t> shape = local.sizes().vec();
  const auto ndim = static_cast<int64_t>(shape.size());
  for (size_t m = 0; m < placements.size(); ++m) {
    const Placement& p = placements[m];
    if (!p.is_shard()) {
      continue;
    }
    const int64_t dim = p.resolved(ndim).dim();
    TORCH_CHECK_INDEX(
        dim >= 0 && dim < ndim, detail::describe_call("from_local", mesh), ": ",
        to_string(p), " does not fit a local tensor of ", ndim, " dims");
    int64_t& size = shape[static_cast<size_t>(dim)];
    size = p.fits_any_size() ? size * mesh.size(static_cast<int64_t>(m))
                             : p.begins().back();
  }
  return shape;
}

// Tells whether even_shape() knows less of other ranks' shards than it says.
bool takes_shards_for_equal(const Layout& layout) {
  for (size_t m = 0; m < layout.placements().size(); ++m) {
    const Placement& p = layout.placements()[m];
    if (p.is_shard() && p.fits_any_size() &&
        layout.mesh().size(static_cast<int64_t>(m)) > 1) {
      return true;
    }
  }
  return false;
}

// The strides follow from the local tensor; see Note [How shards lie in
// memory], strides.h.
SpecPtr spec_of_local(
    const at::Tensor& local, const DeviceMesh& mesh,
    const Placements& placements, const FromLocalOptions& options) {
  TORCH_CHECK_VALUE(
      static_cast<int64_t>(placements.size()) == mesh.ndim(),
      detail::describe_call("from_local", mesh),
      ": one placement per mesh dim is needed; got ", placements.size(), " (",
      to_string(placements), ") for ", mesh.ndim());
  TORCH_CHECK_VALUE(
      options.shape || !options.stride,
      detail::describe_call("from_local", mesh),
      ": stride is given without shape; give both");
  TORCH_CHECK_VALUE(
      !options.stride ||
          (options.stride->size() == options.shape->size() &&
           detail::is_non_overlapping(*options.shape, *options.stride)),
      detail::describe_call("from_local", mesh),
      ": the strides must give every element memory of its own; got ",
      shape_to_string(*options.stride), " for shape ",
      shape_to_string(*options.shape),
      "; leave .stride out for those that follow from the local tensor");
  const std::vector<int64_t> shape =
      options.shape ? *options.shape : even_shape(local, mesh, placements);
  const std::vector<int64_t> strides =
      options.stride
          ? *options.stride
          : detail::strides_of_unsharded(shape, local.sizes(), local.strides());
  const SpecPtr spec =
      DTensorSpec::make(mesh, placements, shape, strides, local.scalar_type());
  TORCH_CHECK_VALUE(
      !spec->has_shard() ||
          local.sizes() == at::IntArrayRef(spec->local_shape()),
      detail::describe_call("from_local", mesh),
      ": the local tensor does not fit ", to_string(*spec), "; got ",
      local.sizes(), ", expected ", shape_to_string(spec->local_shape()),
      options.shape ? "" : "; pass .shape for uneven shards");
  return spec;
}

}  // namespace

at::Tensor from_local(
    const at::Tensor& local, const DeviceMesh& mesh,
    const Placements& placements, const FromLocalOptions& options) {
  TORCH_CHECK_VALUE(
      local.defined(), detail::describe_call("from_local", mesh),
      ": the tensor is undefined");
  TORCH_CHECK_VALUE(
      !is_sharded(local), detail::describe_call("from_local", mesh),
      ": the local tensor is sharded already; use redistribute()");
  TORCH_CHECK_NOT_IMPLEMENTED(
      local.layout() == at::kStrided, detail::describe_call("from_local", mesh),
      ": only strided tensors can be sharded; got layout ", local.layout());
  const bool moves =
      local.device().type() != mesh.device_type() && !local.is_meta();
  if (moves) {
    detail::check_mesh_device("from_local", mesh);
  }
  const at::Tensor here =
      moves ? local.to(c10::Device(mesh.device_type())) : local;
  const SpecPtr spec = spec_of_local(here, mesh, placements, options);
  if (!options.shape && takes_shards_for_equal(spec->layout())) {
    detail::note_equal_shards();
  }
  detail::LocalGradient gradient =
      detail::local_gradient("from_local", *spec, options.grad_placements);
  const detail::CallCause cause("from_local", &mesh);
  if (options.run_check && spec->has_shard()) {
    detail::check_agreement(here, spec);
  }
  at::Tensor shard =
      spec->has_shard() ? here.detach() : at::empty({0}, here.options());
  at::Tensor result;
  if (spec->is_replicated() && spec->has_shard()) {
    result = detail::wrap_replicated(shard, mesh);
  } else {
    result = detail::wrap(shard, spec);
  }
  record<FromLocalBackward>(result, here, spec, std::move(gradient));
  return result;
}

at::Tensor to_local(const at::Tensor& tensor, const ToLocalOptions& options) {
  const DTensorSpec& spec = tessera::spec(tensor);
  const detail::CallCause cause("to_local", &spec.mesh());
  detail::LocalGradient gradient =
      detail::local_gradient("to_local", spec, options.grad_placements);
  const auto& meta = detail::meta_ready(tensor);
  if (const auto& memory = meta.state().memory) {
    memory->hand_out();
  }
  // A view into a gathered copy is not this rank's memory: hand out a copy.
  at::Tensor local =
      meta.copy ? detail::refreshed_shard(tensor).clone() : meta.local.detach();
  record<ToLocalBackward>(local, tensor, meta.spec, std::move(gradient));
  return local;
}

namespace {

void check_world(const DTensorSpec& source, const DeviceMesh& mesh) {
  TORCH_CHECK_VALUE(
      source.mesh().world() == mesh.world(),
      detail::describe_call("redistribute", mesh),
      ": both meshes must belong to one world; got ", to_string(source), " of ",
      source.mesh().world().size(), " ranks and a mesh of a world of ",
      mesh.world().size());
}

// Moves the shard below autograd.
at::Tensor redistribute_local(
    const at::Tensor& tensor, const DeviceMesh& mesh,
    const Placements& placements, const RedistributeOptions& options) {
  at::AutoDispatchBelowADInplaceOrView below;
  SpecPtr source = detail::meta_nowait(tensor).spec;
  const bool to_other_devices =
      mesh.device_type() != source->mesh().device_type();
  if (to_other_devices) {
    detail::check_mesh_device("redistribute", mesh);
  }
  at::Tensor local = detail::refreshed_shard(tensor);
  if (options.forward_dtype && *options.forward_dtype != source->dtype()) {
    source = source->with_dtype(*options.forward_dtype);
    local = local.to(*options.forward_dtype);
  }
  auto plan = detail::prepared_plan(*source, mesh, placements);
  if (mesh == source->mesh() &&
      plan->target->layout() == spec_of(tensor).layout() &&
      plan->target->dtype() == spec_of(tensor).dtype()) {
    // Equal placements, spelled differently.
    return detail::wrap_shared(tensor);
  }
  detail::MovingShard moving = detail::KeptMoves::start(plan, local);
  const bool waits = !options.async || to_other_devices;
  at::Tensor shard = waits ? moving.wait() : moving.shard();
  if (to_other_devices) {
    shard = shard.to(c10::Device(mesh.device_type()));
  }
  if (shard.is_alias_of(detail::meta_nowait(tensor).local)) {
    shard = shard.clone();
  }
  at::Tensor result = detail::wrap(shard, plan->target);
  if (!waits && !moving.is_complete()) {
    detail::meta_nowait(result).change().pending =
        std::make_shared<detail::PendingPlan>(plan, std::move(moving));
  }
  return result;
}

// Records the move as history.
at::Tensor redistributed(
    const at::Tensor& tensor, const DeviceMesh& mesh,
    const Placements& placements, const RedistributeOptions& options) {
  const bool same = placements == spec_of(tensor).placements() &&
                    !options.forward_dtype && &mesh == &spec_of(tensor).mesh();
  at::Tensor result =
      same ? detail::wrap_shared(tensor)
           : redistribute_local(tensor, mesh, placements, options);
  const SpecPtr& source = detail::meta_nowait(tensor).spec;
  record<RedistributeBackward>(
      result, tensor, source, mesh,
      options.backward_dtype.value_or(source->dtype()));
  return result;
}

// Note [Sub-meshes]
// Ranks name different meshes when each names the slice that holds it. Every
// slice then gets a copy of the tensor: it is replicated along the dims that
// the slice has not, and these are dropped. The other way round, the copies of
// all slices, which are equal, become one tensor that is replicated in those
// dims.

// Returns the dims of a mesh that a slice of it has; nothing where it is none.
std::optional<std::vector<size_t>> dims_of_slice(
    const DeviceMesh& slice, const DeviceMesh& mesh) {
  const auto& names = mesh.dim_names();
  if (names.empty() || slice.ndim() >= mesh.ndim() || !mesh.coordinate() ||
      detail::root_of(slice) != detail::root_of(mesh)) {
    return std::nullopt;
  }
  std::vector<size_t> dims;
  for (const std::string& name : slice.dim_names()) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      return std::nullopt;
    }
    dims.push_back(static_cast<size_t>(found - names.begin()));
  }
  return mesh.slice(slice.dim_names()) == slice ? std::optional(dims)
                                                : std::nullopt;
}

Placements placements_in(
    const DeviceMesh& mesh, const std::vector<size_t>& dims,
    const Placements& of_slice) {
  Placements all(static_cast<size_t>(mesh.ndim()), Replicate());
  for (size_t i = 0; i < dims.size(); ++i) {
    all[dims[i]] = of_slice[i];
  }
  return all;
}

// The same shard as that of another mesh.
at::Tensor shown_on(
    const at::Tensor& tensor, const DeviceMesh& mesh,
    const Placements& placements) {
  const DTensorSpec& source = spec_of(tensor);
  return from_local(
      to_local(tensor), mesh, placements,
      {.shape = source.shape(), .stride = source.strides()});
}

// Returns the tensor on a slice of its mesh, or on the mesh that its own is a
// slice of; nothing where neither is so.
at::Tensor redistributed_to_relative(
    const at::Tensor& tensor, const DeviceMesh& mesh,
    const Placements& placements, const RedistributeOptions& options) {
  const DeviceMesh from = spec_of(tensor).mesh();
  if (const auto dims = dims_of_slice(mesh, from)) {
    return shown_on(
        redistributed(
            tensor, from, placements_in(from, *dims, placements), options),
        mesh, placements);
  }
  if (const auto dims = dims_of_slice(from, mesh)) {
    return redistributed(
        shown_on(
            tensor, mesh,
            placements_in(mesh, *dims, spec_of(tensor).placements())),
        mesh, placements, options);
  }
  return {};
}

}  // namespace

at::Tensor redistribute(
    const at::Tensor& tensor, const Placements& placements,
    const RedistributeOptions& options) {
  const DeviceMesh& mesh = tessera::spec(tensor).mesh();
  const detail::CallCause cause("redistribute", &mesh);
  return redistributed(tensor, mesh, placements, options);
}

at::Tensor redistribute(
    const at::Tensor& tensor, const DeviceMesh& mesh,
    const Placements& placements, const RedistributeOptions& options) {
  const DTensorSpec& source = tessera::spec(tensor);
  if (mesh == source.mesh()) {
    return redistribute(tensor, placements, options);
  }
  check_world(source, mesh);
  const detail::CallCause cause("redistribute", &mesh);
  at::Tensor relative =
      redistributed_to_relative(tensor, mesh, placements, options);
  return relative.defined() ? relative
                            : redistributed(tensor, mesh, placements, options);
}

at::Tensor full_tensor(
    const at::Tensor& tensor, const ToLocalOptions& options) {
  const DTensorSpec& spec = tessera::spec(tensor);
  const detail::CallCause cause("full_tensor", &spec.mesh());
  TORCH_CHECK_VALUE(
      spec.has_shard(), "full_tensor(", to_string(spec), "), rank ",
      spec.mesh().world().rank(),
      ": this rank is outside the mesh and holds no part; ask on a rank of it");
  return to_local(
      redistribute(tensor, detail::replicated(spec.mesh())), options);
}

at::Tensor detail::as_replicated(
    const at::Tensor& result, const DeviceMesh& mesh) {
  if (!result.defined() || is_sharded(result)) {
    return result;
  }
  return from_local(result, mesh, replicated(mesh));
}

}  // namespace tessera
