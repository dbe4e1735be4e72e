// Calls without a stack.
//
// Note [Typed calls]
// A boxed kernel serves every operator, but the dispatcher must pack the
// arguments of each call into a stack for it, and unpack them again for the
// call on shards. Operators whose C++ signature is a common one get a kernel of
// that signature instead. It serves calls that were met before and run at once
// (Note [A call that was met before]); all other calls it puts on a stack for
// the boxed kernel, which serves every call.
#pragma once

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <tensor/autograd/leaf_gradient.h>
#include <tensor/autograd/local.h>
#include <tensor/call/result_specs.h>
#include <tensor/fast/local_argument.h>
#include <tensor/fast/thread_dispatch.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/impl/wrap.h>
#include <tensor/move/view_copies.h>
#include <tensor/run/local_call.h>
#include <tensor/state/dispatch_keys.h>
#include <tensor/state/plain_is_replicated.h>

namespace tessera::detail::inline tensor_layer {

template <class... T>
std::tuple<T...> wrap_results(
    const ResultWrapper& wrapper, std::tuple<T...>&& locals) {
  return [&]<size_t... I>(std::index_sequence<I...>) {
    return std::tuple<T...>(
        wrapper.wrap_result(std::get<I>(std::move(locals)), I, 0)...);
  }
  (std::index_sequence_for<T...>{});
}
inline at::Tensor wrap_results(
    const ResultWrapper& wrapper, at::Tensor&& local) {
  return wrapper.wrap_result(std::move(local), 0, 0);
}
inline std::vector<at::Tensor> wrap_results(
    const ResultWrapper& wrapper, std::vector<at::Tensor>&& locals) {
  for (size_t e = 0; e < locals.size(); ++e) {
    locals[e] = wrapper.wrap_result(std::move(locals[e]), 0, e);
  }
  return std::move(locals);
}

/// Returns the decision of a call that runs at once, or nullptr.
[[gnu::always_inline]] inline const Decision* find_typed(
    const CallKey& key, ThreadDispatch& mine) {
  if (!key.is_simple() || !key.is_complete()) {
    return nullptr;
  }
  const DecisionPtr* known = mine.cache.find(key);
  return known != nullptr && (*known)->is_typed ? known->get() : nullptr;
}

template <class Signature>
class TypedKernel;

template <class R, class... A>
class TypedKernel<R(A...)> final : public c10::OperatorKernel {
 public:
  TypedKernel(const c10::OperatorHandle& op, c10::BoxedKernel boxed)
      : op_(op.typed<R(A...)>()),
        schema_(op.schema()),
        boxed_(std::move(boxed)) {}

  R operator()(c10::DispatchKeySet keys, A... arguments) {
    ThreadDispatch& mine = enter_kernel();
    const OpTraits& traits = mine.traits_of(schema_, op_);
    if (traits.is_view) {
      record_views();
    }
    if constexpr (std::is_same_v<R(A...), at::Tensor(const at::Tensor&)>) {
      if (traits.shares_shard && mine.observer == nullptr) {
        mine.count_typed(1);
        install_hook(arguments...);
        return wrap_shared(arguments...);
      }
    }
    if (traits.custom_kernel == nullptr && !traits.is_foreign &&
        mine.observer == nullptr) {
      CallKey key(schema_);
      add_all(key, traits, indices, arguments...);
      // Held, since a kernel that somebody registered for the shards' backend
      // may do anything, also call us again.
      const DispatchCache::Hold hold(mine.cache);
      if (const Decision* decision = find_typed(key, mine)) {
        if (key.has_variable()) {
          install_hook(arguments...);
        }
        mine.count_typed(1);
        at::AutoDispatchBelowADInplaceOrView below;
        if constexpr (std::is_same_v<R, at::Tensor&>) {
          run(*decision, indices, arguments...);
          return write(arguments...);
        } else if (decision->views.empty() && !traits.is_view) {
          return wrap_results(
              ResultWrapper{*decision, op_},
              run(*decision, indices, arguments...));
        } else if (auto result = view(traits, *decision, arguments...)) {
          return *std::move(result);
        }
        mine.count_typed(-1);  // the boxed kernel counts it
      }
    }
    return c10::impl::BoxedKernelWrapper<R(A...)>::call(
        boxed_, op_, keys, std::forward<A>(arguments)...);
  }

 private:
  static constexpr std::index_sequence_for<A...> indices = {};

  template <size_t... I>
  static void add_all(
      CallKey& key, const OpTraits& traits, std::index_sequence<I...>,
      const std::remove_cvref_t<A>&... arguments) {
    (key.add_argument(traits.arguments[I], arguments), ...);
  }

  static void install_hook(const std::remove_cvref_t<A>&... arguments) {
    (for_each_typed(
         arguments,
         [](const at::Tensor& t) {
           if (is_sharded(t)) {
             install_leaf_hook(t);
           }
         }),
     ...);
  }

