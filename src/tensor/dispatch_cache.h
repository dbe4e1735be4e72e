// Decisions by call: what a call needs to know about itself is a row of words,
// and calls with equal words are decided alike.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <c10/util/SmallVector.h>
#include <tensor/decision.h>

namespace tessera::detail {

/// The words of a call: its operator, the address of each tensor's spec (specs
/// are interned), and the static arguments that its rule reads.
class CallKey {
 public:
  /// Reads a call; every tensor of it is on `mesh` or plain.
  CallKey(const OpCall& call, const OpTraits& traits);

  /// Tells whether the call has words: a value that is none, such as a complex
  /// number, makes it one of its own.
  bool is_complete() const { return complete_; }
  /// Tells whether every tensor can be used as it stands: none is on its way,
  /// a view into a copy, or plain with dims.
  bool is_simple() const { return simple_; }
  /// Tells whether a sharded tensor requires a gradient.
  bool has_variable() const { return variable_; }
  uint64_t hash() const { return hash_; }
  c10::ArrayRef<uint64_t> words() const { return words_; }
  /// Returns the specs behind the addresses.
  std::vector<SpecPtr> specs(const OpCall& call) const;

 private:
  void add(uint64_t word) {
    words_.push_back(word);
    hash_ = (hash_ ^ word) * 0x9e3779b97f4a7c15ULL;
    hash_ ^= hash_ >> 29;
  }
  void add_tensor(const at::Tensor& t);
  void add_static(const c10::IValue& value);
  void add_plain(const at::Tensor& t);

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
  const DecisionPtr* find(const CallKey& key);
  const DecisionPtr& insert(
      const CallKey& key, DecisionPtr decision, std::vector<SpecPtr> specs);
  void clear();
  size_t size() const { return size_; }
  static constexpr size_t capacity() { return kPlaces * kWays; }

 private:
  static constexpr size_t kPlaces = 512;
  static constexpr size_t kWays = 4;
  struct Entry {
    uint64_t hash = 0;
    c10::SmallVector<uint64_t, 12> words;
    DecisionPtr decision;
    /// Keeps the addresses in the words from being used again.
    std::vector<SpecPtr> specs;
  };
  struct Place {
    std::array<Entry, kWays> entries;
    uint8_t oldest = 0;
  };

  std::vector<std::unique_ptr<Place>> places_;
  size_t size_ = 0;
  uint64_t generation_ = 0;  // of the traits
};

/// What dispatch keeps per thread.
struct ThreadDispatch {
  DispatchCache cache;
  /// Calls that reached our kernels.
  int64_t calls = 0;

  static ThreadDispatch& here() {
    // A plain pointer, so that an access needs no check for a first one.
    static thread_local ThreadDispatch* mine = nullptr;
    return mine != nullptr ? *mine : *(mine = make());
  }

 private:
  static ThreadDispatch* make();
};

}  // namespace tessera::detail
