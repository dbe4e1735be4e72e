// The own cases of CyclicShard, a placement kind that exists in tests only:
// cyclic_shard.patch adds it to a copy of the tree (add_kind.py).
#include <gtest/gtest.h>
#include <tessera/layout/box_layout.h>
#include <tessera/layout/notation.h>
#include <tessera/layout/xla.h>
#include <tessera/plan/redistribute_plan.h>

#include "layout/expect_error.h"

namespace tessera::toy {
namespace {

Layout layout_of(const std::string& text) {
  return parse_layout(text).layout;
}

TEST(CyclicShardTest, DealsIndicesOutInTurn) {
  const Layout layout = layout_of("[5] CS(0) @ mesh(2)");
  EXPECT_EQ(layout.runs(0, {0}), (detail::Runs{{0, 1}, {2, 3}, {4, 5}}));
  EXPECT_EQ(layout.runs(0, {1}), (detail::Runs{{1, 2}, {3, 4}}));
  EXPECT_EQ(layout.local_shape({1}), std::vector<int64_t>{2});
  EXPECT_EQ(layout.owner({3}), std::vector<int64_t>{1});
  EXPECT_EQ(layout.local_index({3}), std::vector<int64_t>{1});
}

TEST(CyclicShardTest, AnswersTheQuestionsAboutPlacements) {
  const Placement p = CyclicShard(-1);
  EXPECT_TRUE(p.is_shard());
  EXPECT_TRUE(p.fits_any_size());
  EXPECT_FALSE(p.is_plain_shard());
  EXPECT_FALSE(p.is_chunked());
  EXPECT_FALSE(p.is_contiguous());
  EXPECT_FALSE(p.depends_on_others());
  EXPECT_EQ(p.resolved(3), CyclicShard(2));
  EXPECT_STREQ(to_string(p.kind()), "cyclic_shard");
}

TEST(CyclicShardTest, IsPrintedAndParsed) {
  for (const char* text : {"CS(0)", "CS(-1)", "CS(1)[0]"}) {
    EXPECT_EQ(to_string(parse_placement(text)), text);
  }
  EXPECT_VALUE_ERROR(parse_placement("CS(0,2)"), "')'");
}

TEST(CyclicShardTest, IsNoTilingOfXla) {
  EXPECT_VALUE_ERROR(
      to_hlo_sharding(layout_of("[4] CS(0) @ mesh(2)")), "equal tiles only");
}

TEST(CyclicShardTest, IsMovedByTheStepsOfAnyShard) {
  const auto steps = [](const char* from, const char* to) {
    std::string text;
    for (const Step& step :
         plan_redistribution(layout_of(from), layout_of(to), 4).steps) {
      text += std::string(to_string(step.kind)) + ";";
    }
    return text;
  };
  EXPECT_EQ(
      steps("[64] CS(0) @ mesh(4)", "[64] S(0) @ mesh(4)"), "all_to_all;");
  EXPECT_EQ(steps("[64] CS(0) @ mesh(4)", "[64] R @ mesh(4)"), "all_gather;");
  EXPECT_EQ(
      steps("[64] P(sum) @ mesh(4)", "[64] CS(0) @ mesh(4)"),
      "reduce_scatter;");
  EXPECT_EQ(steps("[64] R @ mesh(4)", "[64] CS(0) @ mesh(4)"), "slice;");
}

}  // namespace
}  // namespace tessera::toy
