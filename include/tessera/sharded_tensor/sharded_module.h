// ShardedModule: a module and what happens around its forward(). C++ modules
// have no hooks, so plans for inputs and outputs are applied by this object.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <tessera/export.h>
#include <tessera/sharded_tensor/conversion.h>
#include <tessera/sharded_tensor/sharded_tensor.h>
#include <tessera/tensor/dtensor.h>

namespace torch::nn {
class Module;
}

namespace tessera::detail::inline sharded_tensor_layer {

using OutputStep = std::function<at::Tensor(const at::Tensor&)>;
/// What happens to outputs, by the path of the module.
using OutputSteps = std::map<std::string, std::vector<OutputStep>>;

/// What a call object knows, whatever the type of its module.
class TESSERA_API CallPlan {
 public:
  CallPlan(const torch::nn::Module& module, OutputSteps steps);

  /// Makes gradients of parameters that are not sharded arrive plain; those
  /// that need one since the last call too.
  static void keep_gradients_plain(const torch::nn::Module& module);
  /// Returns an argument as it goes into forward(): gradients of plain ones
  /// arrive plain.
  static at::Tensor argument(const at::Tensor& tensor);
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

template <class T>
inline constexpr bool is_vector = false;
template <class T, class A>
inline constexpr bool is_vector<std::vector<T, A>> = true;
template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

/// Applies a function of at::Tensor to a sharded one, whose place the result
/// must be able to take.
template <class F>
sharded_tensor::ShardedTensor as_sharded(
    const F& f, const sharded_tensor::ShardedTensor& tensor) {
  at::Tensor mapped = sharded_tensor::to_dtensor(tensor);
  const at::Tensor before = mapped;
  f(mapped);
  if (mapped.is_same(before)) {
    return tensor;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      is_dtensor(mapped),
      "ShardedModule: a ShardedTensor cannot become this rank's plain shard in "
      "its place; return to_dtensor() from forward(), or take local_tensor() "
      "of the result");
  return sharded_tensor::from_dtensor(mapped, tensor.process_group());
}

/// Calls `f` for every tensor inside a value: tensors, sharded ones,
/// vectors, tuples, pairs, arrays and optionals of them.
template <class T, class F>
void visit_tensors(T& value, const F& f) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    f(value);
  } else if constexpr (std::is_same_v<T, sharded_tensor::ShardedTensor>) {
    value = as_sharded(f, value);
  } else if constexpr (is_vector<T>) {
    if constexpr (!std::is_same_v<T, std::vector<bool>>) {
      for (auto& element : value) {
        visit_tensors(element, f);
      }
    }
  } else if constexpr (is_optional<T>) {
    if (value) {
      visit_tensors(*value, f);
    }
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply(
        [&](auto&... element) { (visit_tensors(element, f), ...); }, value);
  }
}

/// A sharded tensor goes into forward() as an at::Tensor with placements.
inline at::Tensor call_argument(const sharded_tensor::ShardedTensor& tensor) {
  return sharded_tensor::to_dtensor(tensor);
}
template <class T>
std::decay_t<T> call_argument(T&& value) {
  return std::forward<T>(value);
}

/// Tells whether a module is a torch::nn::Sequential: it calls its children one
/// after the other, and so can we.
template <class Impl>
concept RunsChildren = requires(Impl& module) {
  module.begin()->any_forward(at::Tensor());
}
&&!requires {
  &Impl::forward;
};

/// Applies the steps of a path to what a child of a Sequential returned.
template <class... Types, class AnyValue>
void map_any(const CallPlan& plan, const std::string& path, AnyValue& value) {
  const auto apply = [&]<class T>(T* inside) {
    if (inside != nullptr) {
      visit_tensors(*inside, [&](at::Tensor& t) { t = plan.output(path, t); });
    }
    return inside != nullptr;
  };
  TORCH_CHECK_TYPE(
      (apply(value.template try_get<Types>()) || ...),
      "ShardedModule: the "
      "output of '",
      path,
      "' has a plan, and is neither a tensor nor a vector "
      "or tuple of up to three; call it as net.at(\"",
      path, "\", module)");
}

}  // namespace tessera::detail::inline sharded_tensor_layer

namespace tessera::sharded_tensor {

/// A call object. `M` is a shared_ptr to a module or a holder made by
/// TORCH_MODULE; copies share the module. Example:
///   auto net = shard_module(model, plan);
///   at::Tensor y = net(x);
template <class M>
class ShardedModule {
 public:
  /// For the library; see shard_module(), reshard_output().
  ShardedModule(M module, detail::CallPlan plan)
      : module_(std::move(module)), plan_(std::move(plan)) {}

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
    check_reach();
    detail::CallPlan::keep_gradients_plain(*module_);
    auto values = std::tuple<std::decay_t<decltype(detail::call_argument(
        std::forward<Arguments>(arguments)))>...>(
        detail::call_argument(std::forward<Arguments>(arguments))...);
    detail::visit_tensors(
        values, [](at::Tensor& t) { t = detail::CallPlan::argument(t); });
    const ImplicitReplication plain_is_equal;
    auto result =
        std::apply([this](auto&... v) { return this->run(v...); }, values);
    detail::visit_tensors(
        result, [this](at::Tensor& t) { t = plan_.output("", t); });
    return result;
  }

  /// Returns the call object of a module below, with what the plan says about
  /// it. `module` must be the one at that path.
  /// Example: net.at("fc1", model->fc1)(x).
  template <class N>
  ShardedModule<N> at(const std::string& path, N module) const {
    return ShardedModule<N>(module, plan_.below(path, *module_, *module));
  }

  const M& module() const { return module_; }
  auto* operator->() const { return &*module_; }
  const detail::CallPlan& plan() const { return plan_; }

 private:
  using Impl = std::remove_reference_t<decltype(*std::declval<M&>())>;

  void check_reach() const {
    if (!plan_.has_below()) {
      return;
    }
    std::vector<std::string> children;
    if constexpr (detail::RunsChildren<Impl>) {
      children = module_->named_children().keys();
    }
    plan_.check_reach(children);
  }
  template <class... V>
  auto run(V&... values) const {
    if constexpr (detail::RunsChildren<Impl>) {
      return plan_.has_below() ? run_children(values...)
                               : module_->forward(values...);
    } else {
      return module_->forward(values...);
    }
  }
  template <class... V>
  at::Tensor run_children(V&... values) const {
    const std::vector<std::string> names = module_->named_children().keys();
    auto child = module_->begin();
    auto value = child->any_forward(values...);
    for (size_t i = 0;;) {
      if (plan_.has(names[i])) {
        detail::map_any<
            at::Tensor, std::vector<at::Tensor>,
            std::tuple<at::Tensor, at::Tensor>,
            std::tuple<at::Tensor, at::Tensor, at::Tensor>>(
            plan_, names[i], value);
      }
      if (++i == names.size()) {
        break;
      }
      value = (++child)->any_forward(std::move(value));
    }
    return value.template get<at::Tensor>();
  }

  mutable M module_;  // a handle: holders pass their own constness on
  detail::CallPlan plan_;
};

}  // namespace tessera::sharded_tensor
