// Parts of dead tensors that serve the next ones.
//
// Note [Spare parts]
// Every result of every call needs a wrapper, its meta and its error texts, and
// most results die soon. Each thread keeps what died on it. Gradients are made
// on LibTorch's threads for backward passes and die on others, so threads hand
// whole batches on to each other when they have too many or none.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <vector>

namespace tessera::detail {

/// How many parts of a kind a thread keeps. None, where a sanitizer must see
/// every end.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kMostSpare = 0;
#else
constexpr size_t kMostSpare = 64;
#endif

/// The spare parts of one kind on one thread. `Kind` has make() and drop().
template <class Kind>
class SpareParts {
 public:
  using Part = decltype(Kind::make());

  SpareParts() = default;
  SpareParts(const SpareParts&) = delete;
  SpareParts& operator=(const SpareParts&) = delete;
  ~SpareParts() {
    while (count_ > 0) {
      Kind::drop(parts_[--count_]);
    }
  }

  Part take() { return count_ > 0 ? parts_[--count_] : take_slowly(); }
  void give(Part part) {
    if (count_ < kMostSpare) {
      parts_[count_++] = part;
    } else {
      give_slowly(part);
    }
  }

 private:
  static constexpr size_t kBatch = kMostSpare / 2;
  using Batch = std::array<Part, kBatch>;
  // What threads hand on to each other.
  struct Depot {
    static constexpr size_t kMostBatches = 16;
    std::mutex mutex;
    std::vector<Batch> batches;
  };
  static Depot& depot() {
    static auto* depot = new Depot();  // threads may outlive statics
    return *depot;
  }

  [[gnu::noinline]] Part take_slowly() {
    if constexpr (kBatch > 0) {
      Depot& shared = depot();
      const std::lock_guard<std::mutex> lock(shared.mutex);
      if (!shared.batches.empty()) {
        for (const Part part : shared.batches.back()) {
          parts_[count_++] = part;
        }
        shared.batches.pop_back();
        return parts_[--count_];
      }
    }
    return Kind::make();
  }

  [[gnu::noinline]] void give_slowly(Part part) {
    if constexpr (kBatch > 0) {
      Depot& shared = depot();
      const std::lock_guard<std::mutex> lock(shared.mutex);
      if (shared.batches.size() < Depot::kMostBatches) {
        Batch& batch = shared.batches.emplace_back();
        for (Part& slot : batch) {
          slot = parts_[--count_];
        }
        parts_[count_++] = part;
        return;
      }
    }
    Kind::drop(part);
  }

  std::array<Part, kMostSpare> parts_ = {};
  size_t count_ = 0;
};

}  // namespace tessera::detail
