// What a call needs to know about itself to be decided, as a row of words:
// calls with equal words are decided alike.
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

namespace tessera::detail {

/// The words of a call: its operator, the address of each tensor's spec (specs
/// are interned), and the static arguments that its rule reads.
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
  /// Reads a call; every tensor of it is on `mesh` or plain.
  CallKey(const OpCall& call, const OpTraits& traits);
  /// Begins the words of a call whose arguments are added one by one. They are
  /// the same as those of its stack.
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

  /// Tells whether the call has words: a value that is none, such as a complex
  /// number, makes it one of its own.
  bool is_complete() const { return complete_; }
  /// Tells whether every tensor can be used as it stands: none is on its way,
  /// a view into a copy, or plain with dims.
  bool is_simple() const { return simple_; }
  /// Tells whether a sharded tensor requires a gradient.
  bool has_variable() const { return variable_; }
  /// Its low bits depend on all words.
  uint64_t hash() const { return hash_ ^ hash_ >> 32; }
  c10::ArrayRef<uint64_t> key_data() const { return key_data_; }
  /// Returns the specs behind the addresses.
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
      simple_ = simple_ && meta.is_own && !meta.pending;
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

}  // namespace tessera::detail
