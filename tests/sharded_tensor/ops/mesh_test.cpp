// Operators that need a mesh: values, gradients and how results are cut.
#include <sharded_tensor/ops/ops_placements.h>

namespace tessera::testing {
namespace {

using namespace sharded_tensor;  // NOLINT

const std::vector<std::vector<int64_t>> kOrders = {
    {0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}};

const ChunkShardingSpec& chunk_spec(const ShardedTensor& t) {
  return dynamic_cast<const ChunkShardingSpec&>(t.sharding_spec());
}

// The same function of a plain tensor and of a sharded one: values, gradients,
// and the cut of the result.
void expect_same(
    const at::Tensor& value, const ShardingSpec& spec,
    const std::function<ShardedTensor(const ShardedTensor&)>& f,
    const std::function<at::Tensor(const at::Tensor&)>& plain,
    const ShardingSpec& wanted) {
  const at::Tensor whole = leaf(value);
  const auto t = cut(whole, spec);
  const auto result = f(t);
  const at::Tensor want = plain(whole);
  EXPECT_TRUE(shards_are_close(result, want));
  EXPECT_EQ(result.sharding_spec(), wanted);
  EXPECT_EQ(result.process_group(), t.process_group());
  for (const auto& shard : result.local_shards()) {
    EXPECT_TRUE(shard.tensor.is_contiguous());
  }
  const at::Tensor factor = distinct(want.sizes());
  (want * factor).sum().backward();
  backward_of_sum(result, factor);
  EXPECT_TRUE(gradients_are(t, whole.grad()));
}

TEST(Linear, CutsItsResultAsTheWeightSays) {
  run_ranks(4, [] {
    for (const auto& order : kOrders) {
      for (const int64_t dim : {0, 1}) {
        for (const auto& sizes : std::vector<std::vector<int64_t>>{
                 {5, 7}, {9, 7}, {7}, {2, 3, 7}}) {
          SCOPED_TRACE(::testing::PrintToString(sizes));
          const at::Tensor x = leaf(distinct(sizes));
          const at::Tensor w = leaf(distinct({10, 7}).cos());
          const at::Tensor b = leaf(distinct({10}));
          const at::Tensor input = leaf(x);
          const at::Tensor bias = leaf(b);
          const auto weight = cut(w, chunks(dim, order));
          const auto result = linear(input, weight, bias);
          const at::Tensor want = at::linear(x, w, b);
          EXPECT_TRUE(shards_are_close(result, want));
          EXPECT_EQ(
              result.sharding_spec(),
              chunks(dim == 0 ? want.dim() - 1 : 0, order));
          (want * distinct(want.sizes())).sum().backward();
          backward_of_sum(result, distinct(want.sizes()));
          EXPECT_TRUE(gradients_are(weight, w.grad()));
          EXPECT_TRUE(close(input.grad(), x.grad()));
          EXPECT_TRUE(close(bias.grad(), b.grad()));
        }
      }
    }
  });
}

TEST(Linear, TakesShardedInputsAndBiases) {
  run_ranks(4, [] {
    for (const int64_t dim : {0, 1}) {
      const at::Tensor x = leaf(distinct({5, 7}));
      const at::Tensor w = leaf(distinct({10, 7}).cos());
      const at::Tensor b = leaf(distinct({10}));
      const auto input = cut(x, chunks(dim, {0, 1, 2, 3}));
      const auto weight = cut(w, chunks(0, {0, 1, 2, 3}));
      const auto bias = cut(b, chunks(0, {0, 1, 2, 3}));
      const auto result = linear(input, weight, bias);
      const at::Tensor want = at::linear(x, w, b);
      EXPECT_TRUE(shards_are_close(result, want));
      (want * distinct({5, 10})).sum().backward();
      backward_of_sum(result, distinct({5, 10}));
      EXPECT_TRUE(gradients_are(input, x.grad()));
      EXPECT_TRUE(gradients_are(weight, w.grad()));
      EXPECT_TRUE(gradients_are(bias, b.grad()));
      EXPECT_TRUE(shards_are_close(linear(input, weight), at::linear(x, w)));
    }
  });
}

TEST(Linear, WorksOnGridsAndOnSomeRanks) {
  run_ranks(4, [] {
    for (const Cut& how : mesh_cuts()) {
      SCOPED_TRACE(how.name);
      const at::Tensor x = leaf(distinct({5, 6}));
      const at::Tensor w = leaf(distinct({6, 6}).cos());
      const at::Tensor input = leaf(x);
      const auto weight = cut(w, *how.spec);
      const auto result = linear(input, weight);
      const at::Tensor want = at::linear(x, w);
      EXPECT_TRUE(shards_are_close(result, want));
      (want * distinct({5, 6})).sum().backward();
      backward_of_sum(result, distinct({5, 6}));
      EXPECT_TRUE(gradients_are(weight, w.grad()));
      EXPECT_TRUE(close(input.grad(), x.grad()));
    }
  });
}

TEST(Linear, ChecksItsArguments) {
  run_ranks(2, [] {
    const auto weight = cut(distinct({4, 6}), chunks(0, {0, 1}));
    EXPECT_THROWN(
        c10::ValueError, "must have the weight's columns; got [2, 5] and 6",
        linear(distinct({2, 5}), weight));
    EXPECT_THROWN(
        c10::TypeError, "the input must be a tensor", linear(1.0, weight));
    EXPECT_THROWN(
        c10::ValueError, "the weight must have 2 dims; got 1",
        linear(distinct({4}), cut(distinct({4}), chunks(0, {0, 1}))));
    EXPECT_THROWN(
        c10::ValueError, "reshard() one of them first",
        linear(cut(distinct({4, 6}), chunks(0, {1, 0})), weight));
  });
}

TEST(Softmax, WorksAlongEveryDimOfEveryMesh) {
  run_ranks(4, [] {
    for (const Cut& how : mesh_cuts()) {
      for (const int64_t dim : {0, 1, -1}) {
        SCOPED_TRACE(how.name);
        // Large values: what a sum without the maximum would turn into inf.
        expect_same(
            distinct({6, 6}) + 1000, *how.spec,
            [&](const auto& t) { return softmax(t, dim); },
            [&](const auto& t) { return at::softmax(t, dim); }, *how.spec);
      }
    }
  });
}

TEST(LayerNorm, WorksOverEveryDimOfEveryMesh) {
  run_ranks(4, [] {
    const at::Tensor w = distinct({6}) + 2;
    const at::Tensor b = distinct({6}).cos();
    for (const Cut& how : mesh_cuts()) {
      SCOPED_TRACE(how.name);
      expect_same(
          distinct({6, 6}), *how.spec,
          [&](const auto& t) { return layer_norm(t, {6}, w, b); },
          [&](const auto& t) { return at::layer_norm(t, {6}, w, b); },
          *how.spec);
      expect_same(
          distinct({6, 6}), *how.spec,
          [&](const auto& t) {
            return layer_norm(t, {6, 6}, {}, {}, 0.1);
          },
          [&](const auto& t) {
            return at::layer_norm(t, {6, 6}, {}, {}, 0.1);
          },
          *how.spec);
    }
  });
}

TEST(LayerNorm, GivesGradientsToPlainWeights) {
  run_ranks(4, [] {
    const at::Tensor w = leaf(distinct({6}) + 2);
    const at::Tensor weight = leaf(w);
    const auto t = cut(distinct({6, 6}), chunks(0, {2, 1}));
    backward_of_sum(layer_norm(t, {6}, weight), distinct({6, 6}));
    (at::layer_norm(distinct({6, 6}), {6}, w) * distinct({6, 6}))
        .sum()
        .backward();
    EXPECT_TRUE(close(weight.grad(), w.grad()));
  });
}

TEST(Bmm, KeepsTheBatchesWhereTheyAre) {
  run_ranks(4, [] {
    for (const auto& order : kOrders) {
      const at::Tensor a = leaf(distinct({7, 2, 3}));
      const at::Tensor b = leaf(distinct({7, 3, 5}).cos());
      const auto x = cut(a, chunks(0, order));
      const auto y = cut(b, chunks(0, order));
      const auto result = bmm(x, y);
      EXPECT_TRUE(shards_are_close(result, at::bmm(a, b)));
      EXPECT_EQ(result.sharding_spec(), chunks(0, order));
      (at::bmm(a, b) * distinct({7, 2, 5})).sum().backward();
      backward_of_sum(result, distinct({7, 2, 5}));
      EXPECT_TRUE(gradients_are(x, a.grad()));
      EXPECT_TRUE(gradients_are(y, b.grad()));
    }
  });
}

TEST(Bmm, ChecksTheCuts) {
  run_ranks(2, [] {
    const auto x = cut(distinct({4, 2, 2}), chunks(0, {0, 1}));
    const auto y = cut(distinct({4, 2, 2}), chunks(1, {0, 1}));
    EXPECT_THROWN(c10::ValueError, "the batches must be cut alike", bmm(x, y));
    EXPECT_THROWN(c10::ValueError, "the batches must be cut, dim 0", bmm(y, y));
    const auto flat = cut(distinct({4, 2}), chunks(0, {0, 1}));
    EXPECT_THROWN(
        c10::ValueError, "must have 3 dims; got 3 and 2", bmm(x, flat));
  });
}

TEST(Transpose, TheCutFollowsItsDim) {
  run_ranks(4, [] {
    for (const auto& order : kOrders) {
      expect_same(
          distinct({3, 7, 2}), chunks(1, order),
          [](const auto& t) { return transpose(t, 1, 2); },
          [](const auto& t) { return t.transpose(1, 2); }, chunks(2, order));
      expect_same(
          distinct({3, 7, 2}), chunks(1, order),
          [](const auto& t) { return transpose(t, 0, -1); },
          [](const auto& t) { return t.transpose(0, -1); }, chunks(1, order));
    }
    const auto t =
        transpose(cut(distinct({6, 6}), grid(3, {2, 0, 3, 1})), 0, 1);
    EXPECT_TRUE(shards_are(t, distinct({6, 6}).t()));
    EXPECT_EQ(t.sharding_spec(), grid(3, {2, 3, 0, 1}));
  });
}

TEST(View, TheCutStaysWithTheElementsOfItsDim) {
  run_ranks(4, [] {
    struct Case {
      std::vector<int64_t> from;
      int64_t dim;
      std::vector<int64_t> to;
      int64_t wanted;
    };
    for (const auto& [from, dim, to, wanted] : std::vector<Case>{
             {{6, 4}, 0, {6, 2, 2}, 0},
             {{4, 6}, 1, {2, 2, 6}, 2},
             {{2, 3, 5}, 1, {1, 2, 3, 5, 1}, 2},
             {{6, 4}, 0, {6, -1}, 0},
             {{6, 2, 2}, 0, {6, 4}, 0},
             {{4, 6}, 1, {4, 6, 1}, 1}}) {
      SCOPED_TRACE(::testing::PrintToString(to));
      expect_same(
          distinct(from), chunks(dim, {2, 0, 3, 1}),
          [&](const auto& t) { return sharded_tensor::view(t, to); },
          [&](const auto& t) { return t.reshape(to); },
          chunks(wanted, {2, 0, 3, 1}));
    }
    const auto t = cut(distinct({4, 6}), chunks(1, {0, 1, 2, 3}));
    EXPECT_THROWN(
        c10::ValueError,
        "the cut dim 1 of sizes [4, 6] is no dim of [24]; reshard()",
        sharded_tensor::view(t, {24}));
    EXPECT_THROWN(
        c10::ValueError, "is no dim of [6, 4]",
        sharded_tensor::view(t, {6, 4}));
    EXPECT_ERROR("is invalid for input of size", sharded_tensor::view(t, {5}));
  });
}

TEST(Chunk, PartsAreCutLikeTheTensor) {
  run_ranks(4, [] {
    for (const int64_t dim : {0, 1}) {
      const at::Tensor whole = leaf(distinct({7, 6}));
      const auto t = cut(whole, chunks(0, {1, 3, 0, 2}));
      const auto parts = chunk(t, 3, dim);
      const auto want = whole.chunk(3, dim);
      ASSERT_EQ(parts.size(), want.size());
      for (size_t i = 0; i < parts.size(); ++i) {
        EXPECT_TRUE(shards_are(parts[i], want[i]));
        EXPECT_EQ(parts[i].sharding_spec(), t.sharding_spec());
      }
      const at::Tensor factor = distinct(want[1].sizes());
      (want[1] * factor).sum().backward();
      backward_of_sum(parts[1], factor);
      EXPECT_TRUE(gradients_are(t, whole.grad()));
    }
    const auto t = cut(distinct({7, 6}), chunks(0, {1, 3, 0, 2}));
    EXPECT_THROWN(c10::ValueError, "chunks must be positive", chunk(t, 0));
  });
}

TEST(MeshOps, WorkInASubgroup) {
  run_ranks(4, [] {
    if (rank() == 0) {
      return;
    }
    const ProcessGroup group({3, 1, 2});
    const at::Tensor w = leaf(distinct({5, 4}));
    const auto weight = cut(w, chunks(0, {2, 3}), group);
    const at::Tensor input = distinct({3, 4});
    const auto result = gelu(linear(input, weight));
    const at::Tensor want = at::gelu(at::linear(input, w));
    EXPECT_TRUE(shards_are_close(result, want));
    (want * distinct({3, 5})).sum().backward();
    backward_of_sum(result, distinct({3, 5}));
    EXPECT_TRUE(gradients_are(weight, w.grad()));
    EXPECT_EQ(chunk_spec(result).placements(), places({2, 3}));
  });
}

TEST(MeshOps, RepeatedCallsFindTheirPlans) {
  run_ranks(4, [] {
    const auto t = cut(distinct({6, 6}), chunks(0, {2, 0, 1}));
    const auto call = [&] { dispatch("aten::sum", {softmax(t, 0)}); };
    call();
    const size_t plans = cached_plan_count();
    for (int i = 0; i < 5; ++i) {
      call();
    }
    EXPECT_EQ(cached_plan_count(), plans);
  });
}

TEST(MeshOps, ALogNamesTheCall) {
  run_ranks(2, [] {
    const auto t = cut(distinct({4, 6}), chunks(0, {0, 1}));
    CommLog log;
    softmax(t, 0);
    ASSERT_FALSE(log.entries().empty());
    EXPECT_EQ(log.entries()[0].cause, "aten::softmax.int");
  });
}

}  // namespace
}  // namespace tessera::testing
