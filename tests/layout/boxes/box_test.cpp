#include <tessera/layout/box.h>

#include <map>
#include <sstream>

#include <gtest/gtest.h>

#include "layout/expect_error.h"
#include "layout/random_case.h"
#include "layout/reference.h"

namespace tessera {
namespace {

using Index = std::vector<int64_t>;

TEST(Box, CountsAndContainsItsElements) {
  const Box box{{2, 5}, {3, 4}};
  EXPECT_EQ(box.ndim(), 2);
  EXPECT_EQ(box.numel(), 12);
  EXPECT_FALSE(box.empty());
  EXPECT_TRUE(box.contains({2, 5}));
  EXPECT_TRUE(box.contains({4, 8}));
  EXPECT_FALSE(box.contains({5, 8}));
  EXPECT_FALSE(box.contains({4, 9}));
  EXPECT_FALSE(box.contains({1, 6}));
  EXPECT_INDEX_ERROR(box.contains({1}), "has 2 numbers; got 1");
  EXPECT_VALUE_ERROR((Box{{0, 0}, {INT64_MAX, 2}}.numel()), "exceeds 64 bits");
}

TEST(Box, OfNoDimsHoldsOneElementAndOfSizeZeroNone) {
  const Box scalar = whole({});
  EXPECT_EQ(scalar.numel(), 1);
  EXPECT_TRUE(scalar.contains({}));
  EXPECT_EQ(to_string(scalar), "[]");
  const Box none = whole({3, 0});
  EXPECT_EQ(none.numel(), 0);
  EXPECT_TRUE(none.empty());
  EXPECT_EQ((Box{{0, 0}, {INT64_MAX, 0}}.numel()), 0);
}

TEST(Box, PrintsBeginAndEndPerDim) {
  std::ostringstream out;
  out << Box{{0, 8}, {4, 8}};
  EXPECT_EQ(out.str(), "[0:4, 8:16]");
}

TEST(Intersect, GivesTheCommonRegionOrNothing) {
  EXPECT_EQ(
      intersect({{0, 0}, {4, 4}}, {{2, 3}, {9, 9}}), (Box{{2, 3}, {2, 1}}));
  EXPECT_EQ(intersect({{0}, {4}}, {{4}, {4}}), std::nullopt);
  EXPECT_EQ(intersect({{0}, {4}}, {{2}, {0}}), std::nullopt);
  EXPECT_EQ(intersect(whole({}), whole({})), whole({}));
  EXPECT_EQ(
      intersect({{5}, {INT64_MAX}}, {{7}, {INT64_MAX}}),
      (Box{{7}, {INT64_MAX - 7}}));
  EXPECT_VALUE_ERROR(intersect(whole({1}), whole({1, 1})), "as many dims");
}

TEST(FindOverlap, NamesBothBoxes) {
  using Found = std::optional<std::pair<size_t, size_t>>;
  EXPECT_EQ(find_overlap({}), Found());
  EXPECT_EQ(find_overlap({whole({})}), Found());
  EXPECT_EQ(find_overlap({whole({}), whole({})}), Found({0, 1}));
  EXPECT_EQ(find_overlap({{{0}, {4}}, {{4}, {2}}}), Found());
  EXPECT_EQ(find_overlap({{{0}, {4}}, {{6}, {2}}, {{3}, {2}}}), Found({0, 2}));
  EXPECT_EQ(find_overlap({{{0}, {4}}, {{2}, {0}}}), Found());  // empty inside
  EXPECT_EQ(
      find_overlap({{{0, 0}, {2, 2}}, {{0, 2}, {2, 2}}, {{1, 1}, {1, 1}}}),
      Found({0, 2}));
  EXPECT_VALUE_ERROR(
      find_overlap({whole({1}), whole({1, 1})}), "at position 1");
}

TEST(IsExactCover, SeesGapsOverlapsAndWhatReachesBeyond) {
  const Box outer{{0}, {9}};
  EXPECT_TRUE(is_exact_cover({{{0}, {4}}, {{4}, {5}}}, outer));
  EXPECT_TRUE(is_exact_cover({{{4}, {5}}, {{0}, {4}}, {{7}, {0}}}, outer));
  EXPECT_TRUE(is_exact_cover({{{0}, {9}}, {{6}, {-2}}}, outer));
  EXPECT_FALSE(is_exact_cover({{{0}, {4}}, {{5}, {4}}}, outer));
  EXPECT_FALSE(is_exact_cover({{{0}, {5}}, {{4}, {5}}}, outer));
  EXPECT_FALSE(is_exact_cover({{{0}, {4}}, {{4}, {6}}}, outer));
  // An overlap and a gap of the same volume.
  EXPECT_FALSE(is_exact_cover({{{0}, {4}}, {{3}, {5}}}, outer));
  EXPECT_TRUE(is_exact_cover({whole({})}, whole({})));
  EXPECT_FALSE(is_exact_cover({}, whole({})));
  EXPECT_FALSE(is_exact_cover({whole({}), whole({})}, whole({})));
  EXPECT_TRUE(is_exact_cover({}, whole({0, 3})));
  EXPECT_FALSE(is_exact_cover({whole({1, 3})}, whole({0, 3})));
  EXPECT_VALUE_ERROR(is_exact_cover({whole({1})}, whole({})), "as many dims");
}

TEST(IsExactCover, AcceptsAPinwheelThatNoGridDescribes) {
  const std::vector<Box> pinwheel{
      {{0, 0}, {1, 2}},
      {{0, 2}, {2, 1}},
      {{2, 1}, {1, 2}},
      {{1, 0}, {2, 1}},
      {{1, 1}, {1, 1}}};
  EXPECT_TRUE(is_exact_cover(pinwheel, whole({3, 3})));
  EXPECT_EQ(find_overlap(pinwheel), std::nullopt);
}

// ---- random boxes against counting every element ----

std::vector<Box> random_boxes(
    Random& random, int64_t ndim, int64_t count, int64_t extent) {
  std::vector<Box> boxes;
  for (int64_t i = 0; i < count; ++i) {
    Box box = whole(Index(static_cast<size_t>(ndim), 0));
    for (size_t d = 0; d < box.sizes.size(); ++d) {
      box.offsets[d] = random.between(0, extent - 1);
      box.sizes[d] = random.between(0, extent - box.offsets[d]);
    }
    boxes.push_back(box);
  }
  return boxes;
}

// Cuts boxes in two at random places: an exact tiling of `outer`.
std::vector<Box> random_tiling(Random& random, const Box& outer, int64_t cuts) {
  std::vector<Box> boxes{outer};
  for (int64_t i = 0; i < cuts && outer.ndim() > 0; ++i) {
    const auto k = static_cast<size_t>(
        random.between(0, static_cast<int64_t>(boxes.size()) - 1));
    const auto d = static_cast<size_t>(random.between(0, outer.ndim() - 1));
    const int64_t first = random.between(0, boxes[k].sizes[d]);
    Box second = boxes[k];
    second.offsets[d] += first;
    second.sizes[d] -= first;
    boxes[k].sizes[d] = first;
    boxes.push_back(second);
  }
  return boxes;
}

std::string print(const std::vector<Box>& boxes) {
  std::ostringstream out;
  for (const Box& box : boxes) {
    out << box << " ";
  }
  return out.str();
}

std::map<Index, int64_t> count_elements(const std::vector<Box>& boxes) {
  std::map<Index, int64_t> counts;
  for (const Box& box : boxes) {
    for (Index index : reference::coordinates(box.sizes)) {
      for (size_t d = 0; d < index.size(); ++d) {
        index[d] += box.offsets[d];
      }
      ++counts[index];
    }
  }
  return counts;
}

std::optional<std::string> check_boxes(
    const std::vector<Box>& boxes, const Box& outer) {
  const auto counts = count_elements(boxes);
  bool overlap = false, inside = true;
  for (const auto& [index, count] : counts) {
    overlap = overlap || count > 1;
    inside = inside && outer.contains(index);
  }
  const bool cover = !overlap && inside &&
                     static_cast<int64_t>(counts.size()) == outer.numel();
  const auto found = find_overlap(boxes);
  if (found.has_value() != overlap ||
      (found && (found->first >= found->second ||
                 !intersect(boxes[found->first], boxes[found->second])))) {
    return "find_overlap is wrong about " + print(boxes);
  }
  if (is_exact_cover(boxes, outer) != cover) {
    return "is_exact_cover is wrong about " + print(boxes);
  }
  return std::nullopt;
}

TEST(BoxAlgebra, AgreesWithCountingForRandomBoxes) {
  for_random_cases(4000, 8, [](Random& random, int64_t size) {
    const int64_t ndim = random.between(0, 4);
    const auto boxes = random_boxes(random, ndim, size, random.between(1, 4));
    return check_boxes(boxes, whole(Index(static_cast<size_t>(ndim), 2)));
  });
}

TEST(BoxAlgebra, AgreesWithCountingForTilingsAndTilingsWithOneBoxMoved) {
  for_random_cases(4000, 24, [](Random& random, int64_t size) {
    const auto ndim = static_cast<size_t>(random.between(1, 4));
    const Box outer{Index(ndim, 3), Index(ndim, random.between(1, 5))};
    auto boxes = random_tiling(random, outer, size);
    if (random.flip()) {
      Box& moved = boxes[static_cast<size_t>(
          random.between(0, static_cast<int64_t>(boxes.size()) - 1))];
      const auto d = static_cast<size_t>(
          random.between(0, static_cast<int64_t>(ndim) - 1));
      (random.flip() ? moved.offsets : moved.sizes)[d] += 1;
    }
    return check_boxes(boxes, outer);
  });
}

TEST(BoxAlgebra, ChecksAHundredThousandBoxesQuickly) {
  std::vector<Box> boxes;
  for (const Index& cell : reference::coordinates({47, 47, 47})) {
    boxes.push_back({{cell[0] * 3, cell[1] * 2, cell[2] * 5}, {3, 2, 5}});
  }
  const Box outer = whole({47 * 3, 47 * 2, 47 * 5});
  EXPECT_TRUE(is_exact_cover(boxes, outer));
  EXPECT_EQ(find_overlap(boxes), std::nullopt);
  boxes[77777].sizes[1] += 1;
  EXPECT_FALSE(is_exact_cover(boxes, outer));
  EXPECT_TRUE(find_overlap(boxes).has_value());
}

TEST(BoxAlgebra, IntersectAgreesWithContains) {
  for_random_cases(
      2000, 6, [](Random& random, int64_t size) -> std::optional<std::string> {
        const auto pair =
            random_boxes(random, random.between(0, 3), 2, size + 1);
        const auto common = intersect(pair[0], pair[1]);
        int64_t shared = 0;
        for (const auto& [index, count] : count_elements(pair)) {
          shared += count == 2 ? 1 : 0;
          if (count == 2 && !(common && common->contains(index))) {
            return "an element is missing: " + print(pair);
          }
        }
        if ((common ? common->numel() : 0) != shared) {
          return "intersect has too many elements: " + print(pair);
        }
        return std::nullopt;
      });
}

}  // namespace
}  // namespace tessera
