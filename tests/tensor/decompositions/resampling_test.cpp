// Pads by neighbours and interpolation of images cut in rows and columns: they
// equal the plain ones, stay cut, and send what neighbours need.
#include <tensor/decompositions/along_cut_dims.h>

namespace tessera {
namespace {

using testing::bytes_of;
using testing::cut_of;
using testing::distinct;
using testing::expect_equal;
using testing::f64;
using testing::grids;
using testing::mesh_of;
using testing::Tensors;

void expect_image(
    const char* name, const std::vector<int64_t>& shape, int64_t dims,
    const testing::Op& op) {
  const auto rows = static_cast<int64_t>(shape.size()) - dims;
  SCOPED_TRACE(c10::str(name, " of ", shape));
  expect_equal(name, {distinct(shape)}, {rows}, op);
  if (dims > 1) {
    expect_equal(name, {distinct(shape)}, {rows}, op, 1e-10, true, grids());
  }
}

TEST(Resampling, PadsEqualThePlainOnes) {
  for (const std::vector<int64_t>& padding :
       {std::vector<int64_t>{1, 2, 3, 0}, {0, 0, 4, 4}, {2, 0, 0, 1}}) {
    for (const auto& shape :
         std::vector<std::vector<int64_t>>{{2, 3, 8, 6}, {2, 7, 5}}) {
      expect_image("reflection", shape, 2, [&](const Tensors& x) {
        return Tensors{at::reflection_pad2d(x[0], padding)};
      });
      expect_image("replication", shape, 2, [&](const Tensors& x) {
        return Tensors{at::replication_pad2d(x[0], padding)};
      });
    }
  }
  expect_image("1d", {2, 3, 7}, 1, [](const Tensors& x) {
    return Tensors{
        at::reflection_pad1d(x[0], {2, 5}),
        at::replication_pad1d(x[0], {1, 9})};
  });
  expect_image("3d", {1, 2, 4, 3, 5}, 3, [](const Tensors& x) {
    return Tensors{
        at::reflection_pad3d(x[0], {1, 2, 0, 1, 2, 0}),
        at::replication_pad3d(x[0], {1, 0, 2, 1, 0, 3})};
  });
}

TEST(Resampling, InterpolationEqualsThePlainOne) {
  for (const std::vector<int64_t>& size :
       {std::vector<int64_t>{16, 12}, {11, 5}, {3, 6}}) {
    const std::vector<int64_t> shape{2, 2, 8, 6};
    expect_image("nearest", shape, 2, [&](const Tensors& x) {
      return Tensors{
          at::upsample_nearest2d(x[0], size),
          at::_upsample_nearest_exact2d(x[0], size)};
    });
    for (const bool corners : {false, true}) {
      expect_image("linear", shape, 2, [&](const Tensors& x) {
        return Tensors{at::upsample_bilinear2d(x[0], size, corners)};
      });
      expect_image("cubic", shape, 2, [&](const Tensors& x) {
        return Tensors{at::upsample_bicubic2d(x[0], size, corners)};
      });
    }
  }
  expect_image("scaled", {1, 2, 7, 6}, 2, [](const Tensors& x) {
    return Tensors{
        at::upsample_bilinear2d(x[0], {10, 9}, false, 1.5, 1.6),
        at::upsample_nearest2d(x[0], {10, 9}, 1.5, 1.6)};
  });
  expect_image("1d", {2, 2, 7}, 1, [](const Tensors& x) {
    return Tensors{
        at::upsample_linear1d(x[0], {11}, false),
        at::upsample_nearest1d(x[0], {14})};
  });
  expect_image("3d", {1, 2, 3, 4, 5}, 3, [](const Tensors& x) {
    return Tensors{
        at::upsample_trilinear3d(x[0], {6, 5, 7}, true),
        at::upsample_nearest3d(x[0], {6, 8, 5})};
  });
}

TEST(Resampling, SendsWhatNeighboursNeed) {
  run_ranks(5, [&] {  // one is outside
    const auto mesh = mesh_of({2, 2});
    const StrictMode strict({.communication = false, .gathers = true});
    const Placements p{Shard(2), Shard(3)};
    const at::Tensor x = cut_of(distinct({1, 1, 16, 16}, f64()), mesh, p);
    at::Tensor y;
    EXPECT_EQ(
        bytes_of([&] {
          return y = at::upsample_nearest2d(x, {32, 32});
        }),
        0);
    EXPECT_EQ(placements(y), p);
    // Two rows are between those of the ranks: one of each is another's.
    EXPECT_EQ(
        bytes_of([&] {
          return y = at::upsample_bilinear2d(x, {32, 32}, false);
        }),
        rank() < 4 ? (8 + 8 + 1) * 8 : 0);
    EXPECT_EQ(placements(y), p);
  });
}

}  // namespace
}  // namespace tessera
