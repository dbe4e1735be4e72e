#include <checkpoint/name_globs.h>
#include <gtest/gtest.h>

namespace {

using tessera::detail::matches;

TEST(NameGlobs, AStarStandsForAnyTextDotsIncluded) {
  EXPECT_TRUE(matches("model.*.weight", "model.blocks.0.weight"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("a*b*c", "a.b.b.c"));
  EXPECT_TRUE(matches("exact", "exact"));
  EXPECT_FALSE(matches("model.*.weight", "model.blocks.0.bias"));
  EXPECT_FALSE(matches("a*b", "a.b.c"));
  EXPECT_FALSE(matches("", "a"));
}

TEST(NameGlobs, ManyStarsTakeNoMoreThanPatternTimesName) {
  std::string pattern, name(2000, 'a');
  for (int i = 0; i < 500; ++i) {
    pattern += "a*";
  }
  EXPECT_FALSE(matches(pattern + "b", name));
}

}  // namespace
