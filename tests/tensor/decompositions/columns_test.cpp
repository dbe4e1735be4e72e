// unfold, fold and circular pads of images cut in rows and columns: they equal
// the plain ones, stay cut, and send what neighbours need.
#include <tensor/decompositions/along_cut_dims.h>

namespace tessera {
namespace {

using testing::bytes_of;
using testing::close;
using testing::cut_of;
using testing::distinct;
using testing::expect_equal;
using testing::f64;
using testing::grids;
using testing::mesh_of;
using testing::Tensors;

struct ColumnCase {
  std::vector<int64_t> image, kernel, dilation, padding, stride;

  int64_t windows(size_t i) const {
    const int64_t rows = image[image.size() - 2 + i];
    return (rows + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) /
               stride[i] +
           1;
  }
};

const std::vector<ColumnCase>& column_cases() {
  static const std::vector<ColumnCase> all = {
      {{2, 3, 8, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {{1, 2, 8, 8}, {2, 2}, {1, 1}, {0, 0}, {2, 2}},
      {{1, 2, 7, 5}, {3, 2}, {1, 2}, {1, 0}, {2, 1}},
      {{2, 9, 4}, {2, 3}, {2, 1}, {0, 2}, {3, 2}},
      {{1, 1, 2, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
      {{2, 2, 12, 4}, {1, 1}, {1, 1}, {0, 0}, {3, 3}},
  };
  return all;
}

TEST(Columns, UnfoldEqualsThePlainOne) {
  for (const ColumnCase& c : column_cases()) {
    SCOPED_TRACE(c10::str("image ", c.image, ", windows ", c.kernel));
    const auto rows = static_cast<int64_t>(c.image.size()) - 2;
    const auto unfold = [&](const Tensors& x) {
      return Tensors{
          at::im2col(x[0], c.kernel, c.dilation, c.padding, c.stride)};
    };
    expect_equal("rows", {distinct(c.image)}, {rows}, unfold);
    expect_equal("columns", {distinct(c.image)}, {rows + 1}, unfold);
    expect_equal("channels", {distinct(c.image)}, {rows - 1}, unfold);
    expect_equal(
        "both", {distinct(c.image)}, {rows}, unfold, 1e-10, true, grids());
  }
}

TEST(Columns, FoldEqualsThePlainOne) {
  for (const ColumnCase& c : column_cases()) {
    SCOPED_TRACE(c10::str("image ", c.image, ", windows ", c.kernel));
    std::vector<int64_t> shape = c.image;
    shape.pop_back();
    shape.back() = c.windows(0) * c.windows(1);
    const auto last = static_cast<int64_t>(shape.size()) - 1;
    shape[shape.size() - 2] *= c.kernel[0] * c.kernel[1];
    const std::vector<int64_t> sizes(c.image.end() - 2, c.image.end());
    const auto fold = [&](const Tensors& x) {
      return Tensors{
          at::col2im(x[0], sizes, c.kernel, c.dilation, c.padding, c.stride)};
    };
    expect_equal("windows", {distinct(shape)}, {last}, fold);
    expect_equal("values", {distinct(shape)}, {last - 1}, fold);
    expect_equal(
        "both", {distinct(shape)}, {last - 1}, fold, 1e-10, true, grids());
  }
}

// Windows of 3 x 3 read a row of the neighbour, and give one back; those that
// end with the shards read none.
TEST(Columns, SendTheRowsBetweenNeighbours) {
  run_ranks(3, [&] {  // one is outside
    const auto mesh = mesh_of({2});
    const StrictMode strict({.communication = false, .gathers = true});
    at::Tensor x = cut_of(distinct({1, 2, 8, 6}, f64()), mesh, {Shard(2)});
    x.set_requires_grad(true);
    const int64_t row = rank() < 2 ? 2 * 6 * 8 : 0;
    at::Tensor y, image;
    EXPECT_EQ(
        bytes_of([&] {
          return y = at::im2col(x, {3, 3}, {1, 1}, {1, 1}, {1, 1});
        }),
        row);
    EXPECT_EQ(placements(y), Placements{Shard(2)});
    EXPECT_EQ(
        bytes_of([&] {
          return image = at::col2im(y, {8, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1});
        }),
        row);
    EXPECT_EQ(placements(image), Placements{Shard(2)});
    const at::Tensor sum = image.pow(2).sum();
    EXPECT_EQ(
        bytes_of([&] {
          sum.backward();
          return 0;
        }),
        2 * row);
    EXPECT_EQ(placements(x.grad()), Placements{Shard(2)});
    EXPECT_EQ(
        bytes_of([&] {
          const at::Tensor patches =
              at::im2col(x, {2, 2}, {1, 1}, {0, 0}, {2, 2});
          return at::col2im(patches, {8, 6}, {2, 2}, {1, 1}, {0, 0}, {2, 2});
        }),
        0);
  });
}

TEST(Columns, LeaveErrorsToAten) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const at::Tensor x = cut_of(distinct({1, 2, 4, 4}), mesh, {Shard(2)});
    EXPECT_ERROR("", at::im2col(x, {9, 9}, {1, 1}, {0, 0}, {1, 1}));
    EXPECT_ERROR(
        "", at::col2im(
                cut_of(distinct({1, 8, 5}), mesh, {Shard(2)}), {4, 4}, {2, 2},
                {1, 1}, {0, 0}, {1, 1}));
  });
}

TEST(CircularPad, EqualsThePlainOne) {
  for (const std::vector<int64_t>& pad :
       {std::vector<int64_t>{1, 2, 2, 1},
        {0, 3, 0, 0},
        {0, 0, 5, 5},
        {0, 0, 0, 0}}) {
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{1, 2, 8, 6}, {2, 1, 5, 3}}) {
      SCOPED_TRACE(c10::str("pad ", pad, " of ", shape));
      const auto run = [&](const Tensors& x) {
        return Tensors{at::_pad_circular(x[0], pad)};
      };
      expect_equal("rows", {distinct(shape)}, {2}, run);
      expect_equal("columns", {distinct(shape)}, {3}, run);
      expect_equal("both", {distinct(shape)}, {2}, run, 1e-10, true, grids());
    }
  }
  expect_equal("1-d", {distinct({2, 2, 7})}, {2}, [](const Tensors& x) {
    return Tensors{at::_pad_circular(x[0], {2, 3})};
  });
  expect_equal("3-d", {distinct({1, 2, 4, 3, 5})}, {2}, [](const Tensors& x) {
    return Tensors{at::_pad_circular(x[0], {1, 1, 0, 2, 3, 1})};
  });
}

// 8 + 2 rows over 4: 3 3 3 1. Rank 0 has rows 0, 1, which become 1, 2 and 9,
// and row 0 comes of rank 3.
TEST(CircularPad, SendsTheRowsThatChangeTheirRank) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const StrictMode strict({.communication = false, .gathers = true});
    const at::Tensor plain = distinct({1, 1, 8, 4}, f64());
    const at::Tensor x = cut_of(plain, mesh, {Shard(2)});
    at::Tensor y;
    const int64_t bytes = bytes_of([&] {
      return y = at::_pad_circular(x, {0, 0, 1, 1});
    });
    // Sent 1 1 2 3; received 1 1 3 1... the larger of both.
    EXPECT_LE(bytes, 3 * 4 * 8);
    EXPECT_EQ(placements(y), Placements{Shard(2)});
    EXPECT_TRUE(close(y, at::_pad_circular(plain, {0, 0, 1, 1}), 0));
  });
}

}  // namespace
}  // namespace tessera
