// A module and what happens to the tensors that go into it and come out of it.
// C++ modules have no hooks, so an object around the module does it.
#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::detail::inline modules_layer {

template <class T>
inline constexpr bool is_vector = false;
template <class T, class A>
inline constexpr bool is_vector<std::vector<T, A>> =
    !std::is_same_v<T, bool>;  // whose elements are no objects
template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

/// Says where the tensors of a type of one's own are: a specialisation has
/// static void visit(T& value, const F& f).
template <class T>
struct InnerTensors {};

/// Calls f(tensor) for every at::Tensor inside a value: vectors, tuples, pairs,
/// arrays and optionals of them, one in another, and what InnerTensors knows.
template <class T, class F>
void visit_tensors(T& value, const F& f) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    f(value);
  } else if constexpr (requires { InnerTensors<T>::visit(value, f); }) {
    InnerTensors<T>::visit(value, f);
  } else if constexpr (is_vector<T>) {
    for (auto& element : value) {
      visit_tensors(element, f);
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

/// The same for what a child of a Sequential returned. False where that is
/// neither a tensor nor a vector or tuple of up to three.
template <class AnyValue, class F>
bool visit_any(AnyValue& value, const F& f) {
  using at::Tensor;
  const auto visit = [&](auto* inside) {
    if (inside != nullptr) {
      visit_tensors(*inside, f);
    }
    return inside != nullptr;
  };
  return visit(value.template try_get<Tensor>()) ||
         visit(value.template try_get<std::vector<Tensor>>()) ||
         visit(value.template try_get<std::tuple<Tensor, Tensor>>()) ||
         visit(value.template try_get<std::tuple<Tensor, Tensor, Tensor>>());
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

/// A handle to a module, and calls of it. `M` is a shared_ptr to a module or a
/// holder made by TORCH_MODULE; copies share the module.
template <class M>
class ModuleCall {
 public:
  explicit ModuleCall(M module) : module_(std::move(module)) {}
  const M& module() const { return module_; }
  auto* operator->() const { return &*module_; }

 protected:
  using Impl = std::remove_reference_t<decltype(*std::declval<M&>())>;

  /// Calls before(tuple of the arguments), run(arguments...), after(result).
  template <class Before, class Run, class After, class... Arguments>
  static auto call(
      const Before& before, const Run& run, const After& after,
      Arguments&&... arguments) {
    std::tuple<std::decay_t<Arguments>...> values(
        std::forward<Arguments>(arguments)...);
    before(values);
    auto result = std::apply(run, values);
    after(result);
    return result;
  }
  template <class... V>
  auto forward(V&... values) const {
    return module_->forward(values...);
  }

  /// Returns the names of the children that forward_children() calls.
  std::vector<std::string> child_names() const {
    if constexpr (RunsChildren<Impl>) {
      return module_->named_children().keys();
    }
    return {};
  }
  /// Calls the children one after the other, and between(name, value) with what
  /// each returned; a module that is no Sequential calls its own.
  template <class Between, class... V>
  auto forward_children(const Between& between, V&... values) const {
    if constexpr (RunsChildren<Impl>) {
      const std::vector<std::string> names = child_names();
      auto child = module_->begin();
      auto value = child->any_forward(values...);
      between(names[0], value);
      for (size_t i = 1; i < names.size(); ++i) {
        value = (++child)->any_forward(std::move(value));
        between(names[i], value);
      }
      return value.template get<at::Tensor>();
    } else {
      return module_->forward(values...);
    }
  }

 private:
  mutable M module_;  // a handle: holders pass their own constness on
};

}  // namespace tessera::detail::inline modules_layer
