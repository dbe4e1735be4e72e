// Pools of images cut in rows and columns: they equal the plain ones, indices
// of maxima too, stay cut, and send what neighbours need, if anything.
#include <tensor/decompositions/along_cut_dims.h>

namespace tessera {
namespace {

using testing::bytes_of;
using testing::cut_of;
using testing::cuts;
using testing::distinct;
using testing::expect_equal;
using testing::f64;
using testing::grids;
using testing::mesh_of;
using testing::same;
using testing::Tensors;

// Neighbouring elements do not ascend.
at::Tensor mixed(const std::vector<int64_t>& shape) {
  const at::Tensor t = distinct(shape);
  return (t * 7).remainder(static_cast<double>(t.numel()) + 0.5) - 3;
}

struct PoolCase {
  std::vector<int64_t> input, kernel, stride, padding, dilation;
  bool ceil_mode = false;
};

const std::vector<PoolCase>& pool_cases() {
  static const std::vector<PoolCase> all = {
      {{2, 3, 8, 8}, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
      {{2, 2, 7, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
      {{2, 2, 7, 6}, {3, 2}, {2, 1}, {1, 0}, {1, 1}, true},
      {{3, 6, 7}, {3, 3}, {1, 2}, {1, 1}, {1, 2}},
      {{1, 1, 2, 3}, {2, 3}, {1, 1}, {1, 1}, {1, 1}},
      {{1, 2, 11, 5}, {2, 2}, {4, 3}, {0, 0}, {1, 1}, true},
  };
  return all;
}

void expect_pool(
    const std::vector<int64_t>& shape, const testing::Op& op,
    int64_t dims = 2) {
  const auto rows = static_cast<int64_t>(shape.size()) - dims;
  SCOPED_TRACE(c10::str("image ", shape));
  expect_equal("pool", {mixed(shape)}, {rows}, op);
  expect_equal("pool", {mixed(shape)}, {rows + 1}, op);
  expect_equal("pool", {mixed(shape)}, {rows}, op, 1e-10, true, grids());
}

TEST(Pooling, MaximaAndTheirPlacesEqualThePlainOnes) {
  for (const PoolCase& c : pool_cases()) {
    expect_pool(c.input, [&](const Tensors& x) {
      const auto [y, indices] = at::max_pool2d_with_indices(
          x[0], c.kernel, c.stride, c.padding, c.dilation, c.ceil_mode);
      return Tensors{y, indices};
    });
  }
  expect_pool(
      {1, 2, 5, 4, 6},
      [](const Tensors& x) {
        const auto [y, indices] = at::max_pool3d_with_indices(
            x[0], {2, 3, 2}, {2, 1, 2}, {1, 1, 0}, {1, 1, 1}, true);
        return Tensors{y, indices};
      },
      3);
}

TEST(Pooling, AveragesEqualThePlainOnes) {
  for (const PoolCase& c : pool_cases()) {
    for (const bool padded : {true, false}) {
      for (const auto divisor :
           {std::optional<int64_t>(), std::optional<int64_t>(5)}) {
        if (divisor && !padded) {
          continue;
        }
        expect_pool(c.input, [&](const Tensors& x) {
          return Tensors{at::avg_pool2d(
              x[0], c.kernel, c.stride, c.padding, c.ceil_mode, padded,
              divisor)};
        });
      }
    }
  }
  expect_pool(
      {1, 2, 5, 4, 6},
      [](const Tensors& x) {
        return Tensors{
            at::avg_pool3d(x[0], {2, 3, 2}, {2, 1, 2}, {1, 1, 0}, true, false)};
      },
      3);
}

TEST(Pooling, AdaptivePoolsEqualThePlainOnes) {
  for (const auto& [shape, sizes] :
       std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>{
           {{2, 3, 8, 8}, {4, 4}},
           {{2, 2, 7, 9}, {3, 2}},
           {{2, 5, 6}, {2, 7}},
           {{1, 2, 10, 3}, {6, 1}}}) {
    const std::vector<int64_t> size = sizes;
    expect_pool(shape, [&](const Tensors& x) {
      return Tensors{at::_adaptive_avg_pool2d(x[0], size)};
    });
    expect_pool(shape, [&](const Tensors& x) {
      const auto [y, indices] = at::adaptive_max_pool2d(x[0], size);
      return Tensors{y, indices};
    });
  }
  expect_pool(
      {1, 2, 5, 4, 6},
      [](const Tensors& x) {
        const auto [y, indices] = at::adaptive_max_pool3d(x[0], {3, 2, 4});
        return Tensors{y, at::_adaptive_avg_pool3d(x[0], {3, 2, 4}), indices};
      },
      3);
}

// Fewer images than ranks: some hold none, and nothing moves.
TEST(Pooling, OfFewImagesStaysCut) {
  for (const int64_t images : {2, 5}) {
    const at::Tensor x = mixed({images, 2, 6, 4});
    expect_equal("few images", {x}, {0}, [](const Tensors& t) {
      const auto [y, indices] = at::max_pool2d_with_indices(t[0], 2);
      return Tensors{y, indices, at::avg_pool2d(t[0], 3, 1, 1)};
    });
  }
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    const StrictMode strict({.communication = false, .gathers = true});
    at::Tensor x = cut_of(distinct({2, 3, 8, 8}, f64()), mesh, {Shard(0)});
    x.set_requires_grad(true);
    at::Tensor y;
    EXPECT_EQ(bytes_of([&] { return y = at::max_pool2d(x, 2); }), 0);
    EXPECT_EQ(placements(y), Placements{Shard(0)});
    const at::Tensor sum = y.square().sum();
    sum.backward();
    EXPECT_EQ(placements(x.grad()), Placements{Shard(0)});
  });
}

// The plain kernel names the first element of a window that exists, not
// padding.
TEST(Pooling, WindowsOfNothingButTheSmallestNamePlacesInTheImage) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    for (const at::Tensor& plain :
         {at::full({1, 1, 6, 6}, -testing::kInf, f64()),
          at::full({1, 1, 6, 6}, testing::kNan, f64())}) {
      for (const int64_t dilation : {1, 2}) {
        const auto want = at::max_pool2d_with_indices(
            plain, {3, 3}, {1, 1}, {1, 1}, {dilation, dilation});
        const auto got = at::max_pool2d_with_indices(
            cut_of(plain, mesh, {Shard(2), Shard(3)}), {3, 3}, {1, 1}, {1, 1},
            {dilation, dilation});
        EXPECT_TRUE(same(std::get<1>(got), std::get<1>(want)))
            << full_tensor(std::get<1>(got)) << std::get<1>(want);
      }
    }
  });
}

