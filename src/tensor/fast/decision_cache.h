// The decisions of calls that were met before, by their keys.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <c10/util/SmallVector.h>
#include <tensor/call/decision.h>
#include <tensor/fast/call_key.h>

namespace tessera::detail {

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
  static constexpr size_t capacity() { return kBuckets * kWays; }

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
  static constexpr size_t kBuckets = 512;
  static constexpr size_t kWays = 4;
  struct Entry {
    c10::SmallVector<uint64_t, 12> key_data;
    DecisionPtr decision;
    /// Keeps the addresses in the words from being used again.
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

}  // namespace tessera::detail
