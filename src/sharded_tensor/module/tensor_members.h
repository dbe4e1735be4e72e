// The sharded tensors that modules have registered.
#pragma once

#include <functional>
#include <string>

#include <tessera/sharded_tensor/state_dict.h>

namespace tessera::detail::inline sharded_tensor_layer {

/// Calls `f` with the path of each module that is a holder, the module itself
/// first.
void for_each_tensor_member(
    const torch::nn::Module& module, const std::string& prefix, bool recurse,
    const std::function<void(
        const std::string&, const sharded_tensor::ShardedTensorHolder&)>& f);
/// Returns the tensor of a member, nullptr where it is empty.
const sharded_tensor::ShardedTensor* tensor_of(
    const sharded_tensor::ShardedTensorHolder::Member& member);

}  // namespace tessera::detail::inline sharded_tensor_layer
