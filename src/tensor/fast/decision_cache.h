// The cache of decisions, by the keys of calls.
//
// Lifetime: an entry holds references to its specs, so that none of the
// addresses in its key is used again for another spec. What find() returned is
// valid until the next insert() or clear() on this thread, or while a Hold
// lives, until that ends. Each thread has its own cache; nothing is locked.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <c10/util/SmallVector.h>
#include <tensor/call/decision.h>
#include <tensor/fast/call_key.h>

namespace tessera::detail::inline tensor_layer {

/// The decisions of one thread, at most capacity(): a set-associative cache. A
/// key's hash names a bucket of kWays entries; a new entry replaces the oldest
/// one of a full bucket.
class DispatchCache {
 public:
  DispatchCache() { clear(); }
  DispatchCache(const DispatchCache&) = delete;
  DispatchCache& operator=(const DispatchCache&) = delete;

  /// Returns the decision of a call with an equal key, or nullptr. For the
  /// lifetime see the top of this file.
  const DecisionPtr* find(const CallKey& key) const;
  const DecisionPtr& insert(
      const CallKey& key, DecisionPtr decision, std::vector<SpecPtr> specs);
  void clear();
  size_t size() const { return size_; }
  static constexpr size_t capacity() { return kBuckets * kWays; }

  /// While it lives, decisions that find() returned stay valid, even if calls
  /// that run inside this one replace their entries.
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
  static constexpr size_t kBuckets = 512;
  static constexpr size_t kWays = 4;
  struct Entry {
    c10::SmallVector<uint64_t, 12> key_data;
    DecisionPtr decision;
    /// References that keep the addresses in key_data from being used again.
    std::vector<SpecPtr> specs;
  };
  struct Bucket {
    std::array<uint64_t, kWays> hashes = {};
    uint8_t oldest = 0;
    std::array<Entry, kWays> entries;
  };

  void push_out(Entry& entry);

  std::vector<std::unique_ptr<Bucket>> buckets_;
  size_t size_ = 0;
  size_t holds_ = 0;
  std::vector<DecisionPtr> pushed_out_;
};

}  // namespace tessera::detail::inline tensor_layer
