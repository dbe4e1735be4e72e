// One parameter that is about to be sharded.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>
#include <sharded_tensor/tensor/state.h>
#include <tessera/comm/device_mesh.h>
#include <tessera/layout/placement.h>
#include <tessera/sharded_tensor/sharding_spec.h>

namespace torch::nn {
class Module;
}

namespace tessera::detail::inline sharded_tensor_layer {

/// What sharding a parameter comes down to.
struct ParameterPlan {
  at::Tensor parameter;
  StatePtr state;  // without shards yet
  DeviceMesh mesh;
  Placements placements;
};

/// Checks all that this rank can tell; changes and communicates nothing.
ParameterPlan plan_parameter(
    const char* call, const torch::nn::Module& module, const std::string& name,
    const sharded_tensor::ShardingSpec& spec,
    const sharded_tensor::ProcessGroup& group);
/// Throws unless `src_rank` is a rank of the group.
void check_src_rank(
    const char* call, int64_t src_rank,
    const sharded_tensor::ProcessGroup& group);
/// Returns what must be equal on all ranks.
std::string agreed_text(const ParameterPlan& plan);
/// Converts the parameter. Collective; ranks must have agreed.
void carry_out(
    const char* call, const ParameterPlan& plan, const std::string& name,
    int64_t src_rank);

}  // namespace tessera::detail::inline sharded_tensor_layer
