#include <tessera/layout/notation.h>

#include <gtest/gtest.h>

#include "layout/expect_error.h"
#include "layout/random_case.h"

namespace tessera {
namespace {

using List = std::vector<int64_t>;

TEST(ParsePlacement, ReadsEveryKind) {
  EXPECT_EQ(parse_placement("R"), Replicate());
  EXPECT_EQ(parse_placement(" S( -1 ) "), Shard(-1));
  EXPECT_EQ(parse_placement("SS(0,2)"), StridedShard(0, 2));
  EXPECT_EQ(parse_placement("RS(0, [3, 0, 5])"), RaggedShard(0, {3, 0, 5}));
  EXPECT_EQ(parse_placement("RS(0,[])"), RaggedShard(0, {}));
  EXPECT_EQ(parse_placement("P(product)"), Partial(ReduceOp::kProduct));
  EXPECT_EQ(parse_placement("S(0)[1]"), Shard(0).with_order(1));
  EXPECT_EQ(parse_placement("RS(1,[2])[0]"), RaggedShard(1, {2}).with_order(0));
}

TEST(ParsePlacements, TakesBlanksAndCommas) {
  const Placements expected{Shard(0), Replicate(), Partial(ReduceOp::kMax)};
  EXPECT_EQ(parse_placements("S(0) R P(max)"), expected);
  EXPECT_EQ(parse_placements("S(0),R , P(max)"), expected);
  EXPECT_EQ(parse_placements("  "), Placements{});
  EXPECT_EQ(parse_placements(""), Placements{});
}

TEST(ParseMesh, TakesTheLongAndTheShortForm) {
  const MeshShape named({2, 4}, {"dp", "tp"});
  EXPECT_EQ(parse_mesh("mesh(dp=2, tp=4)"), named);
  EXPECT_EQ(parse_mesh("dp=2,tp=4"), named);
  EXPECT_EQ(parse_mesh(" dp = 2 , tp = 4 "), named);
  EXPECT_EQ(parse_mesh("mesh(2, 4)"), MeshShape({2, 4}));
  EXPECT_EQ(parse_mesh("2x4"), MeshShape({2, 4}));
  EXPECT_EQ(parse_mesh("4"), MeshShape({4}));
  EXPECT_EQ(parse_mesh("mesh()"), MeshShape());
  EXPECT_EQ(parse_mesh("mesh=4"), MeshShape({4}, {"mesh"}));
  EXPECT_EQ(
      parse_mesh("mesh(tp=2; ranks 1 3)"),
      MeshShape::from_ranks({1, 3}, {2}, {"tp"}));
  EXPECT_EQ(parse_mesh("mesh(; ranks 5)"), MeshShape::from_ranks({5}, {}));
}

TEST(ParseShape, TakesBothForms) {
  EXPECT_EQ(parse_shape("[8, 16]"), (List{8, 16}));
  EXPECT_EQ(parse_shape("8x16"), (List{8, 16}));
  EXPECT_EQ(parse_shape("[]"), List{});
  EXPECT_EQ(parse_shape("7"), List{7});
  EXPECT_EQ(shape_to_string({8, 16}), "[8, 16]");
  EXPECT_EQ(shape_to_string({}), "[]");
}

TEST(ParseLayout, ReadsDtypeShapePlacementsAndMesh) {
  const TypedLayout typed =
      parse_layout("f32[8, 16] S(0) R @ mesh(dp=2, tp=4)");
  EXPECT_EQ(typed.dtype, "f32");
  EXPECT_EQ(
      typed.layout,
      Layout(
          {8, 16}, MeshShape({2, 4}, {"dp", "tp"}), {Shard(0), Replicate()}));
  EXPECT_EQ(parse_layout("8x16 S(0),R@dp=2,tp=4").layout, typed.layout);
  EXPECT_EQ(parse_layout("[3] @ mesh()").dtype, "");
  EXPECT_EQ(to_string(parse_layout("[3]@mesh()").layout), "[3] @ mesh()");
}

// Checks the expectation and that the caret stands under `offset`.
void expect_place(
    const std::function<void()>& parse, const std::string& text, size_t offset,
    const std::string& expected) {
  try {
    parse();
    ADD_FAILURE() << "no error for " << text;
  } catch (const c10::ValueError& error) {
    const std::string what = error.what_without_backtrace();
    const std::string place = ": expected " + expected + " at offset " +
                              std::to_string(offset) + ":\n  " + text + "\n  " +
                              std::string(offset, ' ') + "^";
    EXPECT_NE(what.find(place), std::string::npos)
        << "wanted: " << place << "\ngot: " << what;
  }
}

TEST(NotationErrors, OfPlacementsShowThePlace) {
  const std::string placement =
      "a placement: R, S(0), SS(0,2), RS(0,[3,0,5]) or P(sum)";
  const std::vector<std::tuple<std::string, size_t, std::string>> table{
      {"", 0, placement},
      {"X(0)", 0, placement},
      {"Shard(0)", 0, placement},
      {"S", 1, "'('"},
      {"S(", 2, "a tensor dim"},
      {"S(x)", 2, "a tensor dim"},
      {"S(0", 3, "')'"},
      {"S(0,1)", 3, "')'"},
      {"SS(0)", 4, "','"},
      {"SS(0,)", 5, "a split factor"},
      {"SS(0,2", 6, "')'"},
      {"RS(0,3)", 5, "'[' before the lengths"},
      {"RS(0,[3,])", 8, "a length"},
      {"RS(0,[3 4])", 8, "',' or ']'"},
      {"RS(0,[3]", 8, "')'"},
      {"P(mean)", 2, "sum, avg, max, min or product"},
      {"P(sum", 5, "')'"},
      {"S(0)[x]", 5, "a turn"},
      {"S(0)[-1]", 5, "a turn that is not negative"},
      {"S(0)[1", 6, "']'"},
      {"R R", 2, "the end after one placement"},
      {"S(99999999999999999999)", 2, "a tensor dim of at most 64 bits"}};
  for (const auto& [text, offset, expected] : table) {
    expect_place([&] { parse_placement(text); }, text, offset, expected);
  }
  expect_place(
      [] { parse_placements("S(0)R"); }, "S(0)R", 4,
      "a blank or ',' after a placement");
  expect_place([] { parse_placements("R,"); }, "R,", 2, placement);
  expect_place([] { parse_placements(",R"); }, ",R", 0, placement);
}

TEST(NotationErrors, OfMeshesShapesAndLayoutsShowThePlace) {
  const std::vector<std::tuple<std::string, size_t, std::string>> meshes{
      {"", 0, "a mesh dim, such as tp=4 or 4"},
      {"tp", 2, "'=' after the name of a mesh dim"},
      {"tp=x", 3, "a mesh dim, such as tp=4 or 4"},
      {"tp=4,2", 5, "a name, as for the dims before, such as tp=4"},
      {"2xq", 2, "a size after 'x'"},
      {"2,4", 1, "the end after the mesh"},
      {"mesh(2, tp=4)", 8, "a size"},
      {"mesh(2", 6, "',', ';' or ')'"},
      {"mesh(2; 1 3)", 8, "ranks after ';'"},
      {"mesh(2; ranks 1 x)", 16, "a rank or ')'"},
      {"mesh(2) 3", 8, "the end after the mesh"}};
  for (const auto& [text, offset, expected] : meshes) {
    expect_place([&] { parse_mesh(text); }, text, offset, expected);
  }
  const std::vector<std::tuple<std::string, size_t, std::string>> shapes{
      {"", 0, "a shape, such as [8, 16] or 8x16"},
      {"[8", 2, "',' or ']'"},
      {"[8,]", 3, "a size or ']'"},
      {"8x", 2, "a size after 'x'"},
      {"[8] 9", 4, "the end after the shape"}};
  for (const auto& [text, offset, expected] : shapes) {
    expect_place([&] { parse_shape(text); }, text, offset, expected);
  }
  const std::vector<std::tuple<std::string, size_t, std::string>> layouts{
      {"f32 S(0) @ 2", 4, "'[' and the shape after the dtype"},
      {"[8] S(0)", 8, "a placement, or '@' and the mesh"},
      {"[8] S(0) @ 2 2", 13, "the end after the mesh"}};
  for (const auto& [text, offset, expected] : layouts) {
    expect_place([&] { parse_layout(text); }, text, offset, expected);
  }
}

TEST(NotationErrors, ShowAWindowOfLongAndUnprintableTexts) {
  const std::string text(5000, 'x');
  EXPECT_VALUE_ERROR(parse_shape("1" + text), "at offset 2:\n  1xxx");
  EXPECT_VALUE_ERROR(
      parse_placements("R " + std::string(5000, ' ') + "\x01\xff"), " ??\n");
  EXPECT_VALUE_ERROR(
      parse_placements(std::string(100, ' ') + "?" + text),
      "at offset 100:\n  ...");
}

TEST(NotationErrors, OfValuesComeFromTheTypes) {
  EXPECT_VALUE_ERROR(parse_placement("SS(0,0)"), "at least 1; got 0");
  EXPECT_VALUE_ERROR(parse_mesh("0x2"), "at least 1 rank; got 0");
  EXPECT_VALUE_ERROR(parse_mesh("a=1,a=2"), "got \"a\" for dims 0 and 1");
  EXPECT_VALUE_ERROR(parse_layout("[8] S(0) @ 2x2"), "got 1 placements for 2");
  EXPECT_VALUE_ERROR(
      parse_mesh("mesh(99999999999; ranks 1)"), "99999999999 ranks; got 1");
}

}  // namespace
}  // namespace tessera
