// ShardedModule: a module and what happens around its forward(), by a plan for
// its inputs and outputs.
#pragma once

#include <string>
#include <utility>

#include <tessera/modules/module_call.h>
#include <tessera/sharded_tensor/call_plan.h>
#include <tessera/tensor/dtensor.h>

namespace tessera::sharded_tensor {

/// A call object. `M` is a shared_ptr to a module or a holder made by
/// TORCH_MODULE; copies share the module. Example:
///   auto net = shard_module(model, plan);
///   at::Tensor y = net(x);
template <class M>
class ShardedModule : public detail::ModuleCall<M> {
 public:
  /// For the library; see shard_module(), reshard_output().
  ShardedModule(M module, detail::CallPlan plan)
      : detail::ModuleCall<M>(std::move(module)), plan_(std::move(plan)) {}

  /// Calls forward() and applies what the plan says about the output to every
  /// tensor in its result.
  ///
  /// Plain tensors among the arguments are taken as equal on all ranks, and so
  /// are parameters that are not sharded and what forward() makes; gradients
  /// reach them plain and whole. For a batch of each rank's own pass
  /// from_local(x, mesh, {Shard(0)}), or a ShardedTensor.
  ///
  /// Children of a torch::nn::Sequential are called one by one, so that their
  /// plans apply. Any other module calls its children by itself: a plan for one
  /// of them is an error here, unless at() made a call object for it.
  template <class... Arguments>
  auto operator()(Arguments&&... arguments) const {
    if (plan_.has_below()) {
      plan_.check_reach(this->child_names());
    }
    detail::CallPlan::keep_gradients_plain(*this->module());
    const ImplicitReplication plain_is_equal;
    return this->call(
        [](auto& values) {
          detail::visit_tensors(
              values, [](at::Tensor& t) { t = detail::CallPlan::argument(t); });
        },
        [this](auto&... values) { return this->run(values...); },
        [this](auto& result) {
          detail::visit_tensors(
              result, [this](at::Tensor& t) { t = plan_.output("", t); });
        },
        detail::call_argument(std::forward<Arguments>(arguments))...);
  }

  /// Returns the call object of a module below, with what the plan says about
  /// it. `module` must be the one at that path.
  /// Example: net.at("fc1", model->fc1)(x).
  template <class N>
  ShardedModule<N> at(const std::string& path, N module) const {
    return ShardedModule<N>(
        module, plan_.below(path, *this->module(), *module));
  }

  const detail::CallPlan& plan() const { return plan_; }

 private:
  // Children of a Sequential are called one by one where one has a plan.
  template <class... V>
  auto run(V&... values) const {
    const auto map_output = [this](const std::string& path, auto& value) {
      if (plan_.has(path)) {
        detail::CallPlan::check_visited(
            detail::visit_any(
                value,
                [&](at::Tensor& t) { t = plan_.output(path, std::move(t)); }),
            path);
      }
    };
    return plan_.has_below() ? this->forward_children(map_output, values...)
                             : this->forward(values...);
  }

  detail::CallPlan plan_;
};

}  // namespace tessera::sharded_tensor