  static at::Tensor& write(at::Tensor& written, const auto&...) {
    after_write(written);
    return written;
  }

  template <size_t... I>
  R run(
      const Decision& decision, std::index_sequence<I...>,
      const std::remove_cvref_t<A>&... arguments) {
    LocalKeys keys(decision);
    if (keys.are_unknown()) {
      (for_each_typed(
           arguments, [&](const at::Tensor& t) { keys.add(shard_of(t)); }),
       ...);
    }
    return op_.redispatch(
        keys.get(),
        LocalArgument<std::remove_cvref_t<A>>(arguments, decision, I).get()...);
  }

  // Returns nothing where the shard's own strides do not permit the view.
  std::optional<R> view(
      const OpTraits& traits, const Decision& decision,
      const std::remove_cvref_t<A>&... arguments) {
    ResultWrapper wrapper{decision, op_};
    size_t number = 0;
    (find_viewed(wrapper, traits.arguments[number++], arguments), ...);
    try {
      return wrap_results(wrapper, run(decision, indices, arguments...));
    } catch (const c10::Error&) {
      return std::nullopt;
    }
  }

  template <class T>
  static void find_viewed(
      ResultWrapper& wrapper, const ArgumentTraits& traits, const T& argument) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      if (traits.viewed && is_sharded(argument)) {
        wrapper.viewed = &argument;
      }
    }
  }

  c10::TypedOperatorHandle<R(A...)> op_;
  const c10::FunctionSchema& schema_;  // in the dispatcher's entry, as op_
  c10::BoxedKernel boxed_;
};

/// The same for operators that ATen expresses by others.
template <class Signature>
class TypedComposite;

template <class R, class... A>
class TypedComposite<R(A...)> final : public c10::OperatorKernel {
 public:
  TypedComposite(const c10::OperatorHandle& op, c10::BoxedKernel boxed)
      : op_(op.typed<R(A...)>()),
        schema_(op.schema()),
        boxed_(std::move(boxed)) {}

  R operator()(c10::DispatchKeySet keys, A... arguments) {
    ThreadDispatch& mine = enter_kernel();
    const OpTraits& traits = mine.traits_of(schema_, op_);
    if (traits.custom_kernel == nullptr && !traits.is_random &&
        !traits.reads_values && are_on_one_mesh(arguments...)) {
      mine.count_typed(1);
      if constexpr (std::is_same_v<R, at::Tensor>) {
        at::Tensor result = decompose(arguments...);
        if (!is_sharded(result) && !PlainIsReplicated::active()) {
          result = as_replicated(result, mesh_of(arguments...));
        }
        return result;
      } else {
        return decompose(arguments...);
      }
    }
    return c10::impl::BoxedKernelWrapper<R(A...)>::call(
        boxed_, op_, keys, std::forward<A>(arguments)...);
  }

 private:
  R decompose(std::remove_reference_t<A>&... arguments) {
    const PlainIsReplicated depth;
    return op_.redispatch(kUnusedKeys, static_cast<A>(arguments)...);
  }

  // Of the first sharded argument; there is one.
  static DeviceMesh mesh_of(const std::remove_cvref_t<A>&... arguments) {
    const DeviceMesh* mesh = nullptr;
    (for_each_typed(
         arguments,
         [&](const at::Tensor& t) {
           mesh = is_sharded(t) ? &spec_of(t).mesh() : mesh;
         }),
     ...);
    return *mesh;
  }

  // Tells whether nothing is left to check.
  static bool are_on_one_mesh(const std::remove_cvref_t<A>&... arguments) {
    const DeviceMesh* mesh = nullptr;
    bool one = true;
    (for_each_typed(
         arguments,
         [&](const at::Tensor& t) {
           if (is_sharded(t)) {
             const DeviceMesh& its = spec_of(t).mesh();
             one = one && (mesh == nullptr || is_same(*mesh, its));
             mesh = &its;
           } else {
             one = one && (!t.defined() || t.dim() == 0);
           }
         }),
     ...);
    return one && mesh != nullptr;
  }

  static bool is_same(const DeviceMesh& a, const DeviceMesh& b) {
    return a == b && a.world().rank() == b.world().rank();
  }

  c10::TypedOperatorHandle<R(A...)> op_;
  const c10::FunctionSchema& schema_;  // in the dispatcher's entry, as op_
  c10::BoxedKernel boxed_;
};

/// Returns a kernel of the operator's own signature, or nothing where that is
/// no common one.
std::optional<c10::KernelFunction> typed_kernel(
    const c10::OperatorHandle& op, const c10::BoxedKernel& boxed);
std::optional<c10::KernelFunction> typed_composite(
    const c10::OperatorHandle& op, const c10::BoxedKernel& boxed);

}  // namespace tessera::detail::inline tensor_layer
