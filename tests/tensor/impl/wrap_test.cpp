// Wrappers that are made of forms and spare parts are whole, and what threads
// hand on to each other is neither lost nor used twice.
#include <harness/sharded_test.h>

#include <atomic>
#include <set>
#include <thread>

#include <tensor/fast/decision_cache.h>
#include <tensor/state/object_pool.h>

namespace tessera {
namespace {

using testing::close;
using testing::distinct;
using testing::mesh_of;

TEST(Wrappers, OfSparePartsHaveTheErrorTexts) {
  run_ranks(1, [] {
    const DeviceMesh mesh = mesh_of({1});
    for (int i = 0; i < 200; ++i) {
      const at::Tensor a = ones({2, 2}, mesh, {Shard(0)});
      const at::Tensor b = a + a;
      if (i % 50 == 49) {
        EXPECT_ERROR("to_local", b.data_ptr());
        EXPECT_ERROR("full_tensor", b.storage());
      }
    }
  });
}

TEST(Wrappers, HaveVersionsOfTheirShards) {
  run_ranks(1, [] {
    const DeviceMesh mesh = mesh_of({1});
    for (int i = 0; i < 3; ++i) {
      const at::Tensor a = ones({2, 2}, mesh, {Shard(0)}) + 1;
      const auto before = a._version();
      a.add_(1);
      EXPECT_EQ(a._version(), before + 1);
      EXPECT_EQ(to_local(a)._version(), a._version());
      const at::Tensor view = a.t();
      view.mul_(2);
      EXPECT_EQ(a._version(), before + 2);
    }
  });
}

TEST(Wrappers, OfInferenceModeAreInferenceTensors) {
  run_ranks(1, [] {
    const DeviceMesh mesh = mesh_of({1});
    const at::Tensor a = ones({2, 2}, mesh, {Shard(0)});
    for (int i = 0; i < 3; ++i) {
      EXPECT_FALSE((a + a).is_inference());
      const c10::InferenceMode mode;
      const at::Tensor b = a + a;
      EXPECT_TRUE(b.is_inference());
      EXPECT_FALSE(a.t().is_inference());
      EXPECT_TRUE(b.t().is_inference());
    }
  });
}

TEST(Wrappers, MayDieAfterTheirThreadsData) {
  run_simulated({.rank = 0, .size = 1}, [] {
    // Made before the thread's spare parts are, so it ends after them.
    static thread_local at::Tensor late;
    const DeviceMesh mesh = mesh_of({1});
    late = ones({2, 2}, mesh, {Shard(0)}) + 1;
  });
}

TEST(Wrappers, MayDieOnAnotherThread) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    for (int i = 0; i < 20; ++i) {
      std::vector<at::Tensor> many;
      for (int k = 0; k < 100; ++k) {
        many.push_back(ones({2, 2}, mesh, {Shard(0)}) + k);
      }
      std::thread([moved = std::move(many)]() mutable {
        moved.clear();
      }).join();
    }
    EXPECT_TRUE(close(
        full_tensor(ones({2, 2}, mesh, {Shard(0)}) + 1),
        at::full({2, 2}, 2.0, testing::f32())));
  });
}

TEST(Wrappers, OfViewsAreWhatTheirSourceIs) {
  run_ranks(1, [] {
    const DeviceMesh mesh = mesh_of({1});
    const at::Tensor normal = ones({2, 2}, mesh, {Shard(0)});
    at::Tensor inferred;
    {
      const c10::InferenceMode mode;
      inferred = normal + normal;
    }
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(inferred.t().is_inference());
      EXPECT_TRUE(inferred.detach().is_inference());
      EXPECT_FALSE((inferred + normal).is_inference());
      const c10::InferenceMode mode;
      EXPECT_FALSE(normal.detach().is_inference());
      EXPECT_FALSE(normal.view({4}).is_inference());
    }
  });
}

