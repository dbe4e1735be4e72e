// Modules and parameters by path, "encoder.fc1.weight".
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace tessera::detail::inline modules_layer {

/// Splits at the last dot: "a.b.weight" -> "a.b", "weight"; "weight" -> "",
/// "weight".
std::pair<std::string, std::string> split_path(const std::string& path);
/// Joins with a dot; an empty part adds none.
std::string join_path(const std::string& above, const std::string& name);
/// Tells whether a path is `above` or lies below it, by components: "ab" does
/// not lie below "a".
bool is_within(const std::string& path, const std::string& above);
/// Prints a path in quotes; of the root, whose path is empty,
/// "the root module (Net)" with its type.
/// Example: module_name("fc1", "Net", '\'') -> "'fc1'".
std::string module_name(
    const std::string& path, const std::string& root_type, char quote);

/// Returns a direct child, nullptr where there is none.
std::shared_ptr<torch::nn::Module> child_of(
    const torch::nn::Module& parent, const std::string& name);
/// Returns the module at a path, nullptr where there is none; "" is the root.
const torch::nn::Module* find_module(
    const torch::nn::Module& root, const std::string& path);

struct NamedModule {
  std::string path;
  torch::nn::Module* module;
};
struct NamedParameter {
  std::string path;
  at::Tensor tensor;
};
/// Returns the modules that a path names, part by part as globs; "" is `root`
/// itself. Throws where it names none; `call` is what errors begin with.
std::vector<NamedModule> find_modules(
    const std::string& call, torch::nn::Module& root, const std::string& path);
/// Returns the parameters that a path names: its last part is a parameter.
/// `style` is what asks for them.
std::vector<NamedParameter> find_parameters(
    const std::string& call, const std::string& style, torch::nn::Module& root,
    const std::string& path);

}  // namespace tessera::detail::inline modules_layer
