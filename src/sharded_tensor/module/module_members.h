// Modules and parameters that must be there, and replacing a module.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>
#include <tessera/sharded_tensor/sharding_plan.h>

namespace tessera::detail::inline sharded_tensor_layer {

/// Returns the module at a path; an AttributeError where there is none.
torch::nn::Module& module_at(
    const std::string& call, torch::nn::Module& root, const std::string& path);

/// Returns a defined parameter of the module itself. Else throws: an
/// AttributeError where it has nothing of that name, a KeyError for a buffer, a
/// ValueError for a module or an undefined parameter.
at::Tensor parameter_at(
    const std::string& call, const torch::nn::Module& module,
    const std::string& name);

/// Throws where replace_child() would.
void check_replacement(
    const torch::nn::Module& parent, const std::string& path,
    const sharded_tensor::Replacement& replacement);
/// Puts a module in the place of a child: in the registry, and in what
/// Sequential, ModuleList and ModuleDict call.
void replace_child(
    torch::nn::Module& parent, const std::string& name,
    const sharded_tensor::Replacement& replacement);

}  // namespace tessera::detail::inline sharded_tensor_layer
