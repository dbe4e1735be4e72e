#include <tessera/layout/layout.h>
#include <tessera/layout/notation.h>

#include <sstream>

#include <gtest/gtest.h>

#include "layout/expect_error.h"

namespace tessera {
namespace {

using List = std::vector<int64_t>;

List lengths(const Placement& p, int64_t length, int64_t parts) {
  List result;
  for (int64_t r = 0; r < parts; ++r) {
    result.push_back(total_length(cut_runs(p, length, parts, r)));
  }
  return result;
}

TEST(CutRuns, GivesCeilChunks) {
  EXPECT_EQ(lengths(Shard(0), 10, 4), (List{3, 3, 3, 1}));
  EXPECT_EQ(lengths(Shard(0), 11, 4), (List{3, 3, 3, 2}));
  EXPECT_EQ(lengths(Shard(0), 13, 4), (List{4, 4, 4, 1}));
  EXPECT_EQ(lengths(Shard(0), 5, 4), (List{2, 2, 1, 0}));
  EXPECT_EQ(lengths(Shard(0), 9, 4), (List{3, 3, 3, 0}));
  EXPECT_EQ(lengths(Shard(0), 2, 4), (List{1, 1, 0, 0}));
  EXPECT_EQ(cut_runs(Shard(0), 10, 4, 3), (Layout::Runs{{9, 10}}));
  EXPECT_EQ(cut_runs(Shard(0), 5, 4, 3), Layout::Runs{});
  EXPECT_EQ(cut_runs(Shard(0), 0, 4, 0), Layout::Runs{});
}

TEST(CutRuns, GivesOnePartOfEveryPieceWhenStrided) {
  EXPECT_EQ(
      cut_runs(StridedShard(0, 2), 8, 2, 0), (Layout::Runs{{0, 2}, {4, 6}}));
  EXPECT_EQ(
      cut_runs(StridedShard(0, 2), 8, 2, 1), (Layout::Runs{{2, 4}, {6, 8}}));
  EXPECT_EQ(
      cut_runs(StridedShard(0, 4), 24, 2, 1),
      (Layout::Runs{{3, 6}, {9, 12}, {15, 18}, {21, 24}}));
  // Pieces 0:4 and 4:7; the short one is cut into 2 and 1.
  EXPECT_EQ(
      cut_runs(StridedShard(0, 2), 7, 2, 0), (Layout::Runs{{0, 2}, {4, 6}}));
  EXPECT_EQ(
      cut_runs(StridedShard(0, 2), 7, 2, 1), (Layout::Runs{{2, 4}, {6, 7}}));
  EXPECT_EQ(cut_runs(StridedShard(0, 2), 8, 1, 0), (Layout::Runs{{0, 8}}));
}

TEST(CutRuns, GivesRaggedLengthsAndWholesAsTheyAre) {
  const Placement ragged = RaggedShard(0, {3, 0, 5});
  EXPECT_EQ(cut_runs(ragged, 8, 3, 0), (Layout::Runs{{0, 3}}));
  EXPECT_EQ(cut_runs(ragged, 8, 3, 1), Layout::Runs{});
  EXPECT_EQ(cut_runs(ragged, 8, 3, 2), (Layout::Runs{{3, 8}}));
  EXPECT_EQ(cut_runs(Replicate(), 8, 3, 2), (Layout::Runs{{0, 8}}));
  EXPECT_EQ(cut_runs(Partial(), 8, 3, 1), (Layout::Runs{{0, 8}}));
}

TEST(CutRuns, RefusesWhatDoesNotFit) {
  EXPECT_VALUE_ERROR(cut_runs(Shard(0), -1, 2, 0), "got length -1, parts 2");
  EXPECT_VALUE_ERROR(cut_runs(Shard(0), 4, 0, 0), "got length 4, parts 0");
  EXPECT_INDEX_ERROR(cut_runs(Shard(0), 4, 2, 2), "one of 0 .. 1; got 2");
  EXPECT_VALUE_ERROR(
      cut_runs(RaggedShard(0, {1, 2}), 4, 2, 0),
      "wants 2 lengths that add up to 4; got 2 that add up to 3");
}

// The table of worked examples: a layout and, per rank, its boxes.
struct Example {
  const char* layout;
  std::vector<std::string> boxes;
};

void PrintTo(const Example& example, std::ostream* out) {
  *out << example.layout;
}

class WorkedExample : public ::testing::TestWithParam<Example> {};

TEST_P(WorkedExample, HasTheBoxesOfTheTable) {
  const Layout layout = parse_layout(GetParam().layout).layout;
  std::vector<std::string> boxes;
  for (int64_t rank : layout.mesh().ranks()) {
    const auto coordinate = *layout.mesh().coordinate_of(rank);
    std::string text;
    for (const Box& box : layout.boxes(coordinate)) {
      text.append(text.empty() ? "" : " ").append(to_string(box));
    }
    boxes.push_back(text);
  }
  EXPECT_EQ(boxes, GetParam().boxes);
}

INSTANTIATE_TEST_SUITE_P(
    Layout, WorkedExample,
    ::testing::Values(
        Example{"[5] S(0) @ mesh(4)", {"[0:2]", "[2:4]", "[4:5]", ""}},
        Example{
            "[2, 5] S(1) S(1) @ mesh(2, 2)",
            {"[0:2, 0:2]", "[0:2, 2:3]", "[0:2, 3:4]", "[0:2, 4:5]"}},
        Example{
            "[8] S(0)[1] S(0)[0] @ mesh(2, 2)",
            {"[0:2]", "[4:6]", "[2:4]", "[6:8]"}},
        Example{
            "[8] SS(0,2) S(0) @ mesh(2, 2)",
            {"[0:2]", "[4:6]", "[2:4]", "[6:8]"}},
        Example{
            "[24] SS(0,4) @ mesh(2)",
            {"[0:3] [6:9] [12:15] [18:21]", "[3:6] [9:12] [15:18] [21:24]"}},
        Example{"[8] RS(0,[3,0,5]) @ mesh(3)", {"[0:3]", "", "[3:8]"}},
        Example{
            "[8] RS(0,[3,5]) S(0) @ mesh(2, 2)",
            {"[0:2]", "[2:3]", "[3:6]", "[6:8]"}},
        Example{"[] R @ mesh(2)", {"[]", "[]"}},
        Example{
            "[4, 4] S(-1) P(sum) @ mesh(2, 2)",
            {"[0:4, 0:2]", "[0:4, 0:2]", "[0:4, 2:4]", "[0:4, 2:4]"}},
        Example{"[0, 3] S(0) @ mesh(2)", {"", ""}},
        Example{"[4] S(0) @ mesh(2; ranks 9 3)", {"[0:2]", "[2:4]"}}));

TEST(Layout, AnEmptyShardBeginsAtTheEndOfTheDim) {
  const Layout layout({5, 3}, MeshShape({4}), {Shard(0)});
  EXPECT_EQ(layout.box({3}), (Box{{5, 0}, {0, 3}}));
  EXPECT_EQ(layout.local_shape({3}), (List{0, 3}));
  EXPECT_EQ(local_shape({10}, MeshShape({4}), {Shard(0)}, {3}), List{1});
  EXPECT_EQ(
      local_box({5, 3}, MeshShape({4}), {Shard(0)}, {2}),
      (Box{{4, 0}, {1, 3}}));
}

TEST(Layout, AnswersWhoHoldsAnElement) {
  const Layout layout =
      parse_layout("[8, 6] S(0) R S(0) @ mesh(2, 2, 2)").layout;
  EXPECT_EQ(layout.owner({6, 1}), (List{1, -1, 1}));
  EXPECT_EQ(layout.owner_ranks({6, 1}), (List{5, 7}));
  EXPECT_EQ(layout.local_index({7, 1}), (List{1, 1}));
  EXPECT_EQ(layout.ranks_holding({{3, 0}, {2, 1}}), (List{1, 3, 4, 6}));
  EXPECT_EQ(layout.ranks_holding({{7, 0}, {9, 1}}), (List{5, 7}));
  EXPECT_EQ(layout.ranks_holding({{8, 0}, {9, 1}}), List{});
  EXPECT_EQ(layout.ranks_holding({{0, 0}, {8, 0}}), List{});
  EXPECT_EQ(layout.cuts(0), (List{0, 2}));
  EXPECT_EQ(layout.cuts(1), List{});
}

TEST(Layout, NormalisesDimsAndTurns) {
  const MeshShape mesh({2, 2});
  const Layout plain({8, 4}, mesh, {Shard(0), Shard(0)});
  EXPECT_EQ(Layout({8, 4}, mesh, {Shard(-2), Shard(0)}), plain);
  const Placements ascending{Shard(0).with_order(0), Shard(0).with_order(1)};
  EXPECT_EQ(Layout({8, 4}, mesh, ascending), plain);
  EXPECT_EQ(Layout({8, 4}, mesh, ascending).hash(), plain.hash());
  EXPECT_EQ(plain.placements()[0].order(), -1);
  const Layout turned(
      {8, 4}, mesh, {Shard(0).with_order(1), Shard(-2).with_order(0)});
  EXPECT_NE(turned, plain);
  EXPECT_NE(turned.hash(), plain.hash());
  EXPECT_EQ(turned.cuts(0), (List{1, 0}));
  EXPECT_EQ(to_string(turned), "[8, 4] S(0)[1] S(0)[0] @ mesh(2, 2)");
  EXPECT_EQ(
      Layout({8, 4}, mesh, {Shard(1).with_order(0), Replicate()})
          .placements()[0],
      Shard(1));
}

TEST(Layout, ComparesShapeMeshAndPlacements) {
  const Layout layout({8}, MeshShape({2}), {Shard(0)});
  EXPECT_EQ(
      layout, Layout({8}, MeshShape::from_ranks({0, 1}, {2}), {Shard(0)}));
  EXPECT_NE(layout, Layout({9}, MeshShape({2}), {Shard(0)}));
  EXPECT_NE(layout, Layout({8}, MeshShape({4}), {Shard(0)}));
  EXPECT_NE(layout, Layout({8}, MeshShape({2}), {Replicate()}));
  EXPECT_FALSE(layout.is_replicated());
  EXPECT_TRUE(Layout({8}, MeshShape({2}), {Replicate()}).is_replicated());
  EXPECT_TRUE(Layout({8}, MeshShape({2}), {Partial()}).has_partial());
  EXPECT_FALSE(layout.has_partial());
  std::ostringstream out;
  out << layout;
  EXPECT_EQ(out.str(), "[8] S(0) @ mesh(2)");
}

TEST(Layout, OfManyRanksAndElementsIsArithmetic) {
  const int64_t mega = 1048576;
  const Layout grid({mega, mega}, MeshShape({256, 256}), {Shard(0), Shard(1)});
  EXPECT_EQ(grid.box({255, 255}), (Box{{1044480, 1044480}, {4096, 4096}}));
  EXPECT_EQ(grid.owner({1044480, 4095}), (List{255, 0}));
  EXPECT_EQ(
      grid.ranks_holding({{mega - 1, 4095}, {1, 2}}), (List{65280, 65281}));
  const int64_t huge = int64_t{1} << 62;
  const Layout strided(
      {huge}, MeshShape({1 << 20, 4}), {StridedShard(0, 1000000), Shard(0)});
  EXPECT_EQ(strided.local_shape({0, 0})[0] > 0, true);
  const List owner = strided.owner({huge - 1});
  const List at = strided.local_index({huge - 1});
  EXPECT_EQ(at[0] + 1, strided.local_shape(owner)[0]);
  const Layout largest({INT64_MAX}, MeshShape({int64_t{1} << 40}), {Shard(0)});
  EXPECT_EQ(largest.owner({INT64_MAX - 1})[0], (int64_t{1} << 40) - 1);
  EXPECT_EQ(
      largest.local_shape({(int64_t{1} << 40) - 1})[0], (int64_t{1} << 23) - 1);
}

TEST(Layout, TellsWhetherAllHoldEquallyMuch) {
  const auto is_even = [](const char* text) {
    return parse_layout(text).layout.is_even();
  };
  EXPECT_TRUE(is_even("[8, 3] S(0) R @ mesh(2, 4)"));
  EXPECT_TRUE(is_even("[8] S(0) S(0) @ mesh(2, 4)"));
  EXPECT_TRUE(is_even("[8] RS(0,[4,4]) @ mesh(2)"));
  EXPECT_TRUE(is_even("[0] S(0) @ mesh(2)"));
  EXPECT_FALSE(is_even("[8] RS(0,[3,5]) @ mesh(2)"));
  EXPECT_FALSE(is_even("[6] S(0) S(0) @ mesh(2, 2)"));
  EXPECT_FALSE(is_even("[8, 3] S(0) S(1) @ mesh(2, 2)"));
}

}  // namespace
}  // namespace tessera
