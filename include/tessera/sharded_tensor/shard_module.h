// Modules with sharded parameters.
//
// Parameters are converted in place (tessera/tensor/dtensor.h, make_dtensor_),
// so a module's own forward() works on them as it stands, and an optimizer
// takes them as they are. What a plan says about outputs is applied by the call
// object that shard_module() returns.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/export.h>
#include <tessera/sharded_tensor/process_group.h>
#include <tessera/sharded_tensor/shard.h>
#include <tessera/sharded_tensor/sharded_module.h>
#include <tessera/sharded_tensor/sharded_tensor.h>
#include <tessera/sharded_tensor/sharding_plan.h>
#include <tessera/sharded_tensor/sharding_spec.h>

namespace tessera::detail::inline sharded_tensor_layer {

/// Carries out what a plan says about parameters and modules; returns what it
/// says about outputs.
TESSERA_API OutputSteps apply_plan(
    torch::nn::Module& module, const sharded_tensor::ShardingPlan& plan,
    int64_t src_rank, const sharded_tensor::ProcessGroup& group);

}  // namespace tessera::detail::inline sharded_tensor_layer

namespace tessera::sharded_tensor {

/// A shared_ptr to a module, or a holder.
template <class M>
concept ModuleHandle = requires(M& module) {
  { &*module } -> std::convertible_to<const torch::nn::Module*>;
};

/// Shards a parameter, in place: the module's members and registry see an
/// at::Tensor with placements. The values are those of `src_rank`, a rank of
/// the group; requires_grad stays, an existing gradient is cut too. Ranks of
/// the group without a shard get the tensor with no data. Collective.
///
/// Returns the parameter as a ShardedTensor that shares its memory; gradients
/// are those of the parameter. A spec that no mesh has is a
/// NotImplementedError. Example:
///   shard_parameter(*linear, "weight", ChunkShardingSpec(0, places));
TESSERA_API ShardedTensor shard_parameter(
    torch::nn::Module& module, const std::string& name,
    const ShardingSpec& spec, int64_t src_rank = 0,
    const ProcessGroup& group = {});

/// Shards a module by a plan and returns its call object. Collective; errors in
/// the plan are found on all ranks before anything changes. Sharders run first.
template <ModuleHandle M>
ShardedModule<M> shard_module(
    M module, const ShardingPlan& plan, int64_t src_rank = 0,
    const ProcessGroup& group = {}) {
  detail::OutputSteps steps =
      detail::apply_plan(*module, plan, src_rank, group);
  detail::CallPlan calls(*module, std::move(steps));
  return ShardedModule<M>(std::move(module), std::move(calls));
}

/// Cuts an at::Tensor with placements as the spec says; differentiable. A plain
/// one is returned as it is. A spec that no mesh has is a NotImplementedError.
TESSERA_API at::Tensor reshard_output(
    const at::Tensor& output, const ShardingSpec& spec,
    const ProcessGroup& group = {});
/// Returns this rank's shard as a plain tensor; differentiable. Where the
/// chunks of one dim have size 1, that dim is left out, unless this rank's
/// chunk is empty. A plain tensor is returned as it is; a rank outside the mesh
/// gets a tensor of no elements.
TESSERA_API at::Tensor collect_local_shard(const at::Tensor& output);

/// Returns a call object whose output is cut as the spec says. Steps apply in
/// the order in which they are added. Example:
///   auto net = collect_local_shard(reshard_output(model, spec));
template <class M>
ShardedModule<M> reshard_output(
    const ShardedModule<M>& module, const ShardingSpec& spec,
    const ProcessGroup& group = {}) {
  return ShardedModule<M>(
      module.module(), module.plan().with_step([spec = spec.clone(), group](
                                                   const at::Tensor& output) {
        return reshard_output(output, *spec, group);
      }));
}
template <ModuleHandle M>
ShardedModule<M> reshard_output(
    M module, const ShardingSpec& spec, const ProcessGroup& group = {}) {
  detail::CallPlan calls(*module, {});
  return reshard_output(
      ShardedModule<M>(std::move(module), std::move(calls)), spec, group);
}

/// Returns a call object whose output is this rank's shard.
template <class M>
ShardedModule<M> collect_local_shard(const ShardedModule<M>& module) {
  return ShardedModule<M>(
      module.module(), module.plan().with_step([](const at::Tensor& output) {
        return collect_local_shard(output);
      }));
}
template <ModuleHandle M>
ShardedModule<M> collect_local_shard(M module) {
  detail::CallPlan calls(*module, {});
  return collect_local_shard(
      ShardedModule<M>(std::move(module), std::move(calls)));
}

/// Cuts a tensor of which `local` is this rank's only shard by another spec,
/// and returns this rank's shards. Collective; differentiable: then every rank
/// must run backward through a shard that it got.
TESSERA_API std::vector<Shard> reshard_local_shard(
    const at::Tensor& local, const std::vector<int64_t>& sizes,
    const ShardingSpec& from, const ShardingSpec& to,
    const ProcessGroup& group = {});

}  // namespace tessera::sharded_tensor
