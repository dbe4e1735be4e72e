// Variances and norms over cut dims equal the plain ones and send only what is
// small.
#include <tensor/decompositions/along_cut_dims.h>

namespace tessera {
namespace {

using testing::bytes_of;
using testing::close;
using testing::counting;
using testing::cut_of;
using testing::distinct;
using testing::expect_equal;
using testing::expect_equal_along;
using testing::f32;
using testing::f64;
using testing::kInf;
using testing::leaf;
using testing::mesh_of;
using testing::shapes;
using testing::Tensors;

TEST(VarianceDecomposition, EqualsThePlainOperatorForwardAndBackward) {
  expect_equal_along("var", [](const at::Tensor& x) {
    return Tensors{x.var(1), x.std(1, true, true)};
  });
  for (const auto& shape : shapes()) {
    if (shape[1] < 2) {
      continue;
    }
    expect_equal("var of all", {distinct(shape)}, {1}, [](const Tensors& x) {
      const auto [var, mean] = at::var_mean(x[0], at::OptionalIntArrayRef(), 0);
      const auto [std, mean2] =
          at::std_mean(x[0], at::IntArrayRef({0, 1}), 0.5, true);
      return Tensors{x[0].var(), x[0].std(), var, mean, std, mean2};
    });
  }
}

TEST(VarianceDecomposition, LosesNoDigitsAndSendsTwoNumbersPerRow) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const auto whole = counting({4, 1000}, f32()).add(1e5);
    const auto x = cut_of(whole, mesh, {Shard(1)});
    EXPECT_TRUE(close(x.var(1), whole.var(1), 1e-5));
    EXPECT_EQ(bytes_of([&] { return x.var(1); }), 48);
    EXPECT_EQ(placements(x.var(1)), Placements{Replicate()});
  });
}

TEST(NormDecomposition, EqualsThePlainOperatorForwardAndBackward) {
  for (const double p : {2., 3., 0.5, -1., 1., 0., kInf, -kInf}) {
    const bool smooth = p != 0 && p != -1;
    expect_equal_along(
        "vector norm",
        [&](const at::Tensor& x) {
          return Tensors{
              at::linalg_vector_norm(x, p, 1),
              at::linalg_vector_norm(x, p, 1, true),
              at::linalg_vector_norm(x, p)};
        },
        smooth);
  }
  expect_equal_along("norm", [](const at::Tensor& x) {
    return Tensors{
        x.norm(),
        x.norm(2),
        x.norm(3, {1}, true),
        x.norm(2, {1}, false),
        x.norm(2, at::kDouble),
        x.norm(3, {1}, true, at::kDouble)};
  });
}

TEST(NormDecomposition, TakesAWholeListInOneReductionPerGroup) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    Tensors whole, cut;
    const std::vector<Placements> layouts = {
        {Shard(0), Shard(0)},
        {Shard(1), Shard(0)},
        {Replicate(), Shard(0)},
        {Replicate(), Replicate()},
        {Replicate(), Shard(1)}};
    for (int64_t i = 0; i < 10; ++i) {
      whole.push_back(distinct({i + 1, 3}, f32()));
      cut.push_back(cut_of(
          whole.back(), mesh,
          layouts[static_cast<size_t>(i) % layouts.size()]));
    }
    for (const double p : {2., 1., 3., kInf}) {
      CommLog log;
      const auto got = at::_foreach_norm(cut, p);
      // by mesh dim 1: one all_reduce; by both: another one over both
      EXPECT_EQ(log.count(), 2) << log;
      const auto want = at::_foreach_norm(whole, p);
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_TRUE(close(got[i], want[i], 1e-5)) << i;
        EXPECT_EQ(placements(got[i]), Placements(2, Replicate()));
      }
    }
    // 4 f32 over 4 ranks: 24; 4 f32 over 2 ranks: 16
    EXPECT_EQ(bytes_of([&] { return at::_foreach_norm(cut, 2); }), 40);
  });
}

TEST(NormDecomposition, ListsMixDtypesEmptyShardsAndAddends) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    const auto half = distinct({4, 2}, f32().dtype(at::kBFloat16));
    const auto tiny = distinct({1}, f32());
    const auto part = from_local(distinct({2}, f64()), mesh, {Partial()});
    const Tensors whole = {half, tiny, full_tensor(part)};
    const Tensors cut = {
        cut_of(half, mesh, {Shard(0)}), cut_of(tiny, mesh, {Shard(0)}), part};
    for (const double p : {2., kInf}) {
      const auto got = at::_foreach_norm(cut, p);
      const auto want = at::_foreach_norm(whole, p);
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_TRUE(close(got[i], want[i], 1e-2)) << i;
      }
    }
  });
}

TEST(NormDecomposition, ClipsGradientsAsThePlainProgramDoes) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto plain = leaf(distinct({5, 3}));
    auto cut = distribute_tensor(leaf(distinct({5, 3})), mesh, {Shard(0)});
    (plain * plain).sum().backward();
    (cut * cut).sum().backward();
    const double want = torch::nn::utils::clip_grad_norm_({plain}, 0.5);
    EXPECT_NEAR(torch::nn::utils::clip_grad_norm_({cut}, 0.5), want, 1e-10);
    EXPECT_TRUE(close(cut.grad(), plain.grad()));
  });
}

}  // namespace
}  // namespace tessera
