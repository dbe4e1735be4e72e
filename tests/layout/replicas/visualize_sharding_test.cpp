#include <tessera/layout/visualize_sharding.h>

#include <gtest/gtest.h>
#include <tessera/layout/notation.h>

#include <algorithm>
#include <sstream>

#include "layout/expect_error.h"

namespace tessera {
namespace {

std::string picture_of(
    const std::string& text, const VisualizeOptions& options = {}) {
  return visualize_sharding(parse_layout(text).layout, options);
}

TEST(VisualizeSharding, DrawsTwoDimsAsAGrid) {
  EXPECT_EQ(
      picture_of("[8, 16] S(0) S(1) @ mesh(dp=2, tp=2)"),
      "        0:8   8:16\n"
      "      ┌─────┬──────┐\n"
      "  0:4 │  0  │  1   │\n"
      "      ├─────┼──────┤\n"
      "  4:8 │  2  │  3   │\n"
      "      └─────┴──────┘");
}

TEST(VisualizeSharding, DrawsAscii) {
  EXPECT_EQ(
      picture_of("[4] S(0) @ mesh(2)", {.ascii = true}),
      "    0:2   2:4\n"
      "  +-----+-----+\n"
      "  |  0  |  1  |\n"
      "  +-----+-----+");
}

TEST(VisualizeSharding, NamesCopiesAndTermsOfOneCell) {
  EXPECT_EQ(
      picture_of("[4, 4] R S(1) @ mesh(2, 2)"),
      "        0:2   2:4\n"
      "      ┌─────┬─────┐\n"
      "  0:4 │ 0,2 │ 1,3 │\n"
      "      └─────┴─────┘\n"
      "\n"
      "ranks in one cell hold copies");
  EXPECT_EQ(
      picture_of("[4, 4] P(max) R @ mesh(2, 2)"),
      "                0:4\n"
      "      ┌─────────────────────┐\n"
      "  0:4 │ max(0,2) = max(1,3) │\n"
      "      └─────────────────────┘\n"
      "\n"
      "max(a,b): each of these ranks holds one term; = stands between copies");
}

TEST(VisualizeSharding, ListsOtherTensorsInATable) {
  const std::string table =
      "  ranks  coordinate  local shape  holds\n"
      "  ─────  ──────────  ───────────  ──────────\n"
      "    0,1  dp=0 tp=*   [2, 4]       [0:2, 0:4]\n"
      "    2,3  dp=1 tp=*   [2, 4]       [2:4, 0:4]";
  EXPECT_EQ(
      picture_of("[4, 4] S(0) R @ mesh(dp=2, tp=2)", {.table = true}), table);
  EXPECT_EQ(
      picture_of("[] R @ mesh(4)"),
      "  ranks  coordinate  local shape  holds\n"
      "  ─────  ──────────  ───────────  ─────\n"
      "    0-3  (*)         []           []");
}

TEST(VisualizeSharding, FitsTheWidth) {
  for (const int width : {60, 80, 120}) {
    const std::string text = picture_of(
        "[4096, 4096] S(0) S(1) @ mesh(64, 64)",
        {.width = width, .ascii = true});
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.find("shortened") == std::string::npos) {
        EXPECT_LE(static_cast<int>(line.size()), width) << line;
      }
    }
    EXPECT_NE(text.find("\n\nshortened: visualize_shard()"), std::string::npos);
  }
}

TEST(VisualizeSharding, SaysWhatTheCallerSaysOfAShortenedGrid) {
  const std::string layout = "[256] S(0) @ mesh(2)";
  EXPECT_EQ(
      picture_of(layout, {.shortened_note = "other"}), picture_of(layout));
  const std::string large = "[4096, 4096] S(0) S(1) @ mesh(64, 64)";
  EXPECT_TRUE(
      picture_of(large, {.shortened_note = "see N"}).ends_with("\n\nsee N"));
  EXPECT_TRUE(picture_of(large, {.shortened_note = ""}).ends_with("┘"));
}

TEST(VisualizeSharding, ColoursEachShard) {
  const std::string plain = picture_of("[4] S(0) @ mesh(2)");
  EXPECT_EQ(plain.find('\x1b'), std::string::npos);
  const std::string colored = picture_of("[4] S(0) @ mesh(2)", {.color = true});
  EXPECT_EQ(std::count(colored.begin(), colored.end(), '\x1b'), 4);
}

TEST(VisualizeShard, TellsWhatOneRankHolds) {
  EXPECT_EQ(
      visualize_shard(
          parse_layout("[8, 16] R S(0) @ mesh(dp=2, tp=4)").layout, 3),
      "rank 3 at dp=0 tp=3: local shape [2, 16], 32 elements of 128\n"
      "  holds [6:8, 0:16]\n"
      "  held by 3,7");
  EXPECT_EQ(
      visualize_shard(parse_layout("[3] S(0) @ mesh(5)").layout, 4),
      "rank 4 at (4): local shape [0], 0 elements of 3\n"
      "  holds nothing");
}

TEST(VisualizeShard, RefusesARankOutsideTheMesh) {
  EXPECT_INDEX_ERROR(
      visualize_shard(parse_layout("[8] S(0) @ mesh(2)").layout, 2),
      "the rank must be in the mesh; got 2, the largest is 1");
}

}  // namespace
}  // namespace tessera
