#include <tessera/layout/box_layout.h>
#include <tessera/layout/notation.h>

#include <gtest/gtest.h>

#include "layout/expect_error.h"
#include "layout/random_case.h"

namespace tessera {
namespace {

using List = std::vector<int64_t>;

const BoxLayout& pinwheel() {
  static const BoxLayout layout(
      {3, 3}, {{{{0, 0}, {1, 2}}, 0, ""},
               {{{0, 2}, {2, 1}}, 1, ""},
               {{{2, 1}, {1, 2}}, 2, ""},
               {{{1, 0}, {2, 1}}, 3, ""},
               {{{1, 1}, {1, 1}}, 0, ""}});
  return layout;
}

std::optional<std::string> as_mesh(const BoxLayout& boxes) {
  const auto layout = boxes.try_as_mesh();
  return layout ? std::optional(to_string(*layout)) : std::nullopt;
}

TEST(BoxLayout, ListsBoxesAndHoldersOfAnyTiling) {
  EXPECT_EQ(
      pinwheel().boxes(0),
      (std::vector<Box>{{{0, 0}, {1, 2}}, {{1, 1}, {1, 1}}}));
  EXPECT_EQ(pinwheel().boxes(9), std::vector<Box>{});
  EXPECT_EQ(pinwheel().ranks_holding({{1, 0}, {1, 3}}), (List{0, 1, 3}));
  EXPECT_EQ(pinwheel().ranks_holding({{2, 2}, {5, 5}}), List{2});
  EXPECT_EQ(pinwheel().ranks_holding({{1, 1}, {0, 2}}), List{});
  EXPECT_EQ(pinwheel().shape(), (List{3, 3}));
  EXPECT_EQ(pinwheel(), BoxLayout(pinwheel().shape(), pinwheel().tiles()));
  EXPECT_EQ(as_mesh(pinwheel()), std::nullopt);
}

TEST(BoxLayout, FromALayoutKeepsOneCopyAndTheEmptyShards) {
  const BoxLayout boxes =
      BoxLayout::from(parse_layout("[5] R S(0) @ mesh(2, 4)").layout);
  const std::vector<BoxLayout::Tile> expected{
      {{{0}, {2}}, 0, ""},
      {{{2}, {2}}, 1, ""},
      {{{4}, {1}}, 2, ""},
      {{{5}, {0}}, 3, ""}};
  EXPECT_EQ(boxes.tiles(), expected);
  EXPECT_EQ(
      BoxLayout::from(parse_layout("[8] SS(0,2) @ mesh(2)").layout).boxes(1),
      (std::vector<Box>{{{2}, {2}}, {{6}, {2}}}));
  EXPECT_EQ(
      BoxLayout::from(parse_layout("[] R @ mesh(3)").layout).tiles().size(),
      1u);
  EXPECT_VALUE_ERROR(
      BoxLayout::from(parse_layout("[8] P(sum) @ mesh(2)").layout),
      "addends of a Partial are no tiles");
}

TEST(BoxLayout, BecomesTheMeshThatItCameFrom) {
  for (const char* text :
       {"[5] S(0) @ mesh(4)", "[8, 6] S(0) S(1) @ mesh(2, 3)",
        "[7, 5] S(0) S(1) @ mesh(2, 3)", "[9, 2] S(0) @ mesh(4)",
        "[8] S(0) @ mesh(4; ranks 3 1 9 0)", "[1] S(0) @ mesh(3)",
        "[4, 4, 4] S(0) S(2) @ mesh(2, 2; ranks 3 2 1 0)",
        "[1, 5] S(0) @ mesh(2)", "[8] RS(0,[3,5]) @ mesh(2)",
        "[8, 6] RS(0,[3,5]) RS(1,[1,2,3]) @ mesh(2, 3)",
        "[8, 6] S(0) RS(1,[1,5]) @ mesh(4, 2; ranks 7 6 5 4 3 2 1 0)",
        "[8, 6, 5] RS(0,[7,1]) S(1) RS(2,[4,1]) @ mesh(2, 3, 2)",
        "[8] RS(0,[0,3,0,5,0]) @ mesh(5)", "[8] RS(0,[0,8]) @ mesh(2)",
        "[8] RS(0,[4,4,0]) @ mesh(3)",
        "[2, 8] RS(1,[3,0,0,5]) @ mesh(4; ranks 4 9 1 0)"}) {
    EXPECT_EQ(as_mesh(BoxLayout::from(parse_layout(text).layout)), text);
  }
}

TEST(BoxLayout, IsARaggedMeshWhereTheGridHasOtherCutPoints) {
  // Nested chunks are not flat ones: 3 + 2 are 2 1 1 1.
  EXPECT_EQ(
      as_mesh(
          BoxLayout::from(parse_layout("[5] S(0) S(0) @ mesh(2, 2)").layout)),
      "[5] RS(0,[2,1,1,1]) @ mesh(4)");
  // Ceil chunks stay Shard, whatever place the empty tile has.
  EXPECT_EQ(
      as_mesh(
          BoxLayout::from(parse_layout("[4] RS(0,[2,0,2]) @ mesh(3)").layout)),
      "[4] S(0) @ mesh(3; ranks 0 2 1)");
}

TEST(BoxLayout, PutsEmptyTilesOfARaggedMeshWhereTheirOffsetsAre) {
  const auto with_empty = [](int64_t offset) {
    return as_mesh(BoxLayout(
        {8},
        {{{{3}, {5}}, 1, ""}, {{{offset}, {0}}, 2, ""}, {{{0}, {3}}, 0, ""}}));
  };
  EXPECT_EQ(with_empty(0), "[8] RS(0,[0,3,5]) @ mesh(3; ranks 2 0 1)");
  EXPECT_EQ(with_empty(3), "[8] RS(0,[3,0,5]) @ mesh(3; ranks 0 2 1)");
  EXPECT_EQ(with_empty(8), "[8] RS(0,[3,5,0]) @ mesh(3)");
  EXPECT_EQ(with_empty(4), std::nullopt);  // inside another tile
  // Empty in another dim than the one that is cut.
  EXPECT_EQ(
      as_mesh(BoxLayout(
          {8, 2}, {{{{0, 0}, {3, 2}}, 0, ""},
                   {{{3, 0}, {5, 2}}, 1, ""},
                   {{{3, 0}, {5, 0}}, 2, ""}})),
      std::nullopt);
}

TEST(BoxLayout, IsNoMeshWhereTheTilesAreNoGrid) {
  for (const char* text :
       {"[8] SS(0,2) @ mesh(2)",          // two boxes per rank
        "[1, 8] S(0) S(1) @ mesh(2, 2)",  // empty tiles off a single dim
        "[4] S(0) @ mesh(1)",             // a single tile
        "[0] S(0) @ mesh(2)",             // every layout fits
        "[1, 1] S(0) S(1) @ mesh(2, 2)"}) {
    EXPECT_EQ(as_mesh(BoxLayout::from(parse_layout(text).layout)), std::nullopt)
        << text;
  }
  // An empty tile whose dim is not to be told.
  EXPECT_EQ(
      as_mesh(BoxLayout(
          {1, 1}, {{{{0, 0}, {1, 1}}, 0, ""}, {{{1, 1}, {0, 0}}, 1, ""}})),
      std::nullopt);
  // Columns of different heights: as many tiles as a grid has, but none.
  EXPECT_EQ(
      as_mesh(BoxLayout(
          {4, 4}, {{{{0, 0}, {2, 2}}, 0, ""},
                   {{{2, 0}, {2, 2}}, 1, ""},
                   {{{0, 2}, {1, 2}}, 2, ""},
                   {{{1, 2}, {3, 2}}, 3, ""}})),
      std::nullopt);
}

TEST(BoxLayout, IsAMeshOnlyOnOneKindOfDevice) {
  const auto with = [](const char* first, const char* second) {
    return as_mesh(
        BoxLayout({4}, {{{{0}, {2}}, 0, first}, {{{2}, {2}}, 1, second}}));
  };
  EXPECT_EQ(with("cuda:0", "cuda:1"), "[4] S(0) @ mesh(2)");
  EXPECT_EQ(with("cpu", "cuda:1"), std::nullopt);
  EXPECT_EQ(with("cpu", ""), std::nullopt);
}

// The same tiles in another order.
BoxLayout shuffled(Random& random, const BoxLayout& boxes) {
  std::vector<BoxLayout::Tile> tiles = boxes.tiles();
  for (size_t i = tiles.size(); i-- > 1;) {
    std::swap(
        tiles[i],
        tiles[static_cast<size_t>(random.between(0, static_cast<int64_t>(i)))]);
  }
  return BoxLayout(boxes.shape(), std::move(tiles));
}

// Shard, or RaggedShard with random lengths, some of them 0.
Placement random_cut(
    Random& random, int64_t dim, int64_t length, int64_t parts) {
  if (random.flip()) {
    return Shard(dim);
  }
  List sizes(static_cast<size_t>(parts), 0);
  for (int64_t i = 0; i < length; ++i) {
    ++sizes[static_cast<size_t>(random.between(0, parts - 1))];
  }
  return RaggedShard(dim, sizes);
}

// Every rank holds what its tile says.
bool answers_alike(const Layout& layout, const BoxLayout& boxes) {
  return std::all_of(
      boxes.tiles().begin(), boxes.tiles().end(),
      [&](const BoxLayout::Tile& tile) {
        const auto at = layout.mesh().coordinate_of(tile.rank);
        return at && (tile.box.empty() ? layout.box(*at).empty()
                                       : layout.box(*at) == tile.box);
      });
}

TEST(BoxLayout, IsAMeshInAnyOrderOfTilesOnlyIfItAnswersAlike) {
  for_random_cases(
      2000, 5, [](Random& random, int64_t size) -> std::optional<std::string> {
        const List shape{
            random.between(1, 2 * size + 1), random.between(1, 2 * size + 1)};
        const MeshShape mesh({random.between(1, 3), random.between(2, 3)});
        const Layout layout(
            shape, mesh,
            {random_cut(random, 0, shape[0], mesh.size(0)),
             random_cut(random, 1, shape[1], mesh.size(1))});
        const BoxLayout boxes = shuffled(random, BoxLayout::from(layout));
        const bool all_full = std::none_of(
            boxes.tiles().begin(), boxes.tiles().end(),
            [](const BoxLayout::Tile& tile) { return tile.box.empty(); });
        const auto found = boxes.try_as_mesh();
        if (!found && all_full) {
          return "no mesh for " + to_string(layout);
        }
        if (found && !answers_alike(*found, boxes)) {
          return to_string(layout) + " became " + to_string(*found);
        }
        return std::nullopt;
      });
}

TEST(BoxLayout, IsAMeshAlongOneDimWithEmptyTilesInAnyPlace) {
  for_random_cases(
      2000, 5, [](Random& random, int64_t size) -> std::optional<std::string> {
        const List shape{2, random.between(1, 2 * size + 1)};
        const int64_t parts = random.between(2, 5);
        const Layout layout(
            shape, MeshShape({parts}),
            {random_cut(random, 1, shape[1], parts)});
        const BoxLayout boxes = shuffled(random, BoxLayout::from(layout));
        const auto found = boxes.try_as_mesh();
        if (!found || !answers_alike(*found, boxes)) {
          return to_string(layout) + " became " +
                 (found ? to_string(*found) : "nothing");
        }
        return std::nullopt;
      });
}

TEST(BoxLayoutErrors, NameTheTiles) {
  const auto make = [](const List& shape, std::vector<BoxLayout::Tile> tiles) {
    return BoxLayout(shape, std::move(tiles));
  };
  EXPECT_VALUE_ERROR(
      make({4}, {{{{0}, {3}}, 0, ""}, {{{2}, {2}}, 7, ""}}),
      "BoxLayout([4]): tiles must not share elements; tile 0 [0:3] of rank 0 "
      "and tile 1 [2:4] of rank 7 share [2:3]");
  EXPECT_VALUE_ERROR(
      make({2, 4}, {{{{0, 0}, {2, 2}}, 0, ""}, {{{0, 2}, {1, 2}}, 1, ""}}),
      "none of the 2 tiles holds [1, 2]");
  EXPECT_VALUE_ERROR(make({4}, {}), "none of the 0 tiles holds [0]");
  EXPECT_VALUE_ERROR(
      make({4}, {{{{2}, {3}}, 5, ""}}),
      "tile 0 of rank 5 at offsets [2] of sizes [3] reaches outside in tensor "
      "dim 0");
  EXPECT_VALUE_ERROR(make({4}, {{{{-1}, {3}}, 5, ""}}), "reaches outside");
  EXPECT_VALUE_ERROR(make({4}, {{{{3}, {-1}}, 5, ""}}), "reaches outside");
  EXPECT_VALUE_ERROR(
      make({4}, {{{{INT64_MAX}, {2}}, 5, ""}}), "reaches outside");
  EXPECT_VALUE_ERROR(
      make({4}, {{{{0}, {4, 4}}, 5, ""}}),
      "must have 1 offsets and sizes; got 1 and 2");
  EXPECT_VALUE_ERROR(
      make({4}, {{{{0}, {4}}, -2, ""}}), "must not be negative; got tile 0");
  EXPECT_VALUE_ERROR(make({-4}, {}), "got -4 for tensor dim 0");
  EXPECT_VALUE_ERROR(make({INT64_MAX, 3}, {}), "exceeds 64 bits");
  EXPECT_VALUE_ERROR(
      pinwheel().ranks_holding(whole({3})), "as the shape [3, 3]; got [0:3]");
}

}  // namespace
}  // namespace tessera
