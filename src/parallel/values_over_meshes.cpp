#include <parallel/values_over_meshes.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <tensor/dispatch/several_meshes.h>
#include <tessera/comm/world.h>
#include <tessera/tensor/dtensor.h>

namespace tessera::detail::inline parallel_layer {

void ValuesOverMeshes::add(const at::Tensor& tensor, const at::Tensor& value) {
  std::optional<DeviceMesh> mesh;
  Placements placements;
  if (is_dtensor(tensor)) {
    mesh = spec(tensor).mesh();
    for (const Placement& p : spec(tensor).placements()) {
      placements.push_back(
          p.is_shard() || copies_ ? Partial(op_) : Replicate());
    }
  }
  for (Group& group : groups_) {
    if (group.mesh == mesh && group.placements == placements) {
      group.value = merged(group.value, value);
      return;
    }
  }
  groups_.push_back({std::move(mesh), placements, value});
}

at::Tensor ValuesOverMeshes::merged(
    const at::Tensor& a, const at::Tensor& b) const {
  return op_ == ReduceOp::kMax ? at::maximum(a, b) : a + b;
}

at::Tensor ValuesOverMeshes::take(
    const std::optional<Communicator>& stages) const {
  std::vector<DeviceMesh> meshes;
  for (const Group& group : groups_) {
    if (group.mesh) {
      meshes.push_back(*group.mesh);
    }
  }
  at::Tensor total;
  for (const Group& group : groups_) {
    at::Tensor value = group.value;
    if (group.mesh) {
      const at::Tensor sum = from_local(
          value, *group.mesh, group.placements,
          {.shape = std::vector<int64_t>()});
      // Ranks outside of a mesh, which are on another one, hear of its value.
      const DeviceMesh all = common_mesh(meshes);
      const bool all_know = root_of(*group.mesh).size() == all.size();
      value = all_know ? full_tensor(sum) : to_local(value_on(sum, all));
    }
    total = total.defined() ? merged(total, value) : value;
  }
  return stages ? over_stages(total, *stages) : total;
}

at::Tensor ValuesOverMeshes::over_stages(
    const at::Tensor& mine, const Communicator& stages) const {
  TORCH_CHECK_VALUE(
      stages.defined(), "stages, rank ", rank(),
      ": the communicator is undefined; pass one with a rank of each stage, as "
      "mesh.communicator(\"pp\")");
  const auto options = (mine.defined() ? mine.options() : at::TensorOptions())
                           .dtype(at::kDouble);
  const at::Tensor one = mine.defined() ? mine.to(at::kDouble).reshape({1})
                                        : at::zeros({1}, options);
  const at::Tensor all = at::empty({stages.size()}, options);
  stages.all_gather(all, one);
  at::Tensor total = all[0];
  for (int64_t i = 1; i < stages.size(); ++i) {
    total = merged(total, all[i]);
  }
  return total;
}

namespace {

// A rank that no mesh holds cannot take part: the others do not know of it.
void check_is_on_a_mesh(
    const char* call, const std::vector<at::Tensor>& gradients) {
  const DTensorSpec* outside = nullptr;
  bool inside = false;
  for (const at::Tensor& gradient : gradients) {
    if (is_dtensor(gradient)) {
      inside = inside || spec(gradient).has_shard();
      outside = spec(gradient).has_shard() ? outside : &spec(gradient);
    }
  }
  TORCH_CHECK_VALUE(
      inside || outside == nullptr, call, ": this rank is outside of ",
      to_string(outside->mesh()),
      ", on which the gradients are; call it on the mesh's own ranks");
}

}  // namespace

std::vector<at::Tensor> reduced_gradients(
    const char* call, const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) {
      gradients.push_back(parameter.grad());
    }
  }
  check_is_on_a_mesh(call, gradients);
  gradients.clear();
  for (const at::Tensor& parameter : parameters) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) {
      continue;
    }
    if (is_dtensor(gradient) && spec(gradient).layout().has_partial()) {
      gradient = redistribute(gradient, placements(parameter));
    }
    gradients.push_back(gradient);
  }
  return gradients;
}

}  // namespace tessera::detail::inline parallel_layer
