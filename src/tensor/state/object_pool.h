// Object pools: memory of destroyed tensors, used again by the next ones.
//
// Note [Object pools]
// Every result of every call needs memory for a wrapper, its meta and its error
// texts, and most results are destroyed soon. Each thread has a free list per
// kind (a magazine, in Bonwick's words). Gradients are made on LibTorch's
// threads for backward passes and destroyed on others, so a thread whose list
// is full gives half of it to a depot that all threads share, and one whose
// list is empty takes such a batch.
//
// Example, with kPoolCapacity 64: thread A destroys 65 wrappers. The 65th finds
// A's list full: 32 go to the depot, and A keeps 33. Thread B, whose list is
// empty, makes a wrapper: it takes the 32, uses one and keeps 31.
//
// Lifetime: an object is in one list, in the depot, or in use. The lists of a
// thread drop what they hold when the thread ends; the depot lives until the
// process ends.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <vector>

namespace tessera::detail::inline tensor_layer {

/// How many objects of a kind a thread keeps; 0 under AddressSanitizer, which
/// must see every allocation and its end.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kPoolCapacity = 0;
#else
constexpr size_t kPoolCapacity = 64;
#endif

/// The pool of one kind on one thread. `Kind` has make(), which returns a
/// pointer, and drop(pointer). Not locked: only its own thread may use it.
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
  // Batches that threads pass to each other.
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

}  // namespace tessera::detail::inline tensor_layer