TEST(Wrappers, OfViewsDoNotDependOnTheirShards) {
  run_ranks(1, [] {
    const DeviceMesh mesh = mesh_of({1});
    at::Tensor inferred;
    {
      const c10::InferenceMode mode;
      inferred = distinct({2, 3});
    }
    const at::Tensor a = from_local(inferred, mesh, {Shard(0)});
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(a.t().is_inference(), a.is_inference());
      EXPECT_TRUE(close(a.t(), distinct({2, 3}).t()));
      EXPECT_TRUE(close(a.view({6}) + 1, distinct({2, 3}).view({6}) + 1));
    }
  });
}

TEST(Wrappers, FollowShardsOfOtherFormsInOneDecision) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    const at::Tensor whole = distinct({4, 6});
    for (int i = 0; i < 3; ++i) {
      for (const bool turned : {false, true}) {
        // Equal specs over shards that lie differently in memory.
        const at::Tensor local = whole.narrow(0, rank() * 2, 2);
        const at::Tensor a = from_local(
            turned ? local.t().contiguous().t() : local.clone(), mesh,
            {Shard(0)});
        EXPECT_TRUE(close(a + a, whole + whole));
        EXPECT_TRUE(close(a.t(), whole.t()));
        EXPECT_TRUE(close(at::softmax(a, 1), at::softmax(whole, 1)));
      }
    }
  });
}

// Counts what was made of it and what exists.
struct Counted {
  static inline std::atomic<int> made = 0;
  static inline std::atomic<int> alive = 0;
  static int* make() {
    ++made;
    ++alive;
    return new int(0);
  }
  static void drop(int* part) {
    --alive;
    delete part;
  }
};

TEST(SpareParts, AreHandedOnBetweenThreads) {
  constexpr int kParts = 4 * 64;
  std::set<int*> made;
  detail::ObjectPool<Counted> maker;
  for (int i = 0; i < kParts; ++i) {
    made.insert(maker.take());
  }
  ASSERT_EQ(Counted::alive, kParts);
  ASSERT_EQ(made.size(), static_cast<size_t>(kParts));
  std::thread([&] {
    detail::ObjectPool<Counted> other;
    for (int* part : made) {
      other.give(part);
    }
  }).join();
  std::set<int*> again;
  for (int i = 0; i < kParts; ++i) {
    again.insert(maker.take());
  }
  EXPECT_EQ(again.size(), static_cast<size_t>(kParts));
  EXPECT_EQ(Counted::alive, kParts);
  // The other thread's own ones ended with it.
  constexpr int kKept = static_cast<int>(detail::kPoolCapacity);
  EXPECT_LE(Counted::made, kKept == 0 ? 2 * kParts : kParts + kKept);
  for (int* part : again) {
    maker.give(part);
  }
}

TEST(SpareParts, OfManyThreadsAreNotUsedTwice) {
  const auto work = [] {
    detail::ObjectPool<Counted> spare;
    std::vector<int*> held;
    for (int i = 0; i < 20000; ++i) {
      if (i % 300 < 150) {
        held.push_back(spare.take());
        ASSERT_EQ((*held.back())++, 0) << "somebody else has it";
      } else {
        --*held.back();
        spare.give(held.back());
        held.pop_back();
      }
    }
    for (int* part : held) {
      *part = 0;
      spare.give(part);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back(work);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// A decision that a running call uses outlives its place in the cache.
TEST(DispatchCache, HoldsWhatARunningCallUses) {
  detail::DispatchCache cache;
  const detail::CallKey key(c10::Dispatcher::singleton()
                                .findSchemaOrThrow("aten::relu", "")
                                .schema());
  auto decision = std::make_shared<const detail::Decision>();
  const std::weak_ptr<const detail::Decision> known = decision;
  cache.insert(key, std::move(decision), {});
  {
    const detail::DispatchCache::Hold outer(cache);
    {
      const detail::DispatchCache::Hold inner(cache);
      ASSERT_NE(cache.find(key), nullptr);
      cache.clear();
      EXPECT_EQ(cache.find(key), nullptr);
    }
    EXPECT_FALSE(known.expired());
  }
  EXPECT_TRUE(known.expired());
}

}  // namespace
}  // namespace tessera
