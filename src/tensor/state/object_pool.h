// Parts of dead tensors that serve the next ones.
//
// Note [Object pools]
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
constexpr size_t kPoolCapacity = 0;
#else
constexpr size_t kPoolCapacity = 64;
#endif

/// The spare parts of one kind on one thread. `Kind` has make() and drop().
template <class Kind>
class ObjectPool {
 public:
  using Object = decltype(Kind::make());

  ObjectPool() = default;
  ObjectPool(const ObjectPool&) = delete;
  ObjectPool& operator=(const ObjectPool&) = delete;
  ~ObjectPool() {
    while (count_ > 0) {
      Kind::drop(objects_[--count_]);
    }
  }

  Object take() { return count_ > 0 ? objects_[--count_] : take_from_depot(); }
  void give(Object object) {
    if (count_ < kPoolCapacity) {
      objects_[count_++] = object;
    } else {
      give_to_depot(object);
    }
  }

 private:
  static constexpr size_t kBatch = kPoolCapacity / 2;
  using Batch = std::array<Object, kBatch>;
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

  [[gnu::noinline]] Object take_from_depot() {
    if constexpr (kBatch > 0) {
      Depot& shared = depot();
      const std::lock_guard<std::mutex> lock(shared.mutex);
      if (!shared.batches.empty()) {
        for (const Object object : shared.batches.back()) {
          objects_[count_++] = object;
        }
        shared.batches.pop_back();
        return objects_[--count_];
      }
    }
    return Kind::make();
  }

  [[gnu::noinline]] void give_to_depot(Object object) {
    if constexpr (kBatch > 0) {
      Depot& shared = depot();
      const std::lock_guard<std::mutex> lock(shared.mutex);
      if (shared.batches.size() < Depot::kMostBatches) {
        Batch& batch = shared.batches.emplace_back();
        for (Object& slot : batch) {
          slot = objects_[--count_];
        }
        objects_[count_++] = object;
        return;
      }
    }
    Kind::drop(object);
  }

  std::array<Object, kPoolCapacity> objects_ = {};
  size_t count_ = 0;
};

}  // namespace tessera::detail
