// Shards of other ranks: who has how many, and reading them from afar: cases of
// the original's test_sharded_tensor.py, by their names there.
#include <sharded_tensor/tensor/family_test.h>

namespace tessera::sharded_tensor {
namespace {

using namespace tessera::testing;

using Ints = std::vector<int64_t>;

void check_remotes(const ShardedTensor& t) {
  for (const Shard& shard : t.local_shards()) {
    shard.tensor.fill_(static_cast<double>(rank()));
  }
  init().communicator().barrier();
  size_t others = 0;
  for (const auto& [r, shards] : t.remote_shards()) {
    for (const RemoteShard& shard : shards) {
      EXPECT_EQ(*shard.metadata().placement->rank(), r);
      EXPECT_EQ(shard.fetch().sizes(), shard.metadata().shard_sizes);
      EXPECT_TRUE(at::all(shard.fetch() == r).item<bool>());
      ++others;
    }
  }
  EXPECT_EQ(
      others + t.local_shards().size(), t.metadata().shards_metadata.size());
  init().communicator().barrier();
}

TEST(TestShardedTensorChunked, test_complete_world_size) {
  run_ranks(4, [] {
    for (const int64_t dim : {0, -2}) {
      const auto t =
          empty(chunks(dim, {0, 1, 2, 3}), {10, 20}, {.init_remote = true});
      EXPECT_EQ(sizes_of(t, 0), (Ints{3, 3, 3, 1}));
      EXPECT_EQ(offsets_of(t, 0), (Ints{0, 3, 6, 9}));
      EXPECT_EQ(sizes_of(t, 1), (Ints{20, 20, 20, 20}));
      for (int64_t r = 0; r < 4; ++r) {
        EXPECT_EQ(
            to_string(*t.metadata().shards_metadata[r].placement),
            "rank:" + std::to_string(r) + "/" + device_text());
      }
      ASSERT_EQ(t.local_shards().size(), 1);
      EXPECT_EQ(t.local_tensor().sizes(), (Ints{rank() == 3 ? 1 : 3, 20}));
      t.local_tensor().fill_(static_cast<double>(rank()));
      init().communicator().barrier();
      const auto remote = t.remote_shards();
      EXPECT_EQ(remote.size(), 3);
      for (const auto& [r, shards] : remote) {
        ASSERT_EQ(shards.size(), 1);
        EXPECT_NE(r, rank());
        EXPECT_EQ(shards[0].fetch().sizes(), (Ints{r == 3 ? 1 : 3, 20}));
        EXPECT_TRUE(at::all(shards[0].fetch() == r).item<bool>());
      }
      init().communicator().barrier();  // before anyone drops its tensor
    }
  });
}

TEST(TestShardedTensorChunked, test_partial_world_size) {
  run_ranks(4, [] {
    const auto t = empty(chunks(0, {2, 3}), {10, 20}, {.init_remote = true});
    EXPECT_EQ(t.local_shards().size(), rank() < 2 ? 0 : 1);
    EXPECT_EQ(sizes_of(t, 0), (Ints{5, 5}));
    EXPECT_EQ(t.device().str(), device_text());
    check_remotes(t);
  });
}

TEST(TestShardedTensorChunked, test_new_group) {
  run_ranks(4, [] {
    const auto t = empty(
        chunks(0, {2, 3}), {10, 20},
        {.process_group = {1, 2, 3}, .init_remote = true});
    EXPECT_EQ(t.local_shards().size(), rank() < 2 ? 0 : 1);
    EXPECT_EQ(t.process_group().size(), 3);
    check_remotes(t);
    if (rank() > 0) {
      const at::Tensor out =
          rank() == 1 ? at::empty({10, 20}, f32()) : at::Tensor();
      t.gather(0, out);  // group rank 0 is rank 1
      if (rank() == 1) {
        EXPECT_EQ(out[0][0].item<float>(), 2);
        EXPECT_EQ(out[9][0].item<float>(), 3);
      }
    } else {
      EXPECT_ERROR("only members", t.gather(0));
    }
  });
}

TEST(TestShardedTensorChunked, test_multiple_local_shards) {
  run_ranks(4, [] {
    const auto t = empty(
        chunks(0, {0, 1, 2, 3, 0, 1, 2, 3}), {16, 20}, {.init_remote = true});
    ASSERT_EQ(t.local_shards().size(), 2);
    EXPECT_EQ(
        t.local_shards()[0].metadata.shard_offsets, (Ints{2 * rank(), 0}));
    EXPECT_EQ(
        t.local_shards()[1].metadata.shard_offsets, (Ints{2 * rank() + 8, 0}));
    EXPECT_EQ(t.shard_size(), 2 * 2 * 20);
    EXPECT_EQ(ShardedTensor::shard_size(t.metadata().shards_metadata[0]), 40);
    EXPECT_EQ(t.remote_shards().at(rank() == 0 ? 1 : 0).size(), 2);
    check_remotes(t);
  });
}

TEST(TestShardedTensorChunked, test_cleanup) {
  run_ranks(4, [] {
    {
      const auto spec = chunks(0, {0, 1, 2, 3});
      const auto a = empty(spec, {10, 20}, {.init_remote = true});
      const auto b = empty(spec, {10, 20}, {.init_remote = true});
      init().communicator().barrier();
      EXPECT_EQ(remote_tensor_count(), 8);
      init().communicator().barrier();
    }
    init().communicator().barrier();
    EXPECT_EQ(remote_tensor_count(), 0);
  });
}

TEST(DefectD10, AnErrorBeforeRemoteAccessReachesAll) {
  run_ranks(4, [] {
    const auto make = [](int64_t dim) {
      return zeros(chunks(dim, {0, 1, 2, 3}), {8, 4}, {.init_remote = true});
    };
    EXPECT_THROWN(c10::ValueError, "on rank 2: ", make(rank() == 2 ? 5 : 0));
    EXPECT_EQ(make(0).remote_shards().size(), 3);
    init().communicator().barrier();
  });
}

TEST(TestShardedTensorChunked, ADroppedRemoteShardIsAnError) {
  run_ranks(2, [] {
    std::optional<ShardedTensor> t =
        empty(chunks(0, {0, 1}), {4}, {.init_remote = true});
    const RemoteShard other = t->remote_shards().at(1 - rank())[0];
    init().communicator().barrier();
    t.reset();
    init().communicator().barrier();
    EXPECT_ERROR("has dropped", other.fetch());
  });
}

TEST(TestShardedTensorEnumerable, test_grid_sharding) {
  run_ranks(4, [] {
    const auto t =
        empty(grid(5, {0, 1, 2, 3}), {10, 10}, {.init_remote = true});
    EXPECT_EQ(t.local_tensor().sizes(), (Ints{5, 5}));
    EXPECT_EQ(
        t.local_shards()[0].metadata.shard_offsets,
        (Ints{rank() / 2 * 5, rank() % 2 * 5}));
    check_remotes(t);
  });
}

TEST(TestShardedTensorEnumerable, test_partial_world_size) {
  run_ranks(4, [] {
    const auto t = empty(
        EnumerableShardingSpec(
            {box_of({0, 0}, {5, 5}, 0), box_of({5, 0}, {5, 5}, 1)}),
        {10, 5}, {.init_remote = true});
    EXPECT_EQ(t.local_shards().size(), rank() < 2 ? 1 : 0);
    check_remotes(t);
  });
}

TEST(TestShardedTensorEnumerable, test_new_group) {
  run_ranks(4, [] {
    const auto t = empty(
        EnumerableShardingSpec(
            {box_of({0, 0}, {5, 5}, 1), box_of({5, 0}, {5, 5}, 3)}),
        {10, 5}, {.process_group = {1, 2, 3}, .init_remote = true});
    EXPECT_EQ(t.local_shards().size(), rank() % 2);
    check_remotes(t);
  });
}

TEST(TestShardedTensorEnumerable, test_multiple_local_shards) {
  run_ranks(4, [] {
    const auto t =
        empty(grid(5, {0, 0, 1, 1}), {10, 10}, {.init_remote = true});
    EXPECT_EQ(t.local_shards().size(), rank() < 2 ? 2 : 0);
    check_remotes(t);
  });
}

TEST(TestShardedTensorEnumerable, test_with_rpc_names) {
  run_ranks(4, [] {
    const WorkerNames names(
        {{"worker0", 0}, {"worker1", 1}, {"worker2", 2}, {"worker3", 3}});
    const auto at_worker = [](int64_t r) {
      return RemoteDevice("worker" + std::to_string(r) + "/" + device_text());
    };
    const EnumerableShardingSpec spec(
        {{{0, 0}, {5, 5}, at_worker(0)},
         {{0, 5}, {5, 5}, at_worker(1)},
         {{5, 0}, {5, 5}, at_worker(2)},
         {{5, 5}, {5, 5}, at_worker(3)}});
    const auto t = ones(spec, {10, 10}, {.init_remote = true});
    ASSERT_EQ(t.local_shards().size(), 1);
    EXPECT_EQ(
        to_string(*t.local_shards()[0].metadata.placement),
        "worker" + std::to_string(rank()) + "/" + device_text());
    EXPECT_EQ(t.remote_shards().size(), 3);
    EXPECT_TRUE(same(whole_value(t), at::ones({10, 10}, f32())));
  });
}

}  // namespace
}  // namespace tessera::sharded_tensor
