#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <comm/log/call_cause.h>
#include <sharded_tensor/module/module_members.h>
#include <sharded_tensor/module/parameter_plan.h>
#include <sharded_tensor/tensor/agreement.h>
#include <sharded_tensor/tensor/infer_mesh.h>
#include <tensor/api/in_place.h>
#include <tessera/comm/world.h>
#include <tessera/layout/notation.h>
#include <tessera/sharded_tensor/shard_module.h>
#include <tessera/tensor/dtensor.h>
#include <tessera/tensor/gradient_check.h>
#include <torch/nn/module.h>

namespace tessera::detail::inline sharded_tensor_layer {

using sharded_tensor::ProcessGroup;
using sharded_tensor::ShardedTensor;
using sharded_tensor::ShardingSpec;
using sharded_tensor::TensorProperties;

ParameterPlan plan_parameter(
    const char* call, const torch::nn::Module& module, const std::string& name,
    const ShardingSpec& spec, const ProcessGroup& group) {
  const at::Tensor parameter = parameter_at(call, module, name);
  TORCH_CHECK_VALUE(
      is_dtensor(parameter) || parameter.is_contiguous(), call, ", rank ",
      rank(), ": parameter '", name, "' of ", module.name(),
      " must be contiguous; got strides ", parameter.strides(), " for sizes ",
      parameter.sizes());
  TensorProperties properties = TensorProperties::create_from_tensor(parameter);
  properties.pin_memory = false;
  StatePtr state =
      make_state(spec, parameter.sizes().vec(), properties, group, call);
  const auto layout = mesh_layout_of(*state);
  TORCH_CHECK_NOT_IMPLEMENTED(
      layout, call, " in ", to_string(group), ", rank ", rank(),
      ": operators work on parameters whose shards form a mesh; got ",
      to_string(spec), " for '", name, "' of sizes ",
      shape_to_string(state->metadata.size),
      "; give each rank one box of a grid, such as a ChunkShardingSpec with "
      "every rank at most once, or keep the tensor as a ShardedTensor member");
  const DeviceMesh mesh(
      state->metadata.shards_metadata.at(0).placement->device().type(),
      layout->mesh());
  check_in_place(call, parameter, mesh, layout->placements());
  return {parameter, std::move(state), mesh, layout->placements()};
}

void check_src_rank(
    const char* call, int64_t src_rank, const ProcessGroup& group) {
  TORCH_CHECK_VALUE(
      src_rank >= 0 && src_rank < group.size(), call, " in ", to_string(group),
      ", rank ", rank(), ": src_rank must be a rank of the group, 0 to ",
      group.size() - 1, "; got ", src_rank);
}

std::string agreed_text(const ParameterPlan& plan) {
  return to_string(*plan.state->spec) + " " + to_string(plan.state->metadata) +
         (is_dtensor(plan.parameter)        ? ", sharded already"
          : plan.parameter.grad().defined() ? ", with a gradient"
                                            : "");
}

void carry_out(
    const char* call, const ParameterPlan& plan, const std::string& name,
    int64_t src_rank) {
  convert_in_place(
      call, plan.parameter, plan.mesh, plan.placements,
      [&](const at::Tensor& value, const DTensorSpec& spec) {
        const ShardedTensor sharded = plan.state->spec->shard(
            value.detach().resolve_conj().resolve_neg(), src_rank,
            *plan.state->group);
        if (!spec.has_shard()) {
          return at::empty(
              {0}, value.options().device(plan.mesh.device_type()));
        }
        const at::Tensor local = sharded.local_tensor();
        TORCH_CHECK_VALUE(
            local.sizes() == spec.local_shape(), call, ", rank ", rank(), ": ",
            to_string(*plan.state->spec), " made a shard of sizes ",
            local.sizes(), " of '", name, "', but its metadata say ",
            shape_to_string(spec.local_shape()));
        return local;
      });
  name_tensor(plan.parameter, name);
}

}  // namespace tessera::detail::inline sharded_tensor_layer

namespace tessera::sharded_tensor {

ShardedTensor shard_parameter(
    torch::nn::Module& module, const std::string& name,
    const ShardingSpec& spec, int64_t src_rank, const ProcessGroup& group) {
  constexpr const char* kCall = "shard_parameter";
  const detail::CallCause cause(kCall);
  auto agreement = detail::begin_agreement(kCall, group);
  std::optional<detail::ParameterPlan> plan;
  agreement.check([&] {
    detail::check_src_rank(kCall, src_rank, group);
    plan = detail::plan_parameter(kCall, module, name, spec, group);
    agreement.equal("src_rank", std::to_string(src_rank));
    agreement.equal("spec and parameter", detail::agreed_text(*plan));
  });
  agreement.reach();
  detail::carry_out(kCall, *plan, name, src_rank);
  detail::ShardedTensorState& state = *plan->state;
  if (plan->mesh.coordinate()) {
    detail::set_local_tensors(state, {to_local(plan->parameter)});
  }
  state.dtensor = plan->parameter;
  return ShardedTensor(std::move(plan->state));
}

}  // namespace tessera::sharded_tensor
