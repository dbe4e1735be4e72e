// ShardedOptimizer: any of LibTorch's optimizers on parameters of which some
// are sharded tensors.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/export.h>
#include <tessera/sharded_tensor/sharded_tensor.h>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
class OptimizerParamGroup;
}  // namespace torch::optim
namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace tessera::sharded_tensor {

/// Parameters by name: tensors, with placements or plain, and sharded tensors.
using NamedParams =
    std::map<std::string, std::variant<at::Tensor, ShardedTensor>>;

/// Returns the parameters of a module and the registered sharded tensors
/// (state_dict.h), each object once, as "prefix.path". Without `recurse`, those
/// of the module itself.
TESSERA_API NamedParams named_params_with_sharded_tensor(
    const torch::nn::Module& module, const std::string& prefix = "",
    bool recurse = true);

/// Returns what an optimizer works on: plain tensors, the at::Tensor with
/// placements behind a sharded tensor that has one, else each of its local
/// shards. In the order of the names, so all ranks agree.
TESSERA_API std::vector<at::Tensor> optimizer_tensors(
    const NamedParams& params);

/// Writes an optimizer's state, this rank's part of what is sharded. LibTorch
/// itself cannot write an at::Tensor with placements.
TESSERA_API void save_optimizer(
    const torch::optim::Optimizer& optimizer,
    torch::serialize::OutputArchive& archive);
/// Reads it into an optimizer over parameters that are sharded alike.
TESSERA_API void load_optimizer(
    torch::optim::Optimizer& optimizer,
    torch::serialize::InputArchive& archive);

/// One optimizer of LibTorch over named parameters. Example:
///   ShardedOptimizer<torch::optim::SGD, torch::optim::SGDOptions> optimizer(
///       named_params_with_sharded_tensor(*model), {0.1});
template <class Optimizer, class Options>
class ShardedOptimizer {
 public:
  explicit ShardedOptimizer(
      const NamedParams& params, const Options& options = {})
      : inner_(optimizer_tensors(params), options) {}

  void zero_grad(bool set_to_none = true) { inner_.zero_grad(set_to_none); }
  /// Takes a step with the gradients that there are, or with those of a
  /// closure, whose loss it returns.
  template <class... Closure>
  at::Tensor step(Closure&&... closure) {
    return inner_.step(std::forward<Closure>(closure)...);
  }
  /// Adds parameters with options of their own.
  template <class Group = torch::optim::OptimizerParamGroup>
  void add_param_group(const NamedParams& params, const Options& options) {
    inner_.add_param_group(
        Group(optimizer_tensors(params), std::make_unique<Options>(options)));
  }
  auto& param_groups() { return inner_.param_groups(); }
  auto& state() { return inner_.state(); }

  /// Writes the state; see save_optimizer().
  void save(torch::serialize::OutputArchive& archive) const {
    save_optimizer(inner_, archive);
  }
  /// Reads it; see load_optimizer().
  void load(torch::serialize::InputArchive& archive) {
    load_optimizer(inner_, archive);
  }

  /// Returns LibTorch's optimizer.
  Optimizer& inner() { return inner_; }
  const Optimizer& inner() const { return inner_; }

 private:
  Optimizer inner_;
};

}  // namespace tessera::sharded_tensor
