#include <tessera/layout/mesh_shape.h>

#include <algorithm>

#include <gtest/gtest.h>

#include "layout/expect_error.h"
#include "layout/random_case.h"
#include "layout/reference.h"

namespace tessera {
namespace {

using List = std::vector<int64_t>;
using Names = std::vector<std::string>;

TEST(MeshShape, ArrangesRanksRowMajor) {
  const MeshShape mesh({2, 3}, {"dp", "tp"});
  EXPECT_EQ(mesh.ndim(), 2);
  EXPECT_EQ(mesh.size(), 6);
  EXPECT_EQ(mesh.size(1), 3);
  EXPECT_EQ(mesh.sizes(), (List{2, 3}));
  EXPECT_EQ(mesh.names(), (Names{"dp", "tp"}));
  EXPECT_EQ(mesh.dim_of("tp"), 1);
  EXPECT_EQ(mesh.rank_at({1, 2}), 5);
  EXPECT_EQ(mesh.coordinate_of(4), (List{1, 1}));
  EXPECT_EQ(mesh.coordinate_of(6), std::nullopt);
  EXPECT_EQ(mesh.coordinate_of(-1), std::nullopt);
  EXPECT_EQ(mesh.ranks(), (List{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(mesh.ranks_along(0, 4), (List{1, 4}));
  EXPECT_EQ(mesh.ranks_along(1, 4), (List{3, 4, 5}));
  EXPECT_EQ(mesh.max_rank(), 5);
}

TEST(MeshShape, OfNoDimsHoldsOneRank) {
  const MeshShape mesh;
  EXPECT_EQ(mesh.ndim(), 0);
  EXPECT_EQ(mesh.size(), 1);
  EXPECT_EQ(mesh.ranks(), List{0});
  EXPECT_EQ(mesh.coordinate_of(0), List{});
  EXPECT_EQ(mesh.coordinate_of(1), std::nullopt);
  EXPECT_EQ(mesh, MeshShape(List{}));
}

TEST(MeshShape, TakesAnyArrangementOfRanks) {
  const MeshShape mesh = MeshShape::from_ranks({7, 2, 9, 4}, {2, 2});
  EXPECT_EQ(mesh.rank_at({1, 0}), 9);
  EXPECT_EQ(mesh.coordinate_of(4), (List{1, 1}));
  EXPECT_EQ(mesh.coordinate_of(3), std::nullopt);
  EXPECT_EQ(mesh.max_rank(), 9);
  EXPECT_EQ(mesh.ranks_along(0, 2), (List{2, 4}));
  EXPECT_EQ(mesh.slice({1}, 9).ranks(), (List{9, 4}));
  EXPECT_EQ(mesh.flatten(0, 1).ranks(), (List{7, 2, 9, 4}));
}

TEST(MeshShape, ComparesAndHashesByWhatItHolds) {
  const MeshShape mesh({2, 2});
  const MeshShape same = MeshShape::from_ranks({0, 1, 2, 3}, {2, 2});
  EXPECT_EQ(mesh, same);
  EXPECT_TRUE(mesh.same_root(same));
  EXPECT_EQ(mesh.hash(), same.hash());
  EXPECT_NE(mesh, MeshShape({4}));
  EXPECT_NE(mesh, MeshShape({2, 2}, {"a", "b"}));
  EXPECT_NE(mesh, MeshShape::from_ranks({0, 2, 1, 3}, {2, 2}));
  EXPECT_FALSE(mesh.same_root(MeshShape::from_ranks({0, 2, 1, 3}, {2, 2})));
  // A slice and the same ranks written out.
  const MeshShape slice = mesh.slice({0}, 3);
  const MeshShape written = MeshShape::from_ranks({1, 3}, {2});
  EXPECT_EQ(slice, written);
  EXPECT_EQ(slice.hash(), written.hash());
  EXPECT_FALSE(slice.same_root(written));
  EXPECT_EQ(mesh.slice({1}, 0), MeshShape({2}));
  EXPECT_NE(mesh.slice({1}, 0), mesh.slice({1}, 2));
  EXPECT_NE(mesh.hash(), MeshShape({4}).hash());
}

TEST(MeshShape, SlicesFlattensAndUnflattens) {
  const MeshShape mesh({2, 3, 4}, {"pp", "dp", "tp"});
  const MeshShape slice = mesh.slice({0, 2}, 17);  // coordinate 1 1 1
  EXPECT_EQ(slice.ranks(), (List{4, 5, 6, 7, 16, 17, 18, 19}));
  EXPECT_EQ(slice.names(), (Names{"pp", "tp"}));
  EXPECT_EQ(slice.coordinate_of(18), (List{1, 2}));
  EXPECT_EQ(slice.coordinate_of(12), std::nullopt);
  EXPECT_EQ(mesh.slice({}, 17).ranks(), List{17});
  const MeshShape flat = slice.flatten(0, 1);
  EXPECT_EQ(flat.names(), Names{"pp_tp"});
  EXPECT_EQ(flat.ranks(), slice.ranks());
  EXPECT_EQ(flat.coordinate_of(18), List{6});
  EXPECT_EQ(flat.unflatten(0, {2, 4}, {"pp", "tp"}), slice);
  EXPECT_EQ(
      flat.unflatten(0, {4, 2}, {"a", "b"}).ranks_along(0, 4),
      (List{4, 6, 16, 18}));
  EXPECT_EQ(mesh.flatten(1, 2, "x").names(), (Names{"pp", "x"}));
  EXPECT_EQ(mesh.flatten(0, 0, "y").names(), (Names{"y", "dp", "tp"}));
  EXPECT_EQ(MeshShape({2, 2}).flatten(0, 1, "all").names(), Names{"all"});
  EXPECT_EQ(
      MeshShape({6}).unflatten(0, {3, 2}, {"a", "b"}),
      MeshShape({3, 2}, {"a", "b"}));
  EXPECT_EQ(MeshShape({1, 4}).unflatten(0, {}), MeshShape({4}));
}

TEST(MeshShape, ConcatenatesSlicesAtACommonMember) {
  const MeshShape mesh({2, 3, 4}, {"pp", "dp", "tp"});
  for (int64_t member = 0; member < mesh.size(); ++member) {
    const MeshShape joined = MeshShape::concatenate(
        {mesh.slice({0}, member), mesh.slice({1}, member),
         mesh.slice({2}, member)});
    EXPECT_EQ(joined, mesh) << member;
    const MeshShape swapped = MeshShape::concatenate(
        {mesh.slice({2}, member), mesh.slice({0}, member)});
    EXPECT_EQ(swapped.names(), (Names{"tp", "pp"}));
    EXPECT_EQ(swapped.ranks_along(1, member), mesh.ranks_along(0, member));
    EXPECT_EQ(swapped.size(), 8);
    EXPECT_TRUE(swapped.coordinate_of(member).has_value());
  }
  // Slices of two members that cross at a third.
  EXPECT_EQ(
      MeshShape::concatenate({mesh.slice({0}, 1), mesh.slice({2}, 12)}),
      mesh.slice({0, 2}, 0));
}

TEST(MeshShape, ViewsAgreeWithListsOfRanks) {
  for_random_cases(
      1500, 4, [](Random& random, int64_t size) -> std::optional<std::string> {
        List sizes;
        for (int64_t d = 0; d <= size; ++d) {
          sizes.push_back(random.between(1, 3));
        }
        List ranks(static_cast<size_t>(MeshShape(sizes).size()));
        for (size_t i = 0; i < ranks.size(); ++i) {
          ranks[i] = static_cast<int64_t>(i) * 7 % 1009;
        }
        const MeshShape mesh = random.flip()
                                   ? MeshShape(sizes)
                                   : MeshShape::from_ranks(ranks, sizes);
        const List all = mesh.ranks();
        const int64_t member = all[static_cast<size_t>(
            random.between(0, static_cast<int64_t>(all.size()) - 1))];
        const int64_t first = random.between(0, size);
        const int64_t last = random.between(first, size);
        if (mesh.flatten(first, last).ranks() != all) {
          return "flatten changed the order of " + to_string(mesh);
        }
        const MeshShape back =
            mesh.flatten(first, last)
                .unflatten(
                    first,
                    List(sizes.begin() + first, sizes.begin() + last + 1));
        if (back != mesh) {
          return "unflatten is no inverse for " + to_string(mesh);
        }
        List kept, expected;
        for (int64_t d = 0; d <= size; ++d) {
          if (random.flip()) {
            kept.push_back(d);
          }
        }
        const List at = *mesh.coordinate_of(member);
        for (const List& x : reference::coordinates(sizes)) {
          bool in = true;
          for (int64_t d = 0; d <= size; ++d) {
            in =
                in && (std::count(kept.begin(), kept.end(), d) > 0 ||
                       x[static_cast<size_t>(d)] == at[static_cast<size_t>(d)]);
          }
          if (in) {
            expected.push_back(mesh.rank_at(x));
          }
        }
        const MeshShape slice = mesh.slice(kept, member);
        if (slice.ranks() != expected) {
          return "slice of " + to_string(mesh) + " is " + to_string(slice);
        }
        for (int64_t rank : all) {
          const auto x = slice.coordinate_of(rank);
          const bool in =
              std::count(expected.begin(), expected.end(), rank) > 0;
          if (x.has_value() != in || (x && slice.rank_at(*x) != rank)) {
            return "coordinate_of is wrong for " + to_string(slice);
          }
        }
        return std::nullopt;
      });
}

TEST(MeshShape, OfManyRanksCostsNothing) {
  const int64_t big = int64_t{1} << 30;
  const MeshShape mesh({big, big}, {"a", "b"});
  EXPECT_EQ(mesh.max_rank(), big * big - 1);
  EXPECT_EQ(mesh.coordinate_of(big + 5), (List{1, 5}));
  EXPECT_EQ(mesh.slice({0}, 7).rank_at({3}), 3 * big + 7);
  EXPECT_EQ(mesh.flatten(0, 1).size(), big * big);
  EXPECT_EQ(
      mesh.flatten(0, 1).unflatten(0, {big, big}, {"a", "b"}).hash(),
      mesh.hash());
  EXPECT_EQ(to_string(mesh), "mesh(a=1073741824, b=1073741824)");
}

TEST(MeshShape, PrintsRanksThatAreNotInOrder) {
  EXPECT_EQ(to_string(MeshShape()), "mesh()");
  EXPECT_EQ(to_string(MeshShape({2, 4})), "mesh(2, 4)");
  EXPECT_EQ(to_string(MeshShape({2, 4}, {"dp", "tp"})), "mesh(dp=2, tp=4)");
  const MeshShape mesh({2, 2}, {"dp", "tp"});
  EXPECT_EQ(to_string(mesh.slice({0}, 1)), "mesh(dp=2; ranks 1 3)");
  EXPECT_EQ(to_string(mesh.slice({1}, 1)), "mesh(tp=2)");
  EXPECT_EQ(to_string(mesh.slice({}, 3)), "mesh(; ranks 3)");
}

TEST(MeshShapeErrors, OfConstructionNameWhatIsWrong) {
  EXPECT_VALUE_ERROR(MeshShape({2, 0}), "at least 1 rank; got 0 for dim 1");
  EXPECT_VALUE_ERROR(MeshShape({-2}), "at least 1 rank; got -2 for dim 0");
  EXPECT_VALUE_ERROR(MeshShape({INT64_MAX, 2}), "exceeds 64 bits");
  EXPECT_VALUE_ERROR(MeshShape({2, 2}, {"a"}), "got 1 names for 2 dims");
  EXPECT_VALUE_ERROR(
      MeshShape({2, 2}, {"a", "a"}), "got \"a\" for dims 0 and 1");
  EXPECT_VALUE_ERROR(MeshShape({2}, {""}), "got \"\" for dim 0");
  EXPECT_VALUE_ERROR(MeshShape({2}, {"2x"}), "begins with a letter");
  EXPECT_VALUE_ERROR(MeshShape({2}, {"a b"}), "got \"a b\"");
  EXPECT_VALUE_ERROR(
      MeshShape::from_ranks({4, 1, 4}, {3}), "got rank 4 at positions 0 and 2");
  EXPECT_VALUE_ERROR(
      MeshShape::from_ranks({0, -1}, {2}), "got -1 at position 1");
  EXPECT_VALUE_ERROR(
      MeshShape::from_ranks({0, 1, 2}, {2, 2}), "hold 4 ranks; got 3");
}

TEST(MeshShapeErrors, OfQuestionsNameTheMesh) {
  const MeshShape mesh({2, 3}, {"dp", "tp"});
  EXPECT_INDEX_ERROR(mesh.size(2), "has 2 dims; got dim 2");
  EXPECT_INDEX_ERROR(mesh.size(-1), "got dim -1");
  EXPECT_VALUE_ERROR(mesh.dim_of("pp"), "known names: dp, tp");
  EXPECT_VALUE_ERROR(MeshShape({2}).dim_of("pp"), "dims have no names");
  EXPECT_INDEX_ERROR(mesh.rank_at({1}), "takes 2 numbers");
  EXPECT_INDEX_ERROR(mesh.rank_at({1, 3}), "outside mesh(dp=2, tp=3) in dim 1");
  EXPECT_VALUE_ERROR(mesh.ranks_along(0, 9), "rank 9 is not in mesh(dp=2");
}

TEST(MeshShapeErrors, OfViewsNameTheMesh) {
  const MeshShape mesh({2, 3}, {"dp", "tp"});
  EXPECT_VALUE_ERROR(mesh.slice({0}, 6), "slice: rank 6 is not in");
  EXPECT_INDEX_ERROR(mesh.slice({2}, 0), "got dim 2");
  EXPECT_VALUE_ERROR(mesh.slice({1, 0}, 0), "dims must ascend");
  EXPECT_VALUE_ERROR(mesh.slice({1, 1}, 0), "dims must ascend");
  EXPECT_INDEX_ERROR(mesh.flatten(1, 0), "got 1 and 0");
  EXPECT_INDEX_ERROR(mesh.flatten(0, 2), "got 0 and 2");
  EXPECT_VALUE_ERROR(mesh.flatten(0, 0, "tp"), "got \"tp\" for dims 0 and 1");
  EXPECT_VALUE_ERROR(
      MeshShape({2, 2, 2}).flatten(0, 1, "x"), "got 1 names for 2 dims");
  EXPECT_VALUE_ERROR(mesh.unflatten(1, {2, 2}, {"a", "b"}), "must be the size");
  EXPECT_VALUE_ERROR(mesh.unflatten(1, {-1, -3}), "must be the size");
  EXPECT_VALUE_ERROR(mesh.unflatten(1, {3, 1}), "got 0 names for 2 dims");
  EXPECT_VALUE_ERROR(
      MeshShape({2, 2}).unflatten(0, {2, 1}, {"a", "b"}),
      "one name per new dim if the others have names");
  const MeshShape merged = MeshShape({2, 5, 3}).slice({0, 2}, 0).flatten(0, 1);
  EXPECT_VALUE_ERROR(merged.unflatten(0, {3, 2}), "was merged from dims");
}

TEST(MeshShapeErrors, OfConcatenationNameBothMeshes) {
  const MeshShape mesh({2, 3}, {"dp", "tp"});
  const auto join = [](const MeshShape& a, const MeshShape& b) {
    return MeshShape::concatenate({a, b});
  };
  EXPECT_VALUE_ERROR(MeshShape::concatenate({}), "got no mesh");
  EXPECT_VALUE_ERROR(join(mesh, MeshShape({4})), "not views of one root");
  EXPECT_VALUE_ERROR(join(mesh, mesh.slice({0}, 0)), "overlap");
  EXPECT_VALUE_ERROR(join(mesh.slice({0}, 0), mesh.slice({0}, 1)), "overlap");
  EXPECT_VALUE_ERROR(
      join(MeshShape({2, 3}).slice({0}, 0), mesh.slice({1}, 0)),
      "both have names or both have none");
  const MeshShape cube({2, 2, 2}, {"a", "b", "c"});
  EXPECT_VALUE_ERROR(
      join(cube.slice({0}, 0), cube.slice({2}, 2)), "no rank in common");
  const MeshShape flat({6});
  EXPECT_VALUE_ERROR(
      join(
          flat.unflatten(0, {2, 3}).slice({0}, 0),
          flat.unflatten(0, {3, 2}).slice({0}, 0)),
      "overlap");
}

}  // namespace
}  // namespace tessera
