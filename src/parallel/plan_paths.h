// Paths of a parallel plan: which modules and parameters they name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace tessera::detail::inline parallel_layer {

struct NamedModule {
  std::string path;
  torch::nn::Module* module;
};
struct NamedParameter {
  std::string path;
  at::Tensor tensor;
};

/// Returns the modules that a path names, part by part as globs; "" is `root`
/// itself. Throws where it names none.
std::vector<NamedModule> find_modules(
    torch::nn::Module& root, const std::string& path);
/// Returns the parameters that a path names: its last part is a parameter.
std::vector<NamedParameter> find_parameters(
    torch::nn::Module& root, const std::string& path);

}  // namespace tessera::detail::inline parallel_layer
