// What all operators along cut dims share, explanations, StrictMode and ranks
// outside the mesh, and the comparison of two tensors.
#include <tensor/decompositions/along_cut_dims.h>

namespace tessera {
namespace {

using testing::bytes_of;
using testing::cut_of;
using testing::device;
using testing::distinct;
using testing::f32;
using testing::f64;
using testing::kNan;
using testing::mesh_of;

TEST(Decomposition, IsExplainedAsItRunsAndForbiddenByStrictMode) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const auto x = cut_of(distinct({8, 16}, f32()), mesh, {Shard(1)});
    const std::string told = explain("aten::_softmax", x, int64_t{1}, false);
    EXPECT_NE(told.find("all_reduce 0: P(max) -> R, 48 bytes"), told.npos)
        << told;
    EXPECT_NE(told.find("all_reduce 0: P(sum) -> R, 48 bytes"), told.npos)
        << told;
    EXPECT_NE(told.find("result: f32[8, 16] S(1)"), told.npos) << told;
    EXPECT_NE(told.find("total: 96 bytes"), told.npos) << told;
    const StrictMode strict;
    EXPECT_ERROR("StrictMode forbids implied communication", x.softmax(1));
    EXPECT_EQ(placements(x.softmax(0)), Placements{Shard(1)});
  });
}

TEST(Decomposition, RanksOutsideTheMeshGetTheSameLayouts) {
  run_ranks(3, [&] {
    const DeviceMesh mesh(device(), at::arange(2, at::kLong));
    const auto x = cut_of(distinct({4, 6}), mesh, {Shard(1)});
    const auto w = cut_of(distinct({6}), mesh, {Shard(0)});
    EXPECT_EQ(placements(x.softmax(1)), Placements{Shard(1)});
    EXPECT_EQ(placements(x.var(1)), Placements{Replicate()});
    EXPECT_EQ(placements(x.norm()), Placements{Replicate()});
    EXPECT_EQ(x.argmax().sizes(), at::IntArrayRef());
    EXPECT_EQ(placements(x.cumsum(1)), Placements{Shard(1)});
    EXPECT_EQ(placements(at::layer_norm(x, {6}, w)), Placements{Shard(1)});
    EXPECT_EQ(placements(at::mse_loss(x, x)), Placements{Partial()});
    EXPECT_EQ(at::_foreach_norm({x, w}, 2).size(), 2U);
    EXPECT_EQ(std::get<0>(x.topk(2, 1)).sizes(), at::IntArrayRef({4, 2}));
  });
}

TEST(EqualDecomposition, ComparesShardsAndSendsOneByte) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const auto whole = distinct({9, 5});
    auto changed = whole.clone();
    changed.index_put_({torch::indexing::TensorIndex(8), 4}, 100);
    const auto a = cut_of(whole, mesh, {Shard(0)});
    for (const Placement& p : {Shard(0), Replicate()}) {
      const auto same_values = cut_of(whole, mesh, {p});
      const auto other = cut_of(changed, mesh, {p});
      EXPECT_TRUE(at::equal(a, same_values));
      EXPECT_TRUE(at::equal(same_values, a));
      EXPECT_FALSE(at::equal(a, other));
      EXPECT_FALSE(at::equal(other, a));
      EXPECT_LE(bytes_of([&] { return at::equal(a, other); }), 2);
    }
    EXPECT_FALSE(at::equal(a, cut_of(distinct({9, 4}), mesh, {Shard(0)})));
    const auto sum = from_local(whole, mesh, {Partial()});
    EXPECT_TRUE(at::equal(cut_of(whole * 4, mesh, {Shard(0)}), sum));
    EXPECT_FALSE(at::equal(sum, a));
    EXPECT_EQ(sum.sum().item<double>(), (whole * 4).sum().item<double>());
    const auto nan = cut_of(at::full({4}, kNan, f64()), mesh, {Shard(0)});
    EXPECT_FALSE(at::equal(nan, nan));
  });
}

}  // namespace
}  // namespace tessera
