#include <gtest/gtest.h>
#include <tessera/layout/layout.h>

#include "layout/expect_error.h"

namespace tessera {
namespace {

const MeshShape& mesh() {
  static const MeshShape two_by_two({2, 2}, {"dp", "tp"});
  return two_by_two;
}

TEST(LayoutErrors, OfShapeAndCountShowTheLayout) {
  EXPECT_VALUE_ERROR(
      Layout({8}, mesh(), {Shard(0)}),
      "Layout([8] S(0) @ mesh(dp=2, tp=2)): give one placement per mesh dim; "
      "got 1 placements for 2 mesh dims");
  EXPECT_VALUE_ERROR(
      Layout({8, -1}, MeshShape(), {}), "got -1 for tensor dim 1");
  EXPECT_VALUE_ERROR(
      Layout({INT64_MAX, 2}, MeshShape(), {}),
      "number of elements exceeds 64 bits");
  EXPECT_EQ(Layout({INT64_MAX, 2, 0}, MeshShape(), {}).shape().size(), 3u);
}

TEST(LayoutErrors, OfTensorDimsNameThePlacement) {
  EXPECT_INDEX_ERROR(
      Layout({8, 4}, mesh(), {Replicate(), Shard(2)}),
      "tensor dims are -2 .. 1; got S(2) for mesh dim 1");
  EXPECT_INDEX_ERROR(
      Layout({8, 4}, mesh(), {Shard(-3), Replicate()}),
      "got S(-3) for mesh dim 0");
  EXPECT_INDEX_ERROR(
      Layout({}, mesh(), {Shard(0), Replicate()}),
      "a 0-d tensor has no dim to cut; got S(0) for mesh dim 0");
}

TEST(LayoutErrors, OfTurnsSayWhichAreWanted) {
  const auto first = Shard(0).with_order(0), second = Shard(0).with_order(1);
  EXPECT_VALUE_ERROR(
      Layout({8}, mesh(), {first, Shard(0)}), "got S(0) for mesh dim 1");
  EXPECT_VALUE_ERROR(
      Layout({8}, mesh(), {first, first}),
      "turns [0] .. [1], each once, or none has; got S(0)[0] for mesh dim 1");
  EXPECT_VALUE_ERROR(
      Layout({8, 8}, mesh(), {second, Shard(1)}),
      "turns [0] .. [0], each once, or none has; got S(0)[1] for mesh dim 0");
}

TEST(LayoutErrors, OfPartialKindsNameBoth) {
  EXPECT_VALUE_ERROR(
      Layout({8}, mesh(), {Partial(), Partial(ReduceOp::kMax)}),
      "got P(sum) and P(max)");
  EXPECT_VALUE_ERROR(
      Layout({8}, mesh(), {Partial(ReduceOp::kMin), Partial(ReduceOp::kAvg)}),
      "got P(min) and P(avg)");
  EXPECT_TRUE(
      Layout({8}, mesh(), {Partial(), Partial(ReduceOp::kAvg)}).has_partial());
  EXPECT_TRUE(
      Layout({8}, mesh(), {Partial(ReduceOp::kMax), Partial(ReduceOp::kMax)})
          .has_partial());
}

TEST(LayoutErrors, OfRaggedLengthsSayWhatTheyMustAddUpTo) {
  EXPECT_VALUE_ERROR(
      Layout({8}, mesh(), {RaggedShard(0, {1, 2, 5}), Replicate()}),
      "got 3 lengths for 2 coordinates");
  EXPECT_VALUE_ERROR(
      Layout({8}, mesh(), {RaggedShard(0, {1, 2}), Replicate()}),
      "must add up to what mesh dim 0 cuts, 8 of tensor dim 0; got 3");
  EXPECT_VALUE_ERROR(
      Layout({8}, mesh(), {Shard(0), RaggedShard(0, {3, 5})}),
      "must add up to what mesh dim 1 cuts, 4 of tensor dim 0; got 8");
  EXPECT_VALUE_ERROR(
      Layout({7}, mesh(), {Shard(0), RaggedShard(0, {1, 3})}),
      "RS(0,[1,3]) cuts lists of different lengths");
  EXPECT_VALUE_ERROR(
      Layout({8}, mesh(), {RaggedShard(0, {5, 3}), RaggedShard(0, {1, 4})}),
      "an earlier cut of tensor dim 0 is uneven; apply the ragged cut first");
  EXPECT_EQ(
      Layout({8}, mesh(), {RaggedShard(0, {4, 4}), RaggedShard(0, {1, 3})})
          .local_shape({1, 0}),
      std::vector<int64_t>{1});
  EXPECT_VALUE_ERROR(
      Layout({4}, MeshShape({3, 2}), {Shard(0), RaggedShard(0, {1, 1})}),
      "cuts lists of different lengths");
}

TEST(LayoutErrors, OfQuestionsShowTheLayoutAndTheArgument) {
  const Layout layout({8, 4}, mesh(), {Shard(0), StridedShard(1, 2)});
  EXPECT_INDEX_ERROR(
      layout.local_shape({0}),
      "Layout::local_shape of [8, 4] S(0) SS(1,2) @ mesh(dp=2, tp=2): the "
      "coordinate must be one of the mesh; got [0]");
  EXPECT_INDEX_ERROR(layout.box({0, 2}), "got [0, 2]");
  EXPECT_INDEX_ERROR(layout.boxes({-1, 0}), "got [-1, 0]");
  EXPECT_INDEX_ERROR(layout.runs(0, {2, 0}), "got [2, 0]");
  EXPECT_INDEX_ERROR(
      layout.runs(2, {0, 0}), "the tensor has 2 dims; got dim 2");
  EXPECT_INDEX_ERROR(layout.owner({8, 0}), "got [8, 0]");
  EXPECT_INDEX_ERROR(layout.owner_ranks({1}), "must lie inside the shape");
  EXPECT_INDEX_ERROR(layout.local_index({0, -1}), "got [0, -1]");
  EXPECT_VALUE_ERROR(layout.ranks_holding(whole({8})), "got [0:8]");
  EXPECT_VALUE_ERROR(
      layout.box({0, 1}),
      "the shard at coordinate [0, 1] holds several runs of tensor dim 1; use "
      "boxes()");
  EXPECT_INDEX_ERROR(
      Layout({}, mesh(), {Replicate(), Replicate()}).boxes({5, 5}),
      "got [5, 5]");
}

}  // namespace
}  // namespace tessera
