// The local arguments of a typed call: for each argument of the call on sharded
// tensors, by its C++ type, the argument of the call on this rank's shards.
#pragma once

#include <optional>
#include <type_traits>

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/util/SmallVector.h>
#include <tensor/call/decision.h>
#include <tensor/impl/sharded_impl.h>

namespace tessera::detail::inline tensor_layer {

/// Calls f(t) for every tensor in an argument.
template <class T, class F>
void for_each_typed(const T& argument, F&& f) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    f(argument);
  } else if constexpr (std::is_same_v<T, std::optional<at::Tensor>>) {
    if (argument) {
      f(*argument);
    }
  } else if constexpr (
      std::is_same_v<T, at::TensorList> ||
      std::is_same_v<T, at::ITensorListRef>) {
    for (const at::Tensor& t : argument) {
      f(t);
    }
  }
}

inline const at::Tensor& shard_of(const at::Tensor& t) {
  return is_sharded(t) ? meta_nowait(t).local : t;
}

/// Borrows a shard for the time of a call, without counting a reference. Sound
/// because the sharded tensors on the caller's side own their shards until the
/// call returns, and no kernel on shards replaces them: LibTorch's own never
/// see the sharded tensors, and operators of other libraries have no typed
/// calls.
using Borrowed = c10::MaybeOwnedTraits<at::Tensor>;

/// Argument `number` of the call on this rank's shards. What get() returns is
/// valid while this object and the argument that it was made from live.
template <class T>
class LocalArgument {
 public:
  LocalArgument(const T& given, const Decision&, size_t) : given_(given) {}
  const T& get() const { return given_; }

 private:
  const T& given_;
};

template <>
class LocalArgument<at::Tensor> {
 public:
  LocalArgument(const at::Tensor& given, const Decision&, size_t)
      : shard_(shard_of(given)) {}
  // An operator that writes takes it as at::Tensor&, and changes its elements.
  at::Tensor& get() const { return const_cast<at::Tensor&>(shard_); }

 private:
  const at::Tensor& shard_;
};

template <>
class LocalArgument<std::optional<at::Tensor>> {
 public:
  LocalArgument(
      const std::optional<at::Tensor>& given, const Decision&, size_t) {
    if (given) {
      shard_.emplace(Borrowed::createBorrow(shard_of(*given)));
    }
  }
  ~LocalArgument() {
    if (shard_) {
      Borrowed::destroyBorrow(*shard_);
    }
  }
  LocalArgument(const LocalArgument&) = delete;
  LocalArgument& operator=(const LocalArgument&) = delete;
  const std::optional<at::Tensor>& get() const { return shard_; }

 private:
  std::optional<at::Tensor> shard_;
};

/// A list of tensors, of whatever C++ type.
template <class List>
class LocalTensors {
 public:
  LocalTensors(const List& given, const Decision&, size_t) {
    for (const at::Tensor& t : given) {
      shards_.push_back(Borrowed::createBorrow(shard_of(t)));
    }
  }
  ~LocalTensors() {
    for (at::Tensor& t : shards_) {
      Borrowed::destroyBorrow(t);
    }
  }
  LocalTensors(const LocalTensors&) = delete;
  LocalTensors& operator=(const LocalTensors&) = delete;
  List get() const { return at::TensorList(shards_); }

 private:
  c10::SmallVector<at::Tensor, 4> shards_;
};

template <>
class LocalArgument<at::TensorList> : public LocalTensors<at::TensorList> {
  using LocalTensors::LocalTensors;
};
template <>
class LocalArgument<at::ITensorListRef>
    : public LocalTensors<at::ITensorListRef> {
  using LocalTensors::LocalTensors;
};

/// Sizes of a shard, where the decision names some.
template <>
class LocalArgument<at::IntArrayRef> {
 public:
  LocalArgument(at::IntArrayRef given, const Decision& decision, size_t number)
      : list_(given) {
    for (const auto& [n, list] : decision.local_lists) {
      if (n == number) {
        list_ = list;
      }
    }
  }
  at::IntArrayRef get() const { return list_; }

 private:
  at::IntArrayRef list_;
};
template <>
class LocalArgument<c10::SymIntArrayRef> {
 public:
  LocalArgument(
      c10::SymIntArrayRef given, const Decision& decision, size_t number)
      : list_(given) {
    for (const auto& [n, list] : decision.local_lists) {
      if (n == number) {
        list_ = c10::fromIntArrayRefKnownNonNegative(list);
      }
    }
  }
  c10::SymIntArrayRef get() const { return list_; }

 private:
  c10::SymIntArrayRef list_;
};

}  // namespace tessera::detail::inline tensor_layer
