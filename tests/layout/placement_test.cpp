#include <tessera/layout/placement.h>

#include <sstream>
#include <unordered_set>

#include <gtest/gtest.h>

#include "layout/expect_error.h"

namespace tessera {
namespace {

const Placements& samples() {
  static const Placements all{
      Replicate(),
      Partial(),
      Partial(ReduceOp::kAvg),
      Partial(ReduceOp::kMax),
      Partial(ReduceOp::kMin),
      Partial(ReduceOp::kProduct),
      Shard(0),
      Shard(1),
      Shard(-1),
      Shard(0).with_order(0),
      Shard(0).with_order(1),
      StridedShard(0, 1),
      StridedShard(0, 2),
      StridedShard(1, 2),
      StridedShard(0, 2).with_order(1),
      RaggedShard(0, {}),
      RaggedShard(0, {3, 0, 5}),
      RaggedShard(0, {3, 5, 0}),
      RaggedShard(1, {3, 0, 5}).with_order(2)};
  return all;
}

TEST(Placement, ValuesThatDifferAreUnequalAndHashApart) {
  for (size_t i = 0; i < samples().size(); ++i) {
    for (size_t j = 0; j < samples().size(); ++j) {
      EXPECT_EQ(samples()[i] == samples()[j], i == j) << i << " " << j;
    }
  }
  const std::unordered_set<Placement> set(samples().begin(), samples().end());
  EXPECT_EQ(set.size(), samples().size());
  std::unordered_set<size_t> hashes;
  for (const Placement& p : samples()) {
    hashes.insert(hash_value(p));
    EXPECT_EQ(hash_value(p), hash_value(Placement(p)));
  }
  EXPECT_EQ(hashes.size(), samples().size());
}

TEST(Placement, PrintsTheNotation) {
  EXPECT_EQ(
      to_string(samples()),
      "R P(sum) P(avg) P(max) P(min) P(product) S(0) S(1) S(-1) S(0)[0] "
      "S(0)[1] SS(0,1) SS(0,2) SS(1,2) SS(0,2)[1] RS(0,[]) RS(0,[3,0,5]) "
      "RS(0,[3,5,0]) RS(1,[3,0,5])[2]");
  std::ostringstream out;
  out << Shard(3);
  EXPECT_EQ(out.str(), "S(3)");
  EXPECT_EQ(to_string(Placements{}), "");
}

TEST(Placement, TellsItsKindAndFields) {
  EXPECT_TRUE(Placement().is_replicate());
  EXPECT_TRUE(Partial().is_partial());
  EXPECT_FALSE(Partial().is_shard());
  EXPECT_FALSE(Replicate().is_shard(0));
  EXPECT_TRUE(StridedShard(1, 4).is_shard());
  EXPECT_TRUE(StridedShard(1, 4).is_shard(1));
  EXPECT_FALSE(StridedShard(1, 4).is_shard(0));
  EXPECT_EQ(StridedShard(1, 4).split_factor(), 4);
  EXPECT_EQ(Shard(2).split_factor(), 1);
  EXPECT_EQ(Shard(2).order(), -1);
  EXPECT_EQ(Shard(2).with_order(3).order(), 3);
  EXPECT_EQ(Shard(2).with_order(3).with_order(-1), Shard(2));
  EXPECT_EQ(
      RaggedShard(0, {1, 2}).with_dim(-1).sizes(),
      (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(RaggedShard(0, {1, 2}).with_dim(-1).dim(), -1);
  EXPECT_EQ(Partial(ReduceOp::kMin).reduce_op(), ReduceOp::kMin);
}

TEST(Placement, AnswersWhatOthersNeedToKnow) {
  const Placement strided = StridedShard(0, 2);
  const Placement ragged = RaggedShard(0, {3, 0, 5});
  EXPECT_TRUE(Shard(0).is_plain_shard());
  EXPECT_FALSE(strided.is_plain_shard() || ragged.is_plain_shard());
  EXPECT_TRUE(Shard(0).is_chunked() && strided.is_chunked());
  EXPECT_FALSE(ragged.is_chunked() || Partial().is_chunked());
  EXPECT_TRUE(Shard(0).is_contiguous() && ragged.is_contiguous());
  EXPECT_FALSE(strided.is_contiguous() || Replicate().is_contiguous());
  EXPECT_TRUE(Replicate().fits_any_size() && strided.fits_any_size());
  EXPECT_FALSE(ragged.fits_any_size());
  EXPECT_TRUE(ragged.depends_on_others());
  EXPECT_TRUE(Shard(0).with_order(1).depends_on_others());
  EXPECT_FALSE(Shard(0).depends_on_others() || Partial().depends_on_others());
  EXPECT_EQ(ragged.begins(), (std::vector<int64_t>{0, 3, 3, 8}));
  EXPECT_STREQ(to_string(strided.kind()), "strided_shard");
}

TEST(Placement, CountsANegativeDimFromTheEnd) {
  EXPECT_EQ(Shard(-1).resolved(3), Shard(2));
  EXPECT_EQ(StridedShard(-3, 2).resolved(3), StridedShard(0, 2));
  EXPECT_EQ(Shard(1).resolved(3), Shard(1));
  EXPECT_EQ(Shard(-4).resolved(3), Shard(-1));
  EXPECT_EQ(Partial().resolved(3), Partial());
}

TEST(Placement, RefusesFieldsThatTheKindDoesNotHave) {
  EXPECT_VALUE_ERROR(Replicate().dim(), "dim: only a shard cuts");
  EXPECT_VALUE_ERROR(Partial().split_factor(), "got P(sum)");
  EXPECT_VALUE_ERROR(Shard(0).sizes(), "only a RaggedShard has lengths");
  EXPECT_VALUE_ERROR(Shard(0).begins(), "begins: only a RaggedShard");
  EXPECT_VALUE_ERROR(Shard(0).reduce_op(), "only a Partial has one");
  EXPECT_VALUE_ERROR(Replicate().with_order(0), "only a shard has a turn");
  EXPECT_VALUE_ERROR(Partial().with_dim(0), "with_dim: only a shard");
  EXPECT_VALUE_ERROR(Shard(0).with_order(-2), "a turn is 0 or more");
}

TEST(Placement, RefusesValuesThatNoMeshCanHave) {
  EXPECT_VALUE_ERROR(StridedShard(0, 0), "must be at least 1; got 0");
  EXPECT_VALUE_ERROR(StridedShard(0, -3), "must be at least 1; got -3");
  EXPECT_VALUE_ERROR(
      RaggedShard(1, {2, -1}), "must not be negative; got -1 at coordinate 1");
  EXPECT_VALUE_ERROR(
      RaggedShard(0, {INT64_MAX, 1}), "sum of the lengths exceeds 64 bits");
}

}  // namespace
}  // namespace tessera
