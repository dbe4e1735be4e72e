// What a call object knows of its plan, whatever the type of its module.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/export.h>
#include <tessera/modules/module_call.h>
#include <tessera/sharded_tensor/conversion.h>
#include <tessera/sharded_tensor/sharded_tensor.h>

namespace torch::nn {
class Module;
}

namespace tessera::detail::inline sharded_tensor_layer {

using OutputStep = std::function<at::Tensor(const at::Tensor&)>;
/// What happens to outputs, by the path of the module.
using OutputSteps = std::map<std::string, std::vector<OutputStep>>;

class TESSERA_API CallPlan {
 public:
  CallPlan(const torch::nn::Module& module, OutputSteps steps);

  /// Makes gradients of parameters that are not sharded arrive plain; those
  /// that need one since the last call too.
  static void keep_gradients_plain(const torch::nn::Module& module);
  /// Returns an argument as it goes into forward(): gradients of plain ones
  /// arrive plain.
  static at::Tensor argument(const at::Tensor& tensor);
  /// Throws for a child of a Sequential whose output has a plan and holds no
  /// tensors that visit_any() finds.
  static void check_visited(bool visited, const std::string& path);
  /// Returns an output after the steps of a path.
  at::Tensor output(const std::string& path, at::Tensor tensor) const;
  bool has(const std::string& path) const { return steps_.contains(path); }
  /// Tells whether there are steps for other paths than "".
  bool has_below() const { return steps_.size() > (has("") ? 1U : 0U); }

  /// Throws where a path below would be ignored: not among the children that
  /// the call object runs, not asked for with at().
  void check_reach(const std::vector<std::string>& children) const;
  /// Returns the plan of a module below, which must be `module`.
  CallPlan below(
      const std::string& path, const torch::nn::Module& root,
      const torch::nn::Module& module) const;
  /// Returns a plan with one more step for "".
  CallPlan with_step(OutputStep step) const;

 private:
  OutputSteps steps_;
  // Paths with a call object of their own. Copies share it.
  std::shared_ptr<std::set<std::string>> elsewhere_;
};

/// A sharded tensor goes into forward() as an at::Tensor with placements.
inline at::Tensor call_argument(const sharded_tensor::ShardedTensor& tensor) {
  return sharded_tensor::to_dtensor(tensor);
}
template <class T>
std::decay_t<T> call_argument(T&& value) {
  return std::forward<T>(value);
}

/// Calls f with a sharded tensor as an at::Tensor, and takes what f makes of
/// it, which must be sharded too.
TESSERA_API void visit_as_dtensor(
    sharded_tensor::ShardedTensor& value,
    const std::function<void(at::Tensor&)>& f);

}  // namespace tessera::detail::inline sharded_tensor_layer

template <>
struct tessera::detail::InnerTensors<tessera::sharded_tensor::ShardedTensor> {
  template <class F>
  static void visit(sharded_tensor::ShardedTensor& value, const F& f) {
    visit_as_dtensor(value, f);
  }
};
