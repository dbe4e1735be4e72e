// Layer norms over cut dims equal the plain ones, keep their shards and send
// only what is small.
#include <tensor/decompositions/along_cut_dims.h>

namespace tessera {
namespace {

using testing::bytes_of;
using testing::close;
using testing::cut_of;
using testing::distinct;
using testing::expect_equal;
using testing::f32;
using testing::mesh_of;
using testing::Op;
using testing::Tensors;

TEST(LayerNormDecomposition, EqualsThePlainOperatorForwardAndBackward) {
  const Op op = [](const Tensors& x) {
    const auto [y, mean, rstd] =
        at::native_layer_norm(x[0], {x[0].size(-1)}, x[1], x[2], 1e-5);
    return Tensors{y, mean, rstd};
  };
  for (const int64_t n : {8, 7, 5, 2}) {
    for (const int64_t cut_weight : {0, -1}) {
      expect_equal(
          "layer_norm", {distinct({3, n}), distinct({n}), distinct({n}) + 1},
          {1, cut_weight, cut_weight}, [](const Tensors& x) {
            return Tensors{at::layer_norm(x[0], {x[0].size(-1)}, x[1], x[2])};
          });
    }
    expect_equal("no weight", {distinct({3, n})}, {1}, [](const Tensors& x) {
      return Tensors{at::layer_norm(x[0], {x[0].size(-1)})};
    });
    expect_equal(
        "statistics", {distinct({3, n}), distinct({n}), distinct({n}) + 1},
        {1, 0, 0}, op, 1e-10, /*backward=*/false);
  }
  expect_equal(
      "two dims", {distinct({2, 3, 4}), distinct({3, 4})}, {1, 0},
      [](const Tensors& x) {
        return Tensors{at::layer_norm(x[0], {3, 4}, x[1])};
      });
  expect_equal(
      "all dims", {distinct({5, 4}), distinct({5, 4})}, {0, 0},
      [](const Tensors& x) {
        return Tensors{at::layer_norm(x[0], {5, 4}, x[1])};
      });
}

TEST(LayerNormDecomposition, SendsTwoNumbersPerRowEachWay) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const auto x = cut_of(distinct({8, 4000}, f32()), mesh, {Shard(1)});
    const auto w = cut_of(distinct({4000}, f32()), mesh, {Shard(0)});
    at::Tensor y, mean, rstd;
    EXPECT_EQ(
        bytes_of([&] {
          std::tie(y, mean, rstd) =
              at::native_layer_norm(x, {4000}, w, w, 1e-5);
          return y;
        }),
        96);
    EXPECT_EQ(placements(y), Placements{Shard(1)});
    EXPECT_EQ(placements(mean), Placements{Replicate()});
    std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients;
    EXPECT_EQ(
        bytes_of([&] {
          gradients = at::native_layer_norm_backward(
              y, x, {4000}, mean, rstd, w, w, {true, true, true});
          return y;
        }),
        96);
    EXPECT_EQ(placements(std::get<0>(gradients)), Placements{Shard(1)});
    EXPECT_EQ(placements(std::get<1>(gradients)), Placements{Shard(0)});
    const auto masked = at::native_layer_norm_backward(
        y, x, {4000}, mean, rstd, w, w, {false, true, false});
    EXPECT_FALSE(std::get<0>(masked).defined());
    EXPECT_FALSE(std::get<2>(masked).defined());
  });
}

TEST(LayerNormDecomposition, SumsInFloatAndKeepsTheTypesOfStatistics) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto whole = distinct({3, 9}, f32().dtype(at::kBFloat16));
    const auto x = cut_of(whole, mesh, {Shard(1)});
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const auto weight = distinct({9}, f32().dtype(type));
      const auto w = cut_of(weight, mesh, {Shard(0)});
      const auto [y, mean, rstd] = at::native_layer_norm(x, {9}, w, w, 1e-5);
      const auto [y2, mean2, rstd2] =
          at::native_layer_norm(whole, {9}, weight, weight, 1e-5);
      EXPECT_TRUE(close(y, y2, 1e-2));
      EXPECT_TRUE(close(mean, mean2, 1e-2));
      EXPECT_TRUE(close(rstd, rstd2, 1e-2));
    }
  });
}

}  // namespace
}  // namespace tessera
