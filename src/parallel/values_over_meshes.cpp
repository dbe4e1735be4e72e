#include <parallel/values_over_meshes.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <tensor/dispatch/several_meshes.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/move/view_copies.h>
#include <tessera/comm/world.h>
#include <tessera/tensor/dtensor.h>

namespace tessera::detail::inline parallel_layer {

bool ValuesOverMeshes::holds(
    const Group& group, const at::Tensor& tensor) const {
  if (!is_sharded(tensor)) {
    return !group.mesh && group.device == tensor.device();
  }
  const DTensorSpec& spec = spec_of(tensor);
  if (!group.mesh || *group.mesh != spec.mesh()) {
    return false;
  }
  const Placements& placements = spec.placements();
  for (size_t i = 0; i < placements.size(); ++i) {
    if (group.reduces[i] != reduces(placements[i])) {
      return false;
    }
  }
  return true;
}

ValuesOverMeshes::Group& ValuesOverMeshes::group_of(const at::Tensor& tensor) {
  for (Group& group : groups_) {
    if (holds(group, tensor)) {
      return group;
    }
  }
  Group& made = groups_.emplace_back(Group{.device = tensor.device()});
  if (is_sharded(tensor)) {
    made.mesh = spec_of(tensor).mesh();
    for (const Placement& p : spec_of(tensor).placements()) {
      made.reduces.push_back(reduces(p));
    }
  }
  return made;
}

void ValuesOverMeshes::add(
    const std::vector<at::Tensor>& tensors, const ValueFn& value_of) {
  for (const at::Tensor& tensor : tensors) {
    group_of(tensor).shards.push_back(
        is_sharded(tensor) ? refreshed_shard(tensor) : tensor);
  }
  for (Group& group : groups_) {
    if (!group.shards.empty()) {
      const at::Tensor value = value_of(group.shards);
      group.value = group.value.defined() ? merged(group.value, value) : value;
      group.shards.clear();
    }
  }
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
      Placements placements;
      for (const bool each : group.reduces) {
        placements.push_back(each ? Partial(op_) : Replicate());
      }
      const at::Tensor sum = from_local(
          value, *group.mesh, placements, {.shape = std::vector<int64_t>()});
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
    if (is_sharded(gradient) && spec_of(gradient).layout().has_partial()) {
      gradient = redistribute(gradient, placements(parameter));
    }
    gradients.push_back(gradient);
  }
  return gradients;
}

void scale_gradients(const std::vector<at::Tensor>& gradients, double factor) {
  std::vector<at::Tensor> shards;
  for (const at::Tensor& gradient : gradients) {
    if (!is_sharded(gradient)) {
      shards.push_back(gradient);
    } else if (const ShardedMeta& meta = meta_ready(gradient); !meta.copy) {
      shards.push_back(meta.local);
    } else {
      gradient.mul_(factor);  // shows a copy, which is written back
    }
  }
  if (shards.empty()) {
    return;
  }
  // Without autograd's kernels, of which only the count of writes matters here.
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  at::_foreach_mul_(shards, factor);
  for (const at::Tensor& shard : shards) {
    shard.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace tessera::detail::inline parallel_layer
