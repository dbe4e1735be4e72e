// The keys of calls in the cache of decisions. A key is a list of 64-bit
// numbers that holds all that decide() reads of a call; two calls with equal
// keys have equal decisions.
//
// Example: at::transpose(x, 0, 1), x: f32[8, 16] S(0), has the key
//   address of the schema, address of x's spec, kInt, 0, kInt, 1
// The same call with another tensor of that spec finds the decision again. With
// x: f32[8, 16] S(1) it does not, since the second number differs.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include <ATen/core/IListRef.h>
#include <c10/util/SmallVector.h>
#include <tensor/call/op_traits.h>
#include <tensor/impl/sharded_impl.h>

namespace tessera::detail::inline tensor_layer {

/// The key of a call: the address of its schema, the address of each tensor's
/// spec (specs are interned: equal specs have one address), and the static
/// arguments that its rule reads.
class CallKey {
  // What precedes a value, so that values of different kinds never look alike.
  // Spec addresses are even and large.
  enum Tag : uint64_t {
    kNone = 1,
    kUndefined = 3,
    kNumber = 5,  // a plain tensor without dims
    kPlain = 7,   // a plain tensor with dims
    kList = 9,    // its length follows
    kInt = 11,
    kDouble = 13,
    kBool = 15,
    kText = 17,
    kOther = 19
  };

 public:
  /// Makes the key of a call from its stack. All sharded tensors of the call
  /// must be on one mesh.
  CallKey(const OpCall& call, const OpTraits& traits);
  /// Begins the key of a call whose arguments follow by add_argument(), in the
  /// order of the schema. The result equals the key made from its stack.
  explicit CallKey(const c10::FunctionSchema& schema) {
    add(reinterpret_cast<uintptr_t>(&schema));
  }
  template <class T>
  void add_argument(const ArgumentTraits& traits, const T& value) {
    if constexpr (is_tensor_argument<T>) {
      add_typed(value);
    } else if (traits.keyed) {
      add_typed(value);
    }
  }

  /// Returns false if an argument cannot be part of a key (a complex number, a
  /// symbolic size); the call must then be decided anew and not be cached.
  bool is_complete() const { return complete_; }
  /// Tells whether a cached decision may run on the shards at once: no tensor
  /// has a move pending, points into a copy of its source, or is plain with one
  /// or more dims.
  bool is_simple() const { return simple_; }
  /// Tells whether a sharded tensor requires a gradient.
  bool has_variable() const { return variable_; }
  /// Returns a hash whose low bits depend on the whole key.
  uint64_t hash() const { return hash_ ^ hash_ >> 32; }
  c10::ArrayRef<uint64_t> key_data() const { return key_data_; }
  /// Returns the specs whose addresses the key holds. A cache entry keeps them
  /// alive.
  std::vector<SpecPtr> specs(const OpCall& call) const;

 private:
  template <class T>
  static constexpr bool is_tensor_argument =
      std::is_same_v<T, at::Tensor> ||
      std::is_same_v<T, std::optional<at::Tensor>> ||
      std::is_same_v<T, at::TensorList> ||
      std::is_same_v<T, at::ITensorListRef>;

  void add(uint64_t word) {
    key_data_.push_back(word);
    hash_ = (hash_ + word) * 0x9e3779b97f4a7c15ULL;
  }
  void add_tensor(const at::Tensor& t) {
    if (is_sharded(t)) {
      const ShardedMeta& meta = meta_nowait(t);
      if (!meta.is_own || meta.is_pending()) {
        simple_ = false;
      }
      variable_ = variable_ || t.requires_grad();
      add(reinterpret_cast<uintptr_t>(meta.spec.get()));
    } else {
      add_other(t);
    }
  }
  void add_other(const at::Tensor& t);
  void add_static(const c10::IValue& value);
  void add_plain(const at::Tensor& t);

  void add_none() { add(kNone); }
  void begin_list(size_t size) {
    add(kList);
    add(size);
  }
  void add_typed(const at::Tensor& t) { add_tensor(t); }
  void add_typed(int64_t value) {
    add(kInt);
    add(static_cast<uint64_t>(value));
  }
  void add_typed(double value) {
    add(kDouble);
    add(std::bit_cast<uint64_t>(value));
  }
  void add_typed(bool value) { add(kBool | uint64_t{value} << 8); }
  void add_typed(const c10::SymInt& value) {
    const auto number = value.maybe_as_int();
    complete_ = complete_ && number.has_value();
    add_typed(number.value_or(0));
  }
  void add_typed(const at::Scalar& value) {
    if (value.type() == at::kLong && !value.isSymbolic()) {
      add_typed(value.toLong());
    } else {
      add_scalar(value);
    }
  }
  void add_scalar(const at::Scalar& value);
  void add_typed(std::string_view text);
  void add_typed(c10::ScalarType value) {
    add_typed(static_cast<int64_t>(value));
  }
  void add_typed(c10::MemoryFormat value) {
    add_typed(static_cast<int64_t>(value));
  }
  template <class T>
  void add_typed(const std::optional<T>& value) {
    value ? add_typed(*value) : add_none();
  }
  void add_typed(const at::OptionalIntArrayRef& value) {
    value ? add_typed(*value) : add_none();
  }
  template <class T>
  void add_typed(c10::ArrayRef<T> list) {
    begin_list(list.size());
    for (const T& element : list) {
      add_typed(element);
    }
  }
  void add_typed(const at::ITensorListRef& list) {
    begin_list(list.size());
    for (const at::Tensor& t : list) {
      add_tensor(t);
    }
  }
  template <size_t kSize>
  void add_typed(const std::array<bool, kSize>& list) {
    begin_list(kSize);
    for (const bool element : list) {
      add_typed(element);
    }
  }

  c10::SmallVector<uint64_t, 24> key_data_;
  uint64_t hash_ = 0x51ed270b;
  bool complete_ = true;
  bool simple_ = true;
  bool variable_ = false;
};

}  // namespace tessera::detail::inline tensor_layer
