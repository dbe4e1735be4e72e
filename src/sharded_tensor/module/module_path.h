// Modules and parameters by path, "encoder.fc1.weight".
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <tessera/sharded_tensor/sharding_plan.h>

namespace tessera::detail::inline sharded_tensor_layer {

/// Splits at the last dot: "a.b.weight" -> "a.b", "weight"; "weight" -> "",
/// "weight".
std::pair<std::string, std::string> split_path(const std::string& path);
/// Joins with a dot; an empty part adds none.
std::string join_path(const std::string& above, const std::string& name);
/// Tells whether a path is `above` or lies below it, by components: "ab" does
/// not lie below "a".
bool is_within(const std::string& path, const std::string& above);

/// Returns the module at a path, nullptr where there is none; "" is the root.
const torch::nn::Module* find_module(
    const torch::nn::Module& root, const std::string& path);
/// The same; an AttributeError where there is none.
torch::nn::Module& module_at(
    const std::string& call, torch::nn::Module& root, const std::string& path);
/// Returns a direct child.
std::shared_ptr<torch::nn::Module> child_of(
    const torch::nn::Module& parent, const std::string& name);

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
