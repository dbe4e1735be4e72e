// Decisions by call: what a call needs to know about itself is a row of words,
// and calls with equal words are decided alike.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/IListRef.h>
#include <c10/core/AutogradState.h>
#include <c10/util/SmallVector.h>
#include <tensor/call/decision.h>
#include <tensor/state/plain_is_replicated.h>
#include <tensor/state/wrapper_pools.h>

namespace tessera::detail {

class DryRun;

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
  c10::ArrayRef<uint64_t> words() const { return words_; }
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
    words_.push_back(word);
    hash_ = (hash_ + word) * 0x9e3779b97f4a7c15ULL;
  }
  void add_tensor(const at::Tensor& t) {
    if (is_sharded(t)) {
      const ShardedMeta& meta = moving_meta_of(t);
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

  c10::SmallVector<uint64_t, 24> words_;
  uint64_t hash_ = 0x51ed270b;
  bool complete_ = true;
  bool simple_ = true;
  bool variable_ = false;
};

/// The decisions of one thread, a bounded number of them: the newest of calls
/// that share a place push out the oldest.
class DispatchCache {
 public:
  DispatchCache() { clear(); }
  DispatchCache(const DispatchCache&) = delete;
  DispatchCache& operator=(const DispatchCache&) = delete;

  /// Returns the decision of an equal call, or nullptr.
  const DecisionPtr* find(const CallKey& key) const;
  const DecisionPtr& insert(
      const CallKey& key, DecisionPtr decision, std::vector<SpecPtr> specs);
  void clear();
  size_t size() const { return size_; }
  static constexpr size_t capacity() { return kPlaces * kWays; }

  /// While it lives, what find() returned stays, also where calls inside this
  /// one push it out.
  class Hold {
   public:
    explicit Hold(DispatchCache& cache) : cache_(cache) { ++cache_.holds_; }
    [[gnu::always_inline]] ~Hold() {
      if (--cache_.holds_ == 0 && !cache_.pushed_out_.empty()) {
        cache_.pushed_out_.clear();
      }
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    DispatchCache& cache_;
  };

 private:
  static constexpr size_t kPlaces = 512;
  static constexpr size_t kWays = 4;
  struct Entry {
    c10::SmallVector<uint64_t, 12> words;
    DecisionPtr decision;
    /// Keeps the addresses in the words from being used again.
    std::vector<SpecPtr> specs;
  };
  struct Place {
    std::array<uint64_t, kWays> hashes = {};
    uint8_t oldest = 0;
    std::array<Entry, kWays> entries;
  };

  void push_out(Entry& entry);

  std::vector<std::unique_ptr<Place>> places_;
  size_t size_ = 0;
  size_t holds_ = 0;
  std::vector<DecisionPtr> pushed_out_;
};

/// What dispatch keeps per thread.
struct ThreadDispatch {
  DispatchCache cache;
  /// Calls that reached our kernels.
  int64_t calls = 0;
  /// Those of them that needed no stack.
  int64_t typed_calls = 0;
  /// Set while calls are noted down instead of run.
  DryRun* dry_run = nullptr;
  /// What is left of wrappers that died on this thread: see wrap.h.
  WrapperParts spare;

  /// Returns the traits of an operator, and forgets what is out of date.
  const OpTraits& traits_of(const c10::OperatorHandle& op) {
    if (generation_ != traits_generation()) {
      forget();
    }
    return traits_.find(op);
  }

  void count_typed(int64_t calls_more) {
    calls += calls_more;
    typed_calls += calls_more;
  }

  static ThreadDispatch& here() { return mine != nullptr ? *mine : make(); }

 private:
  void forget();

  TraitsCache traits_;
  uint64_t generation_ = 0;  // of the traits

  // A plain pointer that every call reads: as part of the thread's own block
  // of memory it costs one instruction. Few bytes are left there for libraries
  // that a program loads late, so nothing else of ours asks for them.
  static constinit thread_local ThreadDispatch* mine
      __attribute__((tls_model("initial-exec")));
  struct Owner;
  static ThreadDispatch& make();
  static Owner* make_late_owner();
};

/// What every kernel of ours does first.
[[gnu::always_inline]] inline ThreadDispatch& enter_kernel() {
  ensure_registered();
  return ThreadDispatch::here();
}

/// What kernels of views do: in-place writes on views corrupt gradients unless
/// views are replayed. The switch is per thread, and users start threads too.
inline void record_views() {
  c10::AutogradState::get_tls_state().set_view_replay_enabled(true);
}

}  // namespace tessera::detail