// What is no maximum of a window of this rank has no place on it.
TEST(Pooling, RefusesIndicesOfOtherWindows) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const at::Tensor x =
        cut_of(distinct({1, 1, 8, 8}, f64()), mesh, {Shard(2)});
    const at::Tensor g =
        cut_of(distinct({1, 1, 4, 4}, f64()), mesh, {Shard(2)});
    const at::Tensor zero = at::zeros({1, 1, 4, 4}, testing::i64());
    const at::Tensor last = at::full({1, 1, 4, 4}, 63, testing::i64());
    const at::Tensor index =
        cut_of(rank() == 0 ? last : zero, mesh, {Shard(2)});
    EXPECT_ERROR(
        "indices must lie in the windows that they are the maxima of",
        at::max_pool2d_with_indices_backward(
            g, x, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false, index));
  });
}

TEST(Pooling, WindowsThatEndWithTheShardsMoveNothing) {
  run_ranks(5, [&] {  // one is outside
    const auto mesh = mesh_of({2, 2});
    const Placements p{Shard(2), Shard(3)};
    at::Tensor x = cut_of(distinct({2, 3, 16, 16}, f64()), mesh, p);
    x.set_requires_grad(true);
    const StrictMode strict({.communication = false, .gathers = true});
    std::vector<at::Tensor> y(4);
    EXPECT_EQ(
        bytes_of([&] {
          y[0] = at::max_pool2d(x, 2);
          y[1] = at::avg_pool2d(x, 4);
          y[2] = at::adaptive_avg_pool2d(x, {4, 4});
          y[3] = std::get<0>(at::adaptive_max_pool2d(x, {4, 4}));
          return 0;
        }),
        0);
    at::Tensor sum;
    for (const at::Tensor& t : y) {
      EXPECT_EQ(placements(t), p);
      sum = sum.defined() ? sum + t.sum() : t.sum();
    }
    EXPECT_EQ(
        bytes_of([&] {
          sum.backward();
          return 0;
        }),
        0);
    EXPECT_EQ(placements(x.grad()), p);
  });
}

// Windows of 3 by steps of 2: one row and one column before each shard.
TEST(Pooling, OverlappingWindowsSendTheRowsBetweenNeighbours) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    at::Tensor x =
        cut_of(distinct({1, 1, 16, 16}, f64()), mesh, {Shard(2), Shard(3)});
    // The first rank sends a row, a column and a corner; the last one receives.
    const int64_t elements = rank() == 0 || rank() == 3 ? 8 + 8 + 1 : 8;
    EXPECT_EQ(
        bytes_of([&] { return at::max_pool2d(x, 3, 2, 1); }), elements * 8);
  });
}

}  // namespace
}  // namespace tessera
