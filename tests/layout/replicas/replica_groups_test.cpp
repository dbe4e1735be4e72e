#include <tessera/layout/replica_groups.h>

#include <gtest/gtest.h>
#include <tessera/layout/notation.h>

namespace tessera {
namespace {

using Groups = std::vector<std::vector<int64_t>>;

Groups groups_of(const char* text) {
  return replica_groups(parse_layout(text).layout);
}

TEST(ReplicaGroups, DifferInReplicateDimsOnly) {
  EXPECT_EQ(groups_of("[8] S(0) R @ mesh(2, 2)"), (Groups{{0, 1}, {2, 3}}));
  EXPECT_EQ(groups_of("[8] R S(0) @ mesh(2, 2)"), (Groups{{0, 2}, {1, 3}}));
  EXPECT_EQ(groups_of("[8] R R @ mesh(2, 2)"), (Groups{{0, 1, 2, 3}}));
}

TEST(ReplicaGroups, AreSingleRanksWithoutReplicate) {
  EXPECT_EQ(groups_of("[8] P(sum) S(0) @ mesh(2, 1)"), (Groups{{0}, {1}}));
  EXPECT_EQ(groups_of("[8] S(0) @ mesh(3)"), (Groups{{0}, {1}, {2}}));
}

TEST(ReplicaGroups, NameTheRanksOfTheMesh) {
  EXPECT_EQ(
      groups_of("[8] S(0) R @ mesh(2, 2; ranks 3 1 2 0)"),
      (Groups{{3, 1}, {2, 0}}));
}

TEST(ReplicaGroups, HoldEqualBoxes) {
  const Layout layout =
      parse_layout("[9, 4] S(0) R S(1) R @ mesh(2, 2, 2, 3)").layout;
  const Groups groups = replica_groups(layout);
  int64_t ranks = 0;
  for (const auto& group : groups) {
    EXPECT_EQ(static_cast<int64_t>(group.size()), replica_count(layout));
    ranks += static_cast<int64_t>(group.size());
    const auto boxes = layout.boxes(*layout.mesh().coordinate_of(group[0]));
    for (const int64_t rank : group) {
      EXPECT_EQ(layout.boxes(*layout.mesh().coordinate_of(rank)), boxes);
    }
  }
  EXPECT_EQ(ranks, layout.mesh().size());
}

TEST(ReplicaCount, IsTheProductOfReplicateDims) {
  const Layout layout =
      parse_layout("[8] R P(sum) S(0) R @ mesh(2, 3, 4, 5)").layout;
  EXPECT_EQ(replica_count(layout), 10);
  EXPECT_EQ(partial_count(layout), 3);
  const Layout sharded = parse_layout("[8] S(0) @ mesh(4)").layout;
  EXPECT_EQ(replica_count(sharded), 1);
  EXPECT_EQ(partial_count(sharded), 1);
}

TEST(RanksToString, ShortensRunsAndLongLists) {
  EXPECT_EQ(ranks_to_string({}), "none");
  EXPECT_EQ(ranks_to_string({5}), "5");
  EXPECT_EQ(ranks_to_string({0, 1}), "0,1");
  EXPECT_EQ(ranks_to_string({0, 1, 2, 3}), "0-3");
  EXPECT_EQ(ranks_to_string({0, 4, 8, 12}), "0,4,8,12");
  EXPECT_EQ(ranks_to_string({0, 1, 2, 7, 9, 10}), "0-2,7,9,10");
  EXPECT_EQ(ranks_to_string({0, 4, 8, 12, 16}), "0,4,...,16 (5)");
}

}  // namespace
}  // namespace tessera
