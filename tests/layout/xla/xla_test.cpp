#include <tessera/layout/xla.h>

#include <gtest/gtest.h>
#include <tessera/layout/notation.h>

#include "layout/expect_error.h"

namespace tessera {
namespace {

using Shape = std::vector<int64_t>;

Layout layout(const char* text) {
  return parse_layout(text).layout;
}

struct Example {
  const char* layout;
  const char* hlo;
  const char* mesh;
  const char* sharding;
};

constexpr const char* kXy = R"(<["x"=2, "y"=4]>)";

const std::vector<Example>& examples() {
  static const std::vector<Example> all{
      {"[8, 16] S(0) S(1) @ mesh(x=2, y=4)", "{devices=[2,4]<=[8]}", kXy,
       R"([{"x"}, {"y"}])"},
      {"[8, 16] S(1) S(0) @ mesh(x=2, y=4)", "{devices=[4,2]<=[2,4]T(1,0)}",
       kXy, R"([{"y"}, {"x"}])"},
      {"[8, 16] S(0) R @ mesh(x=2, y=4)",
       "{devices=[2,1,4]<=[8] last_tile_dim_replicate}", kXy, R"([{"x"}, {}])"},
      {"[8, 16] R S(0) @ mesh(x=2, y=4)",
       "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}", kXy,
       R"([{"y"}, {}])"},
      {"[8, 16] S(0) S(0) @ mesh(x=2, y=4)", "{devices=[8,1]<=[8]}", kXy,
       R"([{"x", "y"}, {}])"},
      {"[8, 16] S(1) P(sum) @ mesh(x=2, y=4)",
       "{devices=[1,2,4]<=[8] last_tile_dims={unreduced}}", kXy,
       R"([{}, {"x"}], unreduced={"y"})"},
      {"[8, 16] P(sum) S(0) @ mesh(x=2, y=4)",
       "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dims={unreduced}}", kXy,
       R"([{"y"}, {}], unreduced={"x"})"},
      {"[8, 16] R R @ mesh(x=2, y=4)", "{replicated}", kXy, "[{}, {}]"},
      {"[8, 16] P(sum) P(sum) @ mesh(x=2, y=4)", "{unreduced}", kXy,
       R"([{}, {}], unreduced={"x", "y"})"},
      {"[8, 16] R P(max) @ mesh(x=2, y=4)",
       "{devices=[1,1,4,2]<=[2,4]T(1,0) last_tile_dims={unreduced, "
       "replicated} metadata={op_type=\"sdy::reduction_op\" "
       "op_name=\"MAX\"}}",
       kXy, R"([{}, {}], unreduced=max{"y"})"},
      {"[4] S(0) R P(sum) @ mesh(a=2, b=2, c=2)",
       "{devices=[2,2,2]<=[2,2,2]T(0,2,1) last_tile_dims={unreduced, "
       "replicated}}",
       R"(<["a"=2, "b"=2, "c"=2]>)", R"([{"a"}], unreduced={"c"})"},
      {"[6, 4, 4] S(1) S(0) R @ mesh(a=2, b=3, c=4)",
       "{devices=[3,2,1,4]<=[2,3,4]T(1,0,2) last_tile_dim_replicate}",
       R"(<["a"=2, "b"=3, "c"=4]>)", R"([{"b"}, {"a"}, {}])"},
      // Turns, uneven tiles, meshes that are not iota, no names, 0-d.
      {"[8] S(0)[1] S(0)[0] @ mesh(x=2, y=2)", "{devices=[4]<=[2,2]T(1,0)}",
       R"(<["x"=2, "y"=2]>)", R"([{"y", "x"}])"},
      {"[5] S(0) R @ mesh(x=4, y=2)",
       "{devices=[4,2]<=[8] last_tile_dim_replicate}", R"(<["x"=4, "y"=2]>)",
       R"([{"x"}])"},
      {"[4, 4] S(0) S(1) @ mesh(x=2, y=2; ranks 3 1 2 0)",
       "{devices=[2,2]3,1,2,0}", R"(<["x"=2, "y"=2], device_ids=[3, 1, 2, 0]>)",
       R"([{"x"}, {"y"}])"},
      {"[4, 4] R S(1) @ mesh(x=2, y=2; ranks 3 1 2 0)",
       "{devices=[1,2,2]2,3,0,1 last_tile_dim_replicate}",
       R"(<["x"=2, "y"=2], device_ids=[3, 1, 2, 0]>)", R"([{}, {"y"}])"},
      {"[8, 16] S(0) P(min) @ mesh(2, 4)",
       "{devices=[2,1,4]<=[8] last_tile_dims={unreduced} "
       "metadata={op_type=\"sdy::reduction_op\" op_name=\"MIN\"}}",
       R"(<["_axis_0"=2, "_axis_1"=4]>)",
       R"([{"_axis_0"}, {}], unreduced=min{"_axis_1"})"},
      {"[] R P(sum) @ mesh(x=2, y=4)",
       "{devices=[4,2]<=[2,4]T(1,0) last_tile_dims={unreduced, replicated}}",
       kXy, R"([], unreduced={"y"})"},
      {"[8, 16] @ mesh(; ranks 5)", "{maximal device=5}",
       "<[], device_ids=[5]>", "[]"},
  };
  return all;
}

std::string shardy_of(const Example& example) {
  return std::string("sdy.mesh @mesh = ") + example.mesh +
         "\n#sdy.sharding<@mesh, " + example.sharding + ">";
}

TEST(ToHloSharding, PrintsTheWorkedExamples) {
  for (const Example& example : examples()) {
    EXPECT_EQ(to_hlo_sharding(layout(example.layout)), example.hlo)
        << example.layout;
  }
}

TEST(FromHloSharding, ReadsTheWorkedExamples) {
  for (const Example& example : examples()) {
    const Layout want = layout(example.layout);
    EXPECT_EQ(from_hlo_sharding(example.hlo, want.shape(), want.mesh()), want);
  }
}

TEST(ToShardy, PrintsTheWorkedExamples) {
  for (const Example& example : examples()) {
    EXPECT_EQ(to_shardy(layout(example.layout)), shardy_of(example));
  }
}

TEST(FromShardy, ReadsTheWorkedExamples) {
  for (const Example& example : examples()) {
    const Layout want = layout(example.layout);
    EXPECT_EQ(from_shardy(shardy_of(example), want.shape()), want);
    EXPECT_EQ(
        from_shardy(
            std::string("#sdy.sharding<@m, ") + example.sharding + ">",
            want.shape(), want.mesh()),
        want);
  }
}

TEST(ToShardy, PutsAStridedCutInsideTheLaterOnes) {
  const Layout strided = layout("[8] SS(0,2) S(0) @ mesh(x=2, y=2)");
  const Layout turns = layout("[8] S(0)[1] S(0)[0] @ mesh(x=2, y=2)");
  EXPECT_EQ(to_shardy(strided), to_shardy(turns));
  EXPECT_EQ(to_hlo_sharding(strided), "{devices=[4]<=[2,2]T(1,0)}");
  EXPECT_EQ(from_shardy(to_shardy(strided), {8}), turns);
  // a between c and b: 2 pieces of c, then a, then b.
  EXPECT_EQ(
      to_hlo_sharding(layout("[24] SS(0,2) SS(0,2) S(0) @ mesh(3, 2, 2)")),
      to_hlo_sharding(layout("[24] S(0)[1] S(0)[2] S(0)[0] @ mesh(3, 2, 2)")));
}

TEST(ToHloSharding, FindsPiecesOnBothSidesOfAnEarlierCut) {
  // c a d b: b cuts each of 6 pieces, 2 of c outside of a and 3 of d inside.
  EXPECT_EQ(
      to_hlo_sharding(
          layout("[24] SS(0,2) SS(0,6) S(0) S(0) @ mesh(2, 2, 2, 3)")),
      to_hlo_sharding(
          layout("[24] S(0)[1] S(0)[3] S(0)[0] S(0)[2] @ mesh(2, 2, 2, 3)")));
}

TEST(FromHloSharding, DropsMeshDimsOfSizeOne) {
  const Layout one = layout("[8] S(0) P(max) S(0) @ mesh(a=1, b=1, c=2)");
  EXPECT_EQ(to_hlo_sharding(one), "{devices=[2]<=[2]}");
  EXPECT_EQ(
      from_hlo_sharding("{devices=[2]<=[2]}", {8}, one.mesh()),
      layout("[8] R R S(0) @ mesh(a=1, b=1, c=2)"));
  EXPECT_EQ(from_shardy(to_shardy(one), {8}), one);
  EXPECT_EQ(to_hlo_sharding(layout("[8] S(0) @ mesh(1)")), "{replicated}");
}

TEST(FromHloSharding, WithoutAMeshTakesTheDimsOfTheText) {
  const auto read = [](const char* text, const Shape& shape) {
    return to_string(from_hlo_sharding(text, shape));
  };
  EXPECT_EQ(
      read("{devices=[2,4]<=[8]}", {8, 16}), "[8, 16] S(0) S(1) @ mesh(2, 4)");
  EXPECT_EQ(
      read("{devices=[4,2]<=[2,4]T(1,0)}", {8, 16}),
      "[8, 16] S(1) S(0) @ mesh(2, 4)");
  EXPECT_EQ(
      read("{devices=[6]<=[2,3]T(1,0)}", {6}),
      "[6] S(0)[1] S(0)[0] @ mesh(2, 3)");
  EXPECT_EQ(
      read("{devices=[2,2]3,1,2,0}", {4, 4}),
      "[4, 4] S(0) S(1) @ mesh(2, 2; ranks 3 1 2 0)");
  EXPECT_EQ(
      read(
          "{devices=[2,2,2]<=[8] last_tile_dims={replicated, unreduced}}", {4}),
      "[4] S(0) R P(sum) @ mesh(2, 2, 2)");
  EXPECT_EQ(read("{maximal device=3}", {4}), "[4] @ mesh(; ranks 3)");
  EXPECT_EQ(read("{devices=[1]<=[1]}", {4}), "[4] R @ mesh(1)");
}

TEST(FromHloSharding, ReadsCopiesInAnyOrderAndGroupsInAnyOrder) {
  const MeshShape mesh({2, 2, 2}, {"a", "b", "c"});
  EXPECT_EQ(
      from_hlo_sharding(
          "{ devices = [2,1,4] 3,1,2,0,5,6,7,4 last_tile_dim_replicate }",
          {4, 4}, mesh),
      layout("[4, 4] S(0) R R @ mesh(a=2, b=2, c=2)"));
  EXPECT_EQ(
      from_hlo_sharding(
          "{devices=[2,2,2]<=[8] last_tile_dims={replicated, unreduced}}", {4},
          mesh),
      layout("[4] S(0) R P(sum) @ mesh(a=2, b=2, c=2)"));
}

TEST(ToHloSharding, NeedsNoWalkOverIotaMeshes) {
  const Layout large =
      layout("[1048576, 1048576] S(1) S(0) @ mesh(1048576, 1048576)");
  const std::string text =
      "{devices=[1048576,1048576]<=[1048576,1048576]T(1,0)}";
  EXPECT_EQ(to_hlo_sharding(large), text);
  EXPECT_EQ(from_hlo_sharding(text, large.shape()), large);
  EXPECT_EQ(from_shardy(to_shardy(large), large.shape()), large);
  EXPECT_VALUE_ERROR(
      from_hlo_sharding(text, large.shape(), large.mesh()),
      "looks at each device");
}

TEST(ToHloSharding, RefusesWhatHasNoCounterpart) {
  const auto expect_refused = [](const char* text, const char* part) {
    EXPECT_VALUE_ERROR(to_hlo_sharding(layout(text)), part);
    EXPECT_VALUE_ERROR(to_shardy(layout(text)), part);
    EXPECT_VALUE_ERROR(to_shardy(layout(text)), text);
  };
  expect_refused(
      "[5] S(0) S(0) @ mesh(2, 2)", "mesh dims [0, 1] cut tensor dim 0");
  expect_refused("[5] S(0) S(0) @ mesh(2, 2)", "pad it to a multiple of 4");
  expect_refused(
      "[8] RS(0,[3,5]) @ mesh(2)",
      "RS(0,[3,5]) for mesh dim 0 and tensor dim 0; redistribute to S(0)");
  expect_refused(
      "[8] SS(0,2) @ mesh(2)",
      "mesh dim 0 holds several boxes of tensor dim 0");
  expect_refused(
      "[16] SS(0,2) S(0) @ mesh(2, 4)",
      "S(0) for mesh dim 1 cuts across the pieces of tensor dim 0");
  expect_refused(
      "[16] SS(0,3) S(0) @ mesh(2, 2)", "SS(0,3) for mesh dim 0 cuts across");
  expect_refused("[8] P(avg) @ mesh(2)", "P(avg) for mesh dim 0; scale");
  expect_refused("[8] P(product) @ mesh(2)", "for mesh dim 0; reduce first");
  expect_refused(
      "[8] S(0) @ mesh(tp=2; ranks 4 5)", "but the mesh holds rank 5");
}

TEST(ToShardy, RefusesAnEmptyDimThatIsCut) {
  const Layout empty = layout("[0, 4] S(0) @ mesh(x=2)");
  EXPECT_EQ(to_hlo_sharding(empty), "{devices=[2,1]<=[2]}");
  EXPECT_VALUE_ERROR(to_shardy(empty), "Shardy does not cut a dim of size 0");
  EXPECT_VALUE_ERROR(
      from_shardy(R"(#sdy.sharding<@m, [{"x"}, {}]>)", {0, 4}, empty.mesh()),
      "from_shardy([0, 4] S(0) @ mesh(x=2)): Shardy does not cut");
  EXPECT_EQ(
      to_hlo_sharding(layout("[0] SS(0,2) S(0) @ mesh(2, 2)")),
      "{devices=[4]<=[4]}");
}

TEST(ToShardy, RefusesNamesThatStandForNone) {
  EXPECT_VALUE_ERROR(
      to_shardy(layout("[4] S(0) @ mesh(_axis_0=2)")), "give other names");
}

TEST(FromHloSharding, ShowsThePlaceOfWhatDoesNotParse) {
  const MeshShape mesh({2, 4});
  const auto expect_refused = [&](const char* text, const char* part) {
    EXPECT_VALUE_ERROR(from_hlo_sharding(text, {8, 16}, mesh), part);
    EXPECT_VALUE_ERROR(from_hlo_sharding(text, {8, 16}), part);
  };
  expect_refused("", "expected '{' at offset 0");
  expect_refused("{{replicated}, {replicated}}", "a tuple has one per tensor");
  expect_refused("{manual}", "manual and unknown shardings are no layouts");
  expect_refused("{mesh['x'=2], [{'x'}]}", "from_shardy()");
  expect_refused("{replicated} x", "the end after '}' at offset 13");
  expect_refused("{maximal device=-1}", "a device of at least 0");
  expect_refused("{devices=[2,4]<=[2,4]}", "T(...), the order of the sizes");
  expect_refused("{devices=[2,4]<=[2,4]T(1,1)}", "each position of the sizes");
  expect_refused("{devices=[2,4]<=[7]}", "product is the number of devices");
  expect_refused("{devices=[2,2]0,1,2,2}", "each of the devices 0 .. n-1 once");
  expect_refused("{devices=[8]<=[8]}", "2 tile counts, one for each of 2");
  expect_refused("{devices=[0,4]<=[8]}", "a tile count of at least 1");
  expect_refused("{devices=[2,4<=[8]}", "',' or ']'");
  expect_refused(
      "{devices=[2,1,4]<=[8] last_tile_dims={manual}}",
      "unreduced or replicated");
  expect_refused("{devices=[2,4]<=[8] shard_as 1}", "groups of tensors");
  expect_refused(
      "{devices=[2,4]<=[8] metadata={op_name=\"f\"}}", "sdy::reduction_op");
  expect_refused(
      "{devices=[4611686018427387904,4]<=[8]}",
      "product is the number of devices");
}

TEST(FromHloSharding, RefusesTilesThatTheMeshDoesNotMake) {
  const MeshShape mesh({2, 4}, {"x", "y"});
  EXPECT_VALUE_ERROR(
      from_hlo_sharding("{devices=[2,2]<=[4]}", {8, 16}, mesh),
      "must have the same devices");
  EXPECT_VALUE_ERROR(
      from_hlo_sharding("{maximal device=1}", {8, 16}, mesh),
      "on device 1 alone");
  EXPECT_VALUE_ERROR(
      from_hlo_sharding("{devices=[4,2]<=[8]}", {8, 16}, mesh),
      "got tile [1, 0] at coordinate [0, 2] for device 2; leave the mesh out");
  EXPECT_VALUE_ERROR(
      from_hlo_sharding("{devices=[2,2]0,3,2,1}", {8, 16}, MeshShape({4})),
      "mesh dim 0 moves along two tensor dims at once, the second is 1");
  EXPECT_VALUE_ERROR(
      from_hlo_sharding("{devices=[8,1]7,6,5,4,3,2,1,0}", {8, 16}, mesh),
      "got tile [7, 0] at coordinate [0, 0] for device 0");
  EXPECT_VALUE_ERROR(
      from_hlo_sharding(
          "{devices=[2,2,2]0,1,2,4,3,5,6,7 last_tile_dims={unreduced}}",
          {8, 16}, MeshShape({2, 2, 2})),
      "do not follow the dims of this mesh");
  // Addends along another mesh dim in each tile; along half a mesh dim.
  EXPECT_VALUE_ERROR(
      from_hlo_sharding(
          "{devices=[2,2,2]0,1,2,3,4,6,5,7 last_tile_dims={unreduced, "
          "replicated}}",
          {4}, MeshShape({2, 2, 2})),
      "do not follow the dims of this mesh");
  EXPECT_VALUE_ERROR(
      from_hlo_sharding(
          "{devices=[1,2,2]0,2,1,3 last_tile_dims={unreduced, replicated}}",
          {4}, MeshShape({4})),
      "do not follow the dims of this mesh");
  EXPECT_VALUE_ERROR(
      from_hlo_sharding("{devices=[8,1]<=[8]}", {12, 16}, mesh),
      "pad it to a multiple of 8");
  EXPECT_VALUE_ERROR(
      from_hlo_sharding("{replicated}", {8, 16}), "give the mesh");
  EXPECT_VALUE_ERROR(
      from_hlo_sharding("{devices=[4,9]<=[6,6]T(1,0)}", {8, 18}),
      "no common factors");
}

TEST(FromShardy, ShowsThePlaceOfWhatDoesNotParse) {
  const MeshShape mesh({2, 4}, {"x", "y"});
  const auto expect_refused = [&](const std::string& rest, const char* part) {
    const std::string text = "#sdy.sharding<@mesh, " + rest;
    EXPECT_VALUE_ERROR(from_shardy(text, {8, 16}, mesh), part);
    EXPECT_VALUE_ERROR(
        from_shardy("sdy.mesh @mesh = " + std::string(kXy) + text, {8, 16}),
        part);
  };
  expect_refused(R"([{"x", ?}, {}]>)", "open dims are no layout");
  expect_refused(R"([{"x"}p1, {}]>)", "priorities are wishes");
  expect_refused(R"([{"x":(1)2}, {}]>)", "MeshShape::unflatten");
  expect_refused(R"([{"z"}, {}]>)", "an axis of the mesh: x, y");
  expect_refused(R"([{"x"}, {"x"}]>)", "not been named before");
  expect_refused(R"([{"x"}]>)", "2 tensor dims");
  expect_refused(R"([{"x"}, {}, {}]>)", "2 tensor dims");
  expect_refused(R"([{}, {}], unreduced={"y", "x"}>)", "order of the mesh");
  expect_refused(R"([{}, {}], unreduced={}>)", "order of the mesh");
  expect_refused(R"([{}, {}], unreduced=avg{"x"}>)", "'{' and axes");
  expect_refused(R"([{" x"}, {}]>)", "a name of letters");
  expect_refused(R"([{}, {}]> x)", "the end after the sharding");
  EXPECT_EQ(
      from_shardy(
          R"(#sdy.sharding<@m, [{}, {"y"}], replicated={"x"}>)", {8, 16}, mesh),
      layout("[8, 16] R S(1) @ mesh(x=2, y=4)"));
}

TEST(FromShardy, ChecksTheMesh) {
  const auto read = [](const std::string& mesh, const char* name = "mesh") {
    return from_shardy(
        "sdy.mesh @mesh = " + mesh + "\n#sdy.sharding<@" + name + ", [{}]>",
        {8});
  };
  EXPECT_VALUE_ERROR(read("<[]>"), "does not tell its device");
  EXPECT_VALUE_ERROR(read("<[], device_ids=[1]>"), "0 tensor dims");
  EXPECT_VALUE_ERROR(read(R"(<["x"=2], device_ids=[2, 3]>)"), "holds rank 3");
  EXPECT_VALUE_ERROR(read(R"(<["x"=2], device_ids=[1]>)"), "got 1");
  EXPECT_VALUE_ERROR(read(R"(<["x"=0]>)"), "at least 1 rank");
  EXPECT_VALUE_ERROR(read(R"(<["x"=2]>)", "other"), "the name of the mesh");
  EXPECT_VALUE_ERROR(from_shardy("sdy.mesh @ = <[]>", {8}), "name of the mesh");
  EXPECT_VALUE_ERROR(
      from_shardy("#sdy.sharding<@mesh, [{}]>", {8}), "sdy.mesh @mesh");
  EXPECT_EQ(
      read(R"(<["x"=2], device_ids=[0, 1]>)"), layout("[8] R @ mesh(x=2)"));
}

}  // namespace
}  // namespace tessera
