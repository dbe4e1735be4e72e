// Corners where ranks hold different things: copies, nothing, equal nothings,
// other grad modes, other calls.
#include <sharded_tensor/tensor/family_test.h>
#include <tessera/sharded_tensor/ops.h>
#include <tessera/sharded_tensor/shard_module.h>

namespace tessera::sharded_tensor {
namespace {

using namespace tessera::testing;
using Ints = std::vector<int64_t>;

// A loss over this rank's shards, with its place in the graph where it has
// none.
at::Tensor loss_of(const ShardedTensor& t) {
  at::Tensor loss = t.graph_anchor().sum();
  for (const Shard& shard : t.local_shards()) {
    loss = loss + shard.tensor.sum();
  }
  return loss;
}

TEST(Copies, WritesReachTheOwnerAndLaterReadsComeFromThere) {
  run_ranks(2, [] {
    const auto t = from_dtensor(
        distribute_tensor(counting({4}), mesh_of({2}), {Replicate()}));
    mul_(t, 10.0);
    const auto sum = dispatch("aten::sum", {t});
    EXPECT_EQ(std::get<c10::IValue>(sum[0]).toTensor().item<double>(), 60);
  });
}

TEST(Copies, GradientsOfAllCopiesAreThoseOfTheOwner) {
  run_ranks(4, [] {
    const std::vector<std::pair<DeviceMesh, Placements>> layouts = {
        {mesh_of({4}), {Replicate()}},
        {mesh_of({2, 2}), {Replicate(), tessera::Shard(0)}}};
    for (const auto& [mesh, how] : layouts) {
      const at::Tensor d =
          distribute_tensor(counting({4}), mesh, how).set_requires_grad(true);
      loss_of(from_dtensor(d).resharded(chunks(0, {3, 1}))).backward();
      EXPECT_TRUE(
          same(to_local(d.grad()), at::ones(to_local(d).sizes(), f64())));
      EXPECT_TRUE(same(d.grad(), at::ones({4}, f64())));
    }
  });
}

TEST(RemoteShards, OfASubGroupFollowAReshard) {
  run_ranks(3, [] {
    auto t = ones(
        chunks(0, {0, 1}), {4}, {.process_group = {0, 1}, .init_remote = true});
    if (rank() < 2) {
      const auto old = t.remote_shards().at(1 - rank())[0];
      t.reshard(chunks(0, {1, 0}));
      EXPECT_ERROR("cut its tensor anew", old.fetch());
      EXPECT_EQ(t.remote_shards().at(1 - rank())[0].fetch().numel(), 2);
      const auto again = init_from_local_shards(
          t.local_shards(), {4},
          {.process_group = {0, 1}, .init_remote = true});
      EXPECT_EQ(again.remote_shards().size(), 1);
      t.process_group().communicator().barrier();
    }
    init().communicator().barrier();
  });
}

TEST(GradMode, ALeafStaysALeafAndANewTensorHasNoGradient) {
  run_ranks(2, [] {
    auto t = ones(chunks(0, {0, 1}), {4}, {.requires_grad = true});
    {
      const at::NoGradGuard no_grad;
      EXPECT_FALSE(t.resharded(chunks(0, {1, 0})).requires_grad());
      t.reshard(chunks(0, {1, 0}));
    }
    EXPECT_TRUE(t.requires_grad());
    EXPECT_TRUE(t.local_tensor().requires_grad() && t.local_tensor().is_leaf());
    EXPECT_TRUE(t.graph_anchor().requires_grad());
    at::AutoGradMode mode(rank() == 0);
    EXPECT_ERROR("same grad mode", t.resharded(chunks(0, {0, 1})));
  });
}

struct FailingSharder final : Sharder {
  Replacement shard(const std::shared_ptr<torch::nn::Module>& module) override {
    TORCH_CHECK(rank() != 1, "I fail");
    shard_parameter(*module, "weight", chunks(0, {0, 1}));
    return module;
  }
};

TEST(Agreement, InsideAnotherIsNotReachedTwice) {
  run_ranks(2, [] {
    torch::nn::Sequential net(torch::nn::Linear(4, 4));
    EXPECT_ERROR(
        "on rank 1: I fail",
        shard_module(
            net, {.plan = {{"0", std::make_shared<FailingSharder>()}}}));
    init().communicator().barrier();
  });
}

TEST(Agreement, OfDifferentCallsNamesBoth) {
  run_ranks(2, [] {
    auto t = ones(chunks(0, {0, 1}), {4});
    const auto call = [&] {
      if (rank() == 0) {
        init_from_local_shards(t.local_shards(), {4});
      } else {
        t.reshard(chunks(0, {1, 0}));
      }
    };
    EXPECT_ERROR(
        "rank 0 calls init_from_local_shards, rank 1 calls reshard", call());
    init().communicator().barrier();
  });
}

TEST(EmptyShards, OfAnotherShapeFormAMesh) {
  run_ranks(3, [] {
    const at::Tensor whole = distinct({4, 4});
    const auto t = shard_tensor(
        whole, EnumerableShardingSpec(
                   {box_of({0, 0}, {2, 4}, 0), box_of({2, 0}, {2, 4}, 1),
                    box_of({0, 0}, {2, 0}, 2)}));
    ASSERT_TRUE(has_mesh(t));
    EXPECT_TRUE(same(to_dtensor(t), whole));
    EXPECT_TRUE(close(whole_value(relu(t)), at::relu(whole)));
  });
}

TEST(EmptyShards, SeveralOfOneRankHaveGradientsEach) {
  run_ranks(2, [] {
    const auto t = ones(chunks(0, {0, 1, 1}), {1, 2}, {.requires_grad = true});
    loss_of(relu(t)).backward();
    EXPECT_TRUE(t.grad().has_value());
  });
}

TEST(EmptyShards, OfStridedCutsAreOneBox) {
  run_ranks(4, [] {
    for (const Ints& sizes : {Ints{1, 4}, Ints{3, 1}, Ints{0, 4}, Ints{5, 5}}) {
      const at::Tensor whole = counting(sizes);
      const auto t = from_dtensor(distribute_tensor(
          whole, mesh_of({2, 2}), {StridedShard(1, 2), StridedShard(0, 2)}));
      EXPECT_TRUE(same(whole_value(t), whole));
    }
  });
}

TEST(EmptyShards, OfOneRankAreFoundByTheirShape) {
  run_ranks(1, [] {
    const EnumerableShardingSpec spec(
        {box_of({0, 0}, {2, 2}, 0), box_of({2, 0}, {0, 2}, 0),
         box_of({0, 2}, {2, 0}, 0)});
    const auto metadata = spec.build_metadata({2, 2}, {.dtype = at::kDouble});
    std::vector<Shard> shards;
    for (const size_t i : {2, 0, 1}) {
      const ShardMetadata& m = metadata.shards_metadata[i];
      shards.emplace_back(at::ones(m.shard_sizes, f64()), m);
    }
    EXPECT_EQ(
        init_from_local_shards_and_global_metadata(shards, metadata)
            .local_shards()[2]
            .tensor.sizes(),
        (Ints{2, 0}));
  });
}

TEST(Leaves, AreNotWrittenWhileAutogradRecords) {
  run_ranks(2, [] {
    torch::nn::Linear linear(4, 4);
    const at::Tensor before = linear->weight.detach().clone();
    const auto t = shard_parameter(*linear, "weight", chunks(0, {0, 1}));
    EXPECT_ERROR("must not be written", add_(t, 100.0));
    EXPECT_ERROR("must not be written", copy_(t, zeros_like(detach(t))));
    EXPECT_EQ(plain(linear->weight).max().item<float>() > 50, false);
    const at::NoGradGuard no_grad;
    add_(t, 100.0);
    EXPECT_TRUE(plain(linear->weight).min().item<float>() > 50);
  });
}

TEST(Resharded, ToTheSameCutIsACopy) {
  run_ranks(2, [] {
    const auto t = ones(chunks(0, {0, 1}), {4});
    const auto copy = t.resharded(chunks(-1, {0, 1}));
    mul_(copy, 5.0);
    EXPECT_EQ(t.local_tensor().max().item<float>(), 1);
    const auto leaf = ones(chunks(0, {0, 1}), {4}, {.requires_grad = true});
    loss_of(leaf.resharded(chunks(0, {0, 1}))).backward();
    EXPECT_TRUE(leaf.local_tensor().is_leaf());
    EXPECT_TRUE(same(leaf.grad()->local_tensor(), at::ones({2}, f32())));
  });
}

TEST(Tables, NoPaddingAndTheLastRowAreTwoThings) {
  run_ranks(2, [] {
    const auto weight = ones(chunks(0, {0, 1}), {4, 2});
    EmbeddingOptions options;
    if (rank() == 1) {
      options.padding_idx = -1;
    }
    EXPECT_ERROR(
        "same options", embedding(at::full({1}, 3, i64()), weight, options));
  });
}

TEST(NoData, IsAnErrorOnAllRanks) {
  run_ranks(2, [] {
    const EnumerableShardingSpec mixed(
        {ShardMetadata({0}, {2}, RemoteDevice("rank:0/meta")),
         ShardMetadata({2}, {2}, RemoteDevice("rank:1/cpu"))});
    auto t = ones(mixed, {4});
    EXPECT_ERROR("have no data", equal(t, t));
    EXPECT_ERROR("have no data", t.reshard(chunks(0, {0, 1})));
    EXPECT_ERROR(
        "have no data",
        t.gather(0, rank() == 0 ? at::empty({4}) : at::Tensor()));
    const auto full = ones(chunks(0, {0, 1}), {4});
    EXPECT_ERROR(
        "share memory",
        full.gather(
            0, rank() == 0 ? at::empty({1}, f32()).expand({4}) : at::Tensor()));
  });
}

TEST(PlainParameters, ThatNeedAGradientLaterGetAPlainOne) {
  run_ranks(2, [] {
    torch::nn::Linear linear(4, 4);
    linear->to(device());
    linear->bias.set_requires_grad(false);
    const auto net =
        shard_module(linear, {.plan = {{"weight", chunks(0, {0, 1})}}});
    linear->bias.set_requires_grad(true);
    full_tensor(net(at::ones({3, 4}, f32()))).sum().backward();
    EXPECT_FALSE(is_dtensor(linear->bias.grad()));
    EXPECT_EQ(linear->bias.grad()[0].item<float>(), 3);
  });
}

// Chunks with the first row apart.
class FirstRowApart final : public ChunkShardingSpec {
 public:
  using ChunkShardingSpec::ChunkShardingSpec;
  ShardedTensorMetadata build_metadata(
      const Ints& sizes, const TensorProperties& properties) const override {
    return {
        {box_of({0, 0}, {1, sizes[1]}, 0),
         box_of({1, 0}, {sizes[0] - 1, sizes[1]}, 1)},
        sizes,
        properties};
  }
  ShardingSpecPtr clone() const override {
    return std::make_shared<FirstRowApart>(*this);
  }
};

TEST(DerivedChunks, AreCutAsTheySay) {
  run_ranks(2, [] {
    const at::Tensor whole = distinct({6, 3});
    const auto t = shard_tensor(whole, FirstRowApart(0, places({0, 1})));
    EXPECT_TRUE(same(to_dtensor(t), whole));
    EXPECT_TRUE(close(whole_value(softmax(t, 0)), whole.softmax(0)));
    EXPECT_TRUE(shards_are(t.to(at::kFloat), whole.to(at::kFloat)));
  });
}

TEST(WorkerNames, AreNotNeededForAMove) {
  run_ranks(2, [] {
    std::optional<ShardedTensor> t;
    {
      const WorkerNames names({{"a", 0}, {"b", 1}});
      t = ones(
          ChunkShardingSpec(0, {"a/" + device_text(), "b/" + device_text()}),
          {4});
    }
    EXPECT_EQ(t->to(at::kDouble).dtype(), at::kDouble);
  });
}

}  // namespace
}  // namespace tessera::sharded_tensor
