// A module of C++ that holds the parameters of one of Python.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include "bindings.h"

namespace tessera::python {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Holds parameters under their paths: what converts them in place converts
/// those of Python.
class ModuleTree : public torch::nn::Module {
 public:
  explicit ModuleTree(const NamedTensors& parameters) {
    for (const auto& [path, parameter] : parameters) {
      add(path, parameter);
    }
  }

 private:
  void add(const std::string& path, const at::Tensor& parameter) {
    const size_t dot = path.find('.');
    if (dot == std::string::npos) {
      register_parameter(path, parameter, parameter.requires_grad());
      return;
    }
    const std::string child = path.substr(0, dot);
    if (!named_children().contains(child)) {
      register_module(child, std::make_shared<ModuleTree>(NamedTensors()));
    }
    std::static_pointer_cast<ModuleTree>(named_children()[child])
        ->add(path.substr(dot + 1), parameter);
  }
};

/// Reads a torch.nn.Module.
inline ModuleTree tree_of(const py::object& module) {
  NamedTensors parameters;
  for (const py::handle named : module.attr("named_parameters")()) {
    parameters.push_back(named.cast<std::pair<std::string, at::Tensor>>());
  }
  return ModuleTree(parameters);
}

}  // namespace tessera::python
