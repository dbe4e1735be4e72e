// Dtypes of gathers and reductions: what they move, and that values are those
// of a plain program that casts at the same places.
#include "block_net.h"

namespace tessera {
namespace {

using testing::BlockNet;
using testing::Counts;
using testing::counts_of;
using testing::mesh_of;
using testing::net_indices;
using testing::net_loss;
using testing::same;

constexpr int64_t kElements =
    3 * (16 * 64 + 64 + 64 * 16 + 16) + 50 * 16 + 16 * 50 + 50;
constexpr int64_t kBlockElements = 16 * 64 + 64 + 64 * 16 + 16;
constexpr int64_t kBatch = 12, kWords = 50;

FullyShardOptions options_of(const MixedPrecisionPolicy& policy) {
  return {.groups = {"blocks.*"}, .mp_policy = policy};
}

// The loss of a part of the batch: parts add up to the loss of all of it.
at::Tensor part_of_loss(const at::Tensor& logits) {
  const at::Tensor y = logits.to(at::kFloat);
  return (y * y).sum() / (kBatch * kWords) + y.sum() * 0.01;
}

at::Tensor whole_loss(const at::Tensor& logits) {
  return net_loss(logits.to(at::kFloat));
}

// What a rank of `ranks` computes in `dtype`, by a plain net of the same
// parameters, rounded to it.
std::vector<at::Tensor> gradients_of_part(
    at::ScalarType dtype, int64_t part, int64_t ranks) {
  BlockNet net(at::kFloat);
  net.to(dtype);
  part_of_loss(net.forward(net_indices(0).chunk(ranks)[part])).backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& p : net.parameters()) {
    gradients.push_back(p.grad());
  }
  return gradients;
}

// Addends of `computed`, added up in f32 in the order of ranks and rounded once
// to `kept`.
std::vector<at::Tensor> expected_gradients(
    at::ScalarType computed, at::ScalarType kept, int64_t ranks) {
  std::vector<at::Tensor> sums;
  for (int64_t r = 0; r < ranks; ++r) {
    const auto addends = gradients_of_part(computed, r, ranks);
    for (size_t i = 0; i < addends.size(); ++i) {
      const at::Tensor addend = addends[i].to(at::kFloat);
      if (r == 0) {
        sums.push_back(addend);
      } else {
        sums[i] = sums[i] + addend;
      }
    }
  }
  for (at::Tensor& sum : sums) {
    sum = sum.to(kept);
  }
  return sums;
}

at::Tensor sharded_loss(BlockNet& net, const DeviceMesh& mesh) {
  return whole_loss(
      net.forward(distribute_tensor(net_indices(0), mesh, {Shard(0)})));
}

TEST(FullyShardPrecision, GatherMovesTwoBytesAndReductionsFourPerElement) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net(at::kFloat);
    const auto sharded = fully_shard(
        net, mesh,
        options_of({.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat}));
    for (int step = 0; step < 2; ++step) {
      const CommLog log;
      sharded_loss(net, mesh).backward();
      EXPECT_EQ(
          counts_of(log), (Counts{
                              .gathers = 6,
                              .gather_bytes = kElements + 2 * kBlockElements,
                              .reductions = 4,
                              .reduction_bytes = 2 * kElements}))
          << step;
      for (const CommLogEntry& entry : log.entries()) {
        if (entry.kind == "all_gather") {
          EXPECT_EQ(entry.dtype, at::kBFloat16);
        } else if (entry.kind == "reduce_scatter") {
          EXPECT_EQ(entry.dtype, at::kFloat);
        }
      }
    }
  });
}

// Bit for bit; uneven rows on three ranks.
TEST(FullyShardPrecision, IsThatOfAPlainProgramThatCastsAtTheSamePlaces) {
  for (const int ranks : {2, 3}) {
    SCOPED_TRACE(ranks);
    const auto want = expected_gradients(at::kBFloat16, at::kFloat, ranks);
    run_ranks(ranks, [&] {
      const auto mesh = mesh_of({ranks}, {"dp"});
      BlockNet net(at::kFloat);
      const auto sharded = fully_shard(
          net, mesh,
          options_of(
              {.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat}));
      sharded_loss(net, mesh).backward();
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_TRUE(same(net.parameters()[i].grad(), want[i])) << i;
      }
    });
  }
}

TEST(FullyShardPrecision, SumsOfAddendsInBf16AreRoundedOnce) {
  const auto want = expected_gradients(at::kBFloat16, at::kBFloat16, 4);
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4}, {"dp"});
    BlockNet net(at::kFloat);
    net.to(at::kBFloat16);
    const auto sharded =
        fully_shard(net, mesh, options_of({.reduce_dtype = at::kFloat}));
    sharded_loss(net, mesh).backward();
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_TRUE(same(net.parameters()[i].grad(), want[i])) << i;
    }
  });
}

TEST(FullyShardPrecision, IsNearAPlainRunInBf16) {
  BlockNet plain(at::kFloat);
  plain.to(at::kBFloat16);
  const auto plain_loss = whole_loss(plain.forward(net_indices(0)));
  plain_loss.backward();
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net(at::kFloat);
    const auto sharded = fully_shard(
        net, mesh,
        options_of({.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat}));
    const at::Tensor loss = sharded_loss(net, mesh);
    loss.backward();
    constexpr double kNear = 1.0 / 256;
    const double want = plain_loss.item<double>();
    EXPECT_NEAR(testing::plain(loss).item<double>(), want, kNear * want);
    for (size_t i = 0; i < plain.parameters().size(); ++i) {
      const at::Tensor near = plain.parameters()[i].grad().to(at::kFloat);
      const at::Tensor got = testing::plain(net.parameters()[i].grad());
      EXPECT_EQ(got.scalar_type(), at::kFloat);
      EXPECT_LT(
          (got - near).norm().item<double>(),
          kNear * near.norm().item<double>())
          << i;
    }
  });
}

}  // namespace
}  // namespace tessera
