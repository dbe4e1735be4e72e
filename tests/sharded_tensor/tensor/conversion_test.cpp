// Between ShardedTensor and at::Tensor with placements.
#include <sharded_tensor/tensor/family_test.h>

namespace tessera::sharded_tensor {
namespace {

using namespace tessera::testing;
using Ints = std::vector<int64_t>;

TEST(ToDTensor, SharesMemoryAndPlacements) {
  run_ranks(4, [] {
    const at::Tensor whole = counting({9, 6});
    for (const Ints& ranks :
         {Ints{0, 1, 2, 3}, Ints{2, 0, 3, 1}, Ints{3, 1}, Ints{2}}) {
      for (const int64_t dim : {0, 1, -1}) {
        const auto t = shard_tensor(whole, chunks(dim, ranks));
        const at::Tensor d = to_dtensor(t);
        EXPECT_EQ(placements(d), Placements{tessera::Shard(dim < 0 ? 1 : dim)});
        EXPECT_EQ(device_mesh(d).mesh_shape().ranks(), ranks);
        if (device_mesh(d).coordinate()) {
          EXPECT_TRUE(to_local(d).is_alias_of(t.local_tensor()));
          EXPECT_TRUE(same(d, whole));
        } else {
          EXPECT_TRUE(t.local_shards().empty());
        }
      }
    }
  });
}

TEST(ToDTensor, GridsAndOtherCutsHaveAMesh) {
  run_ranks(4, [] {
    const at::Tensor whole = counting({10, 10});
    const auto square = shard_tensor(whole, grid(5, {3, 1, 2, 0}));
    EXPECT_TRUE(has_mesh(square));
    EXPECT_EQ(
        to_string(placements(to_dtensor(square))),
        to_string(Placements{tessera::Shard(0), tessera::Shard(1)}));
    EXPECT_TRUE(same(to_dtensor(square), whole));
    // Cut points of any kind.
    const auto ragged = shard_tensor(
        whole, EnumerableShardingSpec(
                   {box_of({0, 0}, {1, 10}, 2), box_of({1, 0}, {6, 10}, 0),
                    box_of({7, 0}, {0, 10}, 1), box_of({7, 0}, {3, 10}, 3)}));
    ASSERT_TRUE(has_mesh(ragged));
    EXPECT_TRUE(same(to_dtensor(ragged), whole));
    // Operators of LibTorch work on it.
    EXPECT_TRUE(close(
        at::matmul(to_dtensor(ragged).t(), to_dtensor(ragged)),
        at::matmul(whole.t(), whole)));
  });
}

TEST(ToDTensor, TilingsWithoutAMeshAreAnError) {
  run_ranks(4, [] {
    const auto t = ones(chunks(0, {0, 0, 1, 1}), {8, 2});
    EXPECT_FALSE(has_mesh(t));
    EXPECT_THROWN(
        c10::NotImplementedError, "no mesh has the shards", to_dtensor(t));
  });
}

TEST(ToDTensor, GradientsReachTheShards) {
  run_ranks(4, [] {
    const at::Tensor whole = distinct({9, 6}).set_requires_grad(true);
    for (const Ints& ranks : {Ints{1, 3, 0, 2}, Ints{2, 1}}) {
      const auto t = shard_tensor(whole, chunks(0, ranks));
      at::pow(to_dtensor(t), 3).sum().backward();
      const at::Tensor want = 3 * whole.detach().pow(2);
      if (!t.local_shards().empty()) {
        EXPECT_TRUE(close(
            t.grad()->local_tensor(),
            narrow_tensor(want, t.local_shards()[0].metadata)));
      }
    }
  });
}

TEST(FromDTensor, EveryLayoutWithoutPartial) {
  run_ranks(4, [] {
    const at::Tensor whole = counting({9, 7});
    const DeviceMesh line = mesh_of({4});
    const DeviceMesh square = mesh_of({2, 2});
    const std::vector<std::pair<DeviceMesh, Placements>> layouts = {
        {line, {tessera::Shard(0)}},
        {line, {tessera::Shard(1)}},
        {line, {Replicate()}},
        {line, {RaggedShard(0, {2, 0, 6, 1})}},
        {square, {tessera::Shard(0), tessera::Shard(1)}},
        {square, {tessera::Shard(0), tessera::Shard(0)}},
        {square, {StridedShard(0, 2), tessera::Shard(0)}},
        {square, {StridedShard(1, 3), Replicate()}},
        {square, {Replicate(), tessera::Shard(1)}}};
    for (const auto& [mesh, how] : layouts) {
      const at::Tensor d = distribute_tensor(whole, mesh, how);
      const auto t = from_dtensor(d);
      EXPECT_TRUE(shards_are(t, whole)) << to_string(how);
      EXPECT_TRUE(same(whole_value(t), whole)) << to_string(how);
      for (const Shard& shard : t.local_shards()) {
        EXPECT_TRUE(
            shard.tensor.numel() == 0 || shard.tensor.is_alias_of(to_local(d)));
      }
      const bool copies = std::any_of(
          how.begin(), how.end(),
          [](const Placement& p) { return p.is_replicate(); });
      EXPECT_TRUE(copies || to_dtensor(t).is_same(d));
    }
    EXPECT_TRUE(
        from_dtensor(distribute_tensor(whole, line, {tessera::Shard(-1)}))
            .sharding_spec() == chunks(1, {0, 1, 2, 3}));
    const at::Tensor partial = from_local(whole, line, {Partial()});
    EXPECT_THROWN(c10::ValueError, "Partial", from_dtensor(partial));
    EXPECT_THROWN(c10::TypeError, "not sharded", from_dtensor(whole));
  });
}

TEST(FromDTensor, GradientsAreThoseOfTheTensor) {
  run_ranks(4, [] {
    const at::Tensor whole = distinct({9, 7});
    const at::Tensor d =
        distribute_tensor(whole, mesh_of({4}), {tessera::Shard(0)})
            .set_requires_grad(true);
    const auto t = from_dtensor(d);
    EXPECT_TRUE(t.requires_grad());
    (t.local_tensor() * 2).sum().backward();
    EXPECT_TRUE(same(d.grad(), at::full({9, 7}, 2.0, f64())));
    EXPECT_TRUE(shards_are(*t.grad(), at::full({9, 7}, 2.0, f64())));
  });
}

TEST(FromDTensor, RoundTripsKeepTheSpec) {
  run_ranks(4, [] {
    const at::Tensor whole = counting({10, 10});
    for (const ShardingSpecPtr& spec :
         {chunks(0, {2, 1, 0, 3}).clone(), chunks(1, {3, 0}).clone(),
          grid(5, {1, 0, 3, 2}).clone()}) {
      const auto t = shard_tensor(whole, *spec);
      const auto back = from_dtensor(to_dtensor(t));
      EXPECT_TRUE(back.sharding_spec() == *spec);
      EXPECT_EQ(back.metadata(), t.metadata());
    }
  });
}

}  // namespace
}  // namespace tessera::sharded_tensor
