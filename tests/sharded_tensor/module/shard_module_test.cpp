// Parameters, whole modules and what call objects do around them.
#include <sharded_tensor/module/mlp.h>

namespace tessera {
namespace {

using namespace sharded_tensor;  // NOLINT(google-build-using-namespace)
using testing::box_of;
using testing::chunks;
using testing::close;
using testing::counting;
using testing::distinct;
using testing::f64;
using testing::gradients_of;
using testing::grid;
using testing::i64;
using testing::kAll;
using testing::Mlp;
using testing::same;
using testing::shards_are;

// A 12 x 12 Linear whose values differ between ranks but for rank 0's.
torch::nn::Linear linear_of(int64_t in, int64_t out) {
  torch::nn::Linear linear(in, out);
  linear->to(testing::device(), at::kDouble);
  const torch::NoGradGuard no_grad;
  linear->weight.copy_(distinct({out, in}).add(100.0 * double(rank())));
  linear->bias.copy_(distinct({out}).add(100.0 * double(rank())));
  return linear;
}

// A tiling that is no grid: pinwheel of four boxes around a 1 x 1 centre.
EnumerableShardingSpec pinwheel() {
  return EnumerableShardingSpec(
      {box_of({0, 0}, {1, 2}, 0), box_of({0, 2}, {2, 1}, 1),
       box_of({2, 1}, {1, 2}, 2), box_of({1, 0}, {2, 1}, 3),
       box_of({1, 1}, {1, 1}, 0)});
}

TEST(TestShardParameter, test_shard_parameter) {
  run_ranks(4, [] {
    torch::nn::Linear linear = linear_of(12, 12);
    const at::Tensor handle = linear->weight;
    const ShardedTensor t = shard_parameter(*linear, "weight", chunks(0, kAll));
    EXPECT_TRUE(is_dtensor(linear->weight));
    EXPECT_TRUE(is_dtensor(handle));
    EXPECT_TRUE(handle.is_same(linear->named_parameters()["weight"]));
    EXPECT_TRUE(same(linear->weight, distinct({12, 12})));
    ASSERT_EQ(t.local_shards().size(), 1U);
    EXPECT_EQ(t.local_tensor().sizes(), at::IntArrayRef({3, 12}));
    EXPECT_TRUE(
        same(t.local_tensor(), distinct({12, 12}).narrow(0, 3 * rank(), 3)));
    EXPECT_TRUE(t.sharding_spec() == chunks(0, kAll));
    EXPECT_FALSE(is_dtensor(linear->bias));
  });
}

TEST(TestShardParameter, test_shard_parameter_errors) {
  run_ranks(4, [] {
    torch::nn::Linear linear = linear_of(12, 12);
    const auto spec = chunks(0, kAll);
    EXPECT_THROWN(
        c10::ValueError, "the ranks must pass the same src_rank",
        shard_parameter(*linear, "weight", spec, rank()));
    EXPECT_THROWN(
        c10::ValueError, "src_rank must be a rank of the group, 0 to 3; got 4",
        shard_parameter(*linear, "weight", spec, 4));
    EXPECT_THROWN(
        AttributeError, "has no parameter 'weights'",
        shard_parameter(*linear, "weights", spec));
    EXPECT_THROWN(
        c10::ValueError, "the ranks must pass the same spec and parameter",
        shard_parameter(
            *linear, "weight", rank() == 0 ? chunks(1, kAll) : spec));
    EXPECT_THROWN(
        c10::NotImplementedError, "a ChunkShardingSpec with every rank at most",
        shard_parameter(*linear, "weight", chunks(0, {0, 1, 2, 3, 0})));
    torch::nn::Linear square(3, 3);
    EXPECT_THROWN(
        c10::NotImplementedError, "whose shards form a mesh",
        shard_parameter(*square, "weight", pinwheel()));
    torch::nn::Linear no_bias(torch::nn::LinearOptions(4, 4).bias(false));
    EXPECT_THROWN(
        c10::ValueError, "is undefined, as an absent bias is",
        shard_parameter(*no_bias, "bias", spec));
    Mlp net(4, 4, 4);
    EXPECT_THROWN(
        c10::ValueError, "'fc1' of", shard_parameter(*net, "fc1", spec));
    torch::nn::BatchNorm1d norm(4);
    EXPECT_THROWN(
        KeyError, "is a buffer, not a parameter",
        shard_parameter(*norm, "running_mean", spec));
    linear->weight.set_data(distinct({12, 24}).slice(1, 0, 24, 2));
    EXPECT_THROWN(
        c10::ValueError, "must be contiguous",
        shard_parameter(*linear, "weight", spec));
    EXPECT_FALSE(is_dtensor(linear->weight));
  });
}

TEST(ShardParameter, TakesTheValuesOfAnyRankOfTheGroup) {
  run_ranks(4, [] {
    const ProcessGroup group({3, 1, 2});
    for (int64_t src = 0; src < 3 && rank() != 0; ++src) {
      torch::nn::Linear linear = linear_of(5, 7);
      shard_parameter(*linear, "weight", chunks(-1, {1, 3}), src, group);
      const int64_t source = group.ranks()[static_cast<size_t>(src)];
      EXPECT_EQ(placements(linear->weight), Placements{tessera::Shard(1)});
      if (rank() != 2) {
        EXPECT_TRUE(
            same(linear->weight, distinct({7, 5}).add(100.0 * double(source))));
      } else {
        EXPECT_FALSE(spec(linear->weight).has_shard());
      }
    }
  });
}

TEST(ShardParameter, CutsGridsAndAnExistingGradient) {
  run_ranks(4, [] {
    torch::nn::Linear linear = linear_of(6, 6);
    linear->weight.mutable_grad() = distinct({6, 6}).mul(double(rank() + 1));
    const ShardedTensor t =
        shard_parameter(*linear, "weight", grid(3, {3, 0, 2, 1}), 2);
    EXPECT_EQ(device_mesh(linear->weight).ndim(), 2);
    EXPECT_TRUE(same(linear->weight, distinct({6, 6}).add(200.0)));
    EXPECT_TRUE(is_dtensor(linear->weight.grad()));
    EXPECT_TRUE(same(linear->weight.grad(), distinct({6, 6}).mul(3.0)));
    EXPECT_TRUE(shards_are(t, distinct({6, 6}).add(200.0)));
  });
}

TEST(ShardParameter, OnRanksThatDifferInTheirModulesThrowsOnAll) {
  run_ranks(4, [] {
    torch::nn::Linear linear = linear_of(4, 4);
    if (rank() == 3) {
      linear->weight.mutable_grad() = distinct({4, 4});
    }
    EXPECT_THROWN(
        c10::ValueError, "with a gradient",
        shard_parameter(*linear, "weight", chunks(0, kAll)));
    torch::nn::Linear other(4, rank() == 1 ? 8 : 4);
    EXPECT_THROWN(
        c10::ValueError, "the ranks must pass the same spec and parameter",
        shard_parameter(*other, "weight", chunks(0, kAll)));
  });
}

TEST(ShardParameter, TwiceIsNothingOrAnErrorForAnotherSpec) {
  run_ranks(4, [] {
    torch::nn::Linear linear = linear_of(8, 8);
    shard_parameter(*linear, "weight", chunks(0, kAll));
    const auto t = shard_parameter(*linear, "weight", chunks(0, kAll));
    EXPECT_TRUE(shards_are(t, distinct({8, 8})));
    EXPECT_THROWN(
        c10::ValueError, "has another layout already",
        shard_parameter(*linear, "weight", chunks(1, kAll)));
  });
}

TEST(DefectD13, ShardParameterKeepsRequiresGradAndIntegerParameters) {
  run_ranks(4, [] {
    torch::nn::Linear linear = linear_of(8, 8);
    linear->weight.set_requires_grad(false);
    const auto t = shard_parameter(*linear, "weight", chunks(0, kAll));
    EXPECT_FALSE(linear->weight.requires_grad());
    EXPECT_FALSE(t.requires_grad());
    EXPECT_TRUE(
        shard_parameter(*linear, "bias", chunks(0, kAll)).requires_grad());
    EXPECT_TRUE(linear->bias.requires_grad());
    torch::nn::Module counts;
    counts.register_parameter("n", counting({9}, i64()), false);
    const auto n = shard_parameter(counts, "n", chunks(0, kAll));
    EXPECT_EQ(n.dtype(), at::kLong);
    EXPECT_TRUE(shards_are(n, counting({9}, i64())));
  });
}

TEST(DefectD27, TheShardedTensorsGradientIsTheParameters) {
  run_ranks(4, [] {
    torch::nn::Linear plain(8, 8), linear(8, 8);
    testing::set_values(*plain);
    testing::set_values(*linear);
    const auto t = shard_parameter(*linear, "weight", chunks(0, kAll));
    EXPECT_FALSE(t.grad());
    const at::Tensor x = distinct({5, 8});
    collect_local_shard(linear)(x).pow(2).sum().backward();
    plain(x).pow(2).sum().backward();
    EXPECT_TRUE(to_dtensor(t).grad().is_same(linear->weight.grad()));
    EXPECT_TRUE(close(linear->weight.grad(), plain->weight.grad()));
    ASSERT_TRUE(t.grad());
    EXPECT_TRUE(t.grad()->sharding_spec() == chunks(0, kAll));
    EXPECT_TRUE(close(
        t.grad()->local_tensor(),
        plain->weight.grad().narrow(0, 2 * rank(), 2)));
  });
}

// Call objects.

TEST(TestModuleHookApi, test_reshard_output) {
  run_ranks(4, [] {
    torch::nn::Linear local(15, 24), sharded(15, 24);
    testing::set_values(*local);
    testing::set_values(*sharded);
    shard_parameter(*sharded, "weight", chunks(0, kAll));
    shard_parameter(*sharded, "bias", chunks(0, kAll));
    const at::Tensor x = distinct({12, 15});
    auto net = reshard_output(sharded, chunks(1, kAll));
    const at::Tensor y = net(x);
    EXPECT_EQ(placements(y), Placements{tessera::Shard(1)});
    EXPECT_EQ(to_local(y).sizes(), at::IntArrayRef({12, 6}));
    EXPECT_TRUE(close(y, local(x)));
    auto t = from_dtensor(reshard_output(sharded, chunks(0, kAll))(x));
    t.reshard(chunks(1, kAll));
    EXPECT_TRUE(same(t.local_tensor(), to_local(y)));
    auto back = reshard_output(net, chunks(0, {3, 2, 1, 0}));
    EXPECT_EQ(to_local(back(x)).size(0), 3);
    EXPECT_TRUE(close(back(x), local(x)));
  });
}

TEST(TestModuleHookApi, test_collect_local_shard) {
  run_ranks(4, [] {
    torch::nn::Linear sharded(15, 24);
    testing::set_values(*sharded);
    const at::Tensor x = distinct({16, 15});
    const at::Tensor want = sharded(x).detach();
    shard_parameter(*sharded, "weight", chunks(0, kAll));
    shard_parameter(*sharded, "bias", chunks(0, kAll));
    auto net = collect_local_shard(reshard_output(sharded, chunks(0, kAll)));
    const at::Tensor y = net(x);
    EXPECT_FALSE(is_dtensor(y));
    EXPECT_TRUE(close(y, want.narrow(0, 4 * rank(), 4)));
    // The other order: a plain output is not cut any more.
    auto first = collect_local_shard(sharded);
    auto other = reshard_output(first, chunks(0, kAll));
    EXPECT_TRUE(close(other(x), first(x)));
  });
}

TEST(CallObject, LeavesPlainModulesAlone) {
  run_ranks(4, [] {
    torch::nn::Linear linear = linear_of(3, 4);
    const at::Tensor x = distinct({2, 3});
    auto net = collect_local_shard(reshard_output(linear, chunks(0, kAll)));
    const at::Tensor y = net(x);
    EXPECT_FALSE(is_dtensor(y));
    EXPECT_TRUE(same(y, linear(x)));
    EXPECT_EQ(net->weight.size(0), 4);
    EXPECT_TRUE(net.module()->bias.is_same(linear->bias));
  });
}

TEST(CallObject, RefusesSpecsThatNoMeshHas) {
  run_ranks(4, [] {
    torch::nn::Linear linear = linear_of(3, 3);
    shard_parameter(*linear, "weight", chunks(0, kAll));
    auto net = reshard_output(linear, pinwheel());
    EXPECT_THROWN(
        c10::NotImplementedError, "no mesh has the shards of",
        net(distinct({3, 3})));
  });
}

struct SeveralImpl : torch::nn::Module {
  SeveralImpl() : fc(register_module("fc", torch::nn::Linear(4, 8))) {
    testing::set_values(*this);
  }
  std::tuple<at::Tensor, std::vector<at::Tensor>, int> forward(
      const std::vector<at::Tensor>& xs, std::optional<at::Tensor> shift,
      int n) {
    std::vector<at::Tensor> ys;
    for (const at::Tensor& x : xs) {
      ys.push_back(fc(shift ? x + *shift : x));
    }
    return {ys[0] * 2, ys, n + 1};
  }
  torch::nn::Linear fc;
};
TORCH_MODULE(Several);

TEST(CallObject, MapsEveryTensorOfTuplesAndVectors) {
  run_ranks(4, [] {
    Several plain, sharded;
    ShardingPlan plan{
        .plan = {{"fc.weight", chunks(0, kAll)}},
        .output_plan = {{"", chunks(1, kAll)}},
        .return_local_tensor = {""}};
    auto net = shard_module(sharded, plan);
    const std::vector<at::Tensor> xs = {distinct({3, 4}), distinct({5, 4}) + 1};
    const at::Tensor shift = distinct({4});
    const auto [a, b, n] = net(xs, std::optional(shift), 6);
    const auto [x, y, m] = plain->forward(xs, shift, 6);
    EXPECT_TRUE(close(a, x.narrow(1, 2 * rank(), 2)));
    ASSERT_EQ(b.size(), 2U);
    EXPECT_TRUE(close(b[1], y[1].narrow(1, 2 * rank(), 2)));
    EXPECT_EQ(n, 7);
  });
}

TEST(CallObject, TakesBatchesOfEachRanksOwn) {
  run_ranks(4, [] {
    Mlp plain(4, 8, 4), sharded(4, 8, 4);
    const at::Tensor x = distinct({10, 4});
    auto net =
        shard_module(sharded, {.plan = {{"fc1.weight", chunks(0, kAll)}}});
    const at::Tensor want = plain->forward(x);
    const auto mine = shard_tensor(x, chunks(0, kAll));
    EXPECT_TRUE(close(net(mine), want));
    const at::Tensor own = from_local(
        mine.local_tensor(), device_mesh(sharded->fc1->weight),
        {tessera::Shard(0)}, {.shape = std::vector<int64_t>{10, 4}});
    EXPECT_TRUE(close(net(own), want));
  });
}

TEST(DefectD16, CollectSqueezesByTheChunkSizeOnAllRanksAlike) {
  run_ranks(4, [] {
    torch::nn::Linear linear = linear_of(3, 4);
    shard_parameter(*linear, "weight", chunks(0, kAll));
    const auto collected = [&](int64_t batch, int64_t dim) {
      return collect_local_shard(reshard_output(linear, chunks(dim, kAll)))(
          distinct({batch, 3}));
    };
    // 7 rows / 4: chunks of 2, the last has 1 and keeps its dim.
    EXPECT_EQ(
        collected(7, 0).sizes(), at::IntArrayRef({rank() == 3 ? 1 : 2, 4}));
    // 4 columns / 4: chunks of 1.
    EXPECT_EQ(collected(7, -1).sizes(), at::IntArrayRef({7}));
    // 2 rows / 4: chunks of 1, and nothing on ranks 2 and 3.
    EXPECT_EQ(collected(2, 0).dim(), rank() < 2 ? 1 : 2);
    EXPECT_EQ(collected(2, 0).numel(), rank() < 2 ? 4 : 0);
  });
}

TEST(ReshardLocalShard, GivesTheShardsOfTheOtherSpecAndTheirGradient) {
  run_ranks(4, [] {
    const at::Tensor whole = distinct({5, 7});
    const auto t = shard_tensor(whole, chunks(0, kAll));
    const at::Tensor local = t.local_tensor().clone().requires_grad_();
    const auto shards = reshard_local_shard(
        local, {5, 7}, chunks(0, kAll), chunks(1, {2, 3, 0, 1}));
    ASSERT_EQ(shards.size(), 1U);
    const auto& [offsets, sizes, where] = shards[0].metadata;
    EXPECT_TRUE(same(shards[0].tensor, whole.narrow(1, offsets[1], sizes[1])));
    const at::Tensor weights = distinct({5, 7}).cos();
    (shards[0].tensor * weights.narrow(1, offsets[1], sizes[1]))
        .sum()
        .backward();
    const auto rows = shard_tensor(weights, chunks(0, kAll));
    EXPECT_TRUE(same(local.grad(), rows.local_tensor()));
    EXPECT_THROWN(
        c10::ValueError, "must pass the same spec",
        reshard_local_shard(
            t.local_tensor(), {5, 7}, chunks(0, kAll),
            chunks(rank() == 0 ? 0 : 1, kAll)));
  });
}

}  // namespace
}  // namespace tessera
