// Convolutions of images cut in rows and columns: they equal the plain ones,
// stay cut, and send what neighbours need, corners once.
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
using testing::leaf;
using testing::mesh_of;
using testing::Tensors;

struct GridCase {
  std::vector<int64_t> input, weight, stride, padding, dilation;
  int64_t groups = 1;
  bool transposed = false;
  std::vector<int64_t> output_padding = {0};
};

void expect_conv(const GridCase& c, const std::vector<testing::Cut>& on) {
  SCOPED_TRACE(c10::str(
      "input ", c.input, ", weight ", c.weight, ", stride ", c.stride,
      ", padding ", c.padding, ", dilation ", c.dilation, ", groups ", c.groups,
      c.transposed ? ", transposed" : ""));
  const int64_t channels = c.transposed ? c.weight[1] * c.groups : c.weight[0];
  expect_equal(
      "convolution",
      {distinct(c.input), distinct(c.weight), distinct({channels})},
      {2, -1, -1},
      [&](const Tensors& x) {
        return Tensors{at::convolution(
            x[0], x[1], x[2], c.stride, c.padding, c.dilation, c.transposed,
            c.output_padding, c.groups)};
      },
      1e-10, /*backward=*/true, on);
}

TEST(Halo, ConvolutionsOfRowsAndColumnsEqualThePlainOnes) {
  const std::vector<GridCase> cases = {
      {{2, 2, 8, 8}, {3, 2, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {{2, 2, 7, 5}, {3, 2, 3, 2}, {1, 1}, {0, 1}, {1, 1}},
      {{1, 2, 9, 8}, {3, 2, 3, 3}, {2, 2}, {1, 1}, {1, 1}},
      {{1, 2, 9, 10}, {2, 2, 3, 3}, {1, 2}, {2, 4}, {2, 3}},
      {{1, 4, 8, 6}, {4, 2, 5, 1}, {1, 1}, {2, 0}, {1, 1}, 2},
      {{1, 2, 8, 8}, {2, 2, 2, 2}, {2, 2}, {0, 0}, {1, 1}},
      {{1, 1, 2, 3}, {2, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {{1, 2, 5, 4, 4}, {2, 2, 3, 3, 2}, {1, 1, 1}, {1, 1, 0}, {1, 1, 1}},
  };
  for (const GridCase& c : cases) {
    expect_conv(c, grids());
  }
}

TEST(Halo, TransposedConvolutionsEqualThePlainOnes) {
  const std::vector<GridCase> cases = {
      {{2, 3, 6, 5}, {3, 2, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, true},
      {{1, 3, 6, 5}, {3, 2, 2, 2}, {2, 2}, {0, 0}, {1, 1}, 1, true},
      {{1, 2, 5, 4}, {2, 2, 3, 3}, {2, 2}, {1, 1}, {1, 1}, 1, true, {1, 1}},
      {{1, 2, 5, 4}, {2, 2, 2, 1}, {3, 2}, {0, 0}, {1, 1}, 1, true, {2, 1}},
      {{1, 4, 4, 6}, {4, 1, 3, 2}, {1, 2}, {2, 0}, {2, 1}, 2, true},
      {{1, 2, 3, 2}, {2, 1, 4, 4}, {2, 2}, {1, 1}, {1, 1}, 1, true},
      {{1, 1, 3, 3, 2},
       {1, 2, 2, 3, 2},
       {2, 1, 1},
       {0, 1, 0},
       {1, 1, 1},
       1,
       true,
       {1, 0, 0}},
  };
  for (const GridCase& c : cases) {
    expect_conv(c, grids());
    expect_conv(c, testing::cuts());
  }
}

TEST(Halo, ConvolutionsOfChannelsLastAndOfRaggedRowsStayCut) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    const at::Tensor plain =
        distinct({2, 4, 6, 7}).contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor w = distinct({4, 4, 3, 3});
    const at::Tensor want = at::conv2d(plain, w, {}, 1, 1);
    const at::Tensor cut_w = cut_of(w, mesh, {Replicate(), Replicate()});
    for (const Placements& p :
         {Placements{Shard(2), Shard(3)},
          Placements{RaggedShard(2, {1, 5}), RaggedShard(3, {7, 0})}}) {
      const at::Tensor y = at::conv2d(cut_of(plain, mesh, p), cut_w, {}, 1, 1);
      EXPECT_TRUE(close(y, want, 1e-10));
      EXPECT_EQ(placements(y), p);
      EXPECT_EQ(y.strides(), want.strides());
    }
  });
}

// Fewer images than ranks: some hold none.
TEST(Halo, ConvolutionsOfFewImagesStayCut) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    const StrictMode strict({.communication = false, .gathers = true});
    const at::Tensor plain = leaf(distinct({2, 3, 5, 4}));
    const at::Tensor plain_w = leaf(distinct({4, 3, 3, 3}));
    const at::Tensor x = leaf(cut_of(plain.detach(), mesh, {Shard(0)}));
    const at::Tensor w = leaf(cut_of(plain_w.detach(), mesh, {Replicate()}));
    at::Tensor y;
    EXPECT_EQ(bytes_of([&] { return y = at::conv2d(x, w, {}, 1, 1); }), 0);
    EXPECT_EQ(placements(y), Placements{Shard(0)});
    const at::Tensor want = at::conv2d(plain, plain_w, {}, 1, 1);
    EXPECT_TRUE(close(y, want, 1e-10));
    want.square().sum().backward();
    y.square().sum().backward();
    EXPECT_TRUE(close(x.grad(), plain.grad(), 1e-9));
    EXPECT_TRUE(close(w.grad(), plain_w.grad(), 1e-9));
  });
}

// Weights of more than a MiB, and more than what a rank reads of the images.
TEST(Halo, ConvolutionsByWeightsLargerThanTheImagesEqualThePlainOnes) {
  const std::vector<testing::Cut> on{grids()[0]};
  expect_conv({{1, 150, 4, 5}, {100, 150, 3, 3}, {1, 1}, {1, 1}, {1, 1}}, on);
  // Frozen weights, and images that need no gradient.
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    const at::Tensor x = distinct({1, 150, 4, 4}) / 1000;
    const at::Tensor w = distinct({100, 150, 3, 3}) / 1000;
    for (const bool trains : {false, true}) {
      const auto run = [&](const at::Tensor& images, const at::Tensor& weight) {
        const at::Tensor& wanted = trains ? weight : images;
        wanted.set_requires_grad(true);
        at::conv2d(images, weight, {}, 1, 1).square().sum().backward();
        return wanted.grad();
      };
      EXPECT_TRUE(close(
          run(cut_of(x, mesh, {Shard(2), Shard(3)}),
              cut_of(w, mesh, {Replicate(), Replicate()})),
          run(x.clone(), w.clone()), 1e-9));
    }
  });
}

// A weight that is cut as the images are is gathered, not they.
TEST(Halo, GathersTheWeightRatherThanTheImages) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    const at::Tensor plain = leaf(distinct({2, 3, 8, 8}));
    const at::Tensor plain_w = leaf(distinct({4, 3, 3, 3}));
    const at::Tensor x =
        leaf(cut_of(plain.detach(), mesh, {Shard(0), Shard(2)}));
    const at::Tensor w =
        leaf(cut_of(plain_w.detach(), mesh, {Shard(0), Replicate()}));
    const at::Tensor want = at::conv2d(plain, plain_w, {}, 1, 1);
    at::Tensor y;
    // A row of one image, and the half of the weight that others have.
    EXPECT_EQ(
        bytes_of([&] { return y = at::conv2d(x, w, {}, 1, 1); }),
        3 * 8 * 8 + 2 * 3 * 9 * 8);
    EXPECT_EQ(placements(y), (Placements{Shard(0), Shard(2)}));
    EXPECT_TRUE(close(y, want, 1e-10));
    want.square().sum().backward();
    y.square().sum().backward();
    EXPECT_TRUE(close(x.grad(), plain.grad(), 1e-9));
    EXPECT_TRUE(close(w.grad(), plain_w.grad(), 1e-9));
  });
}

// (k - 1) / 2 rows and columns per inner edge, and the corner once.
TEST(Halo, SendsRowsColumnsAndCornersOnce) {
  run_ranks(5, [&] {  // one is outside
    const auto mesh = mesh_of({2, 2});
    const at::Tensor x = cut_of(
        at::zeros({1, 1, 2048, 2048}, f64()), mesh, {Shard(2), Shard(3)});
    const at::Tensor w = cut_of(
        at::zeros({1, 1, 3, 3}, f64()), mesh, {Replicate(), Replicate()});
    const StrictMode strict({.communication = false, .gathers = true});
    at::Tensor y;
    EXPECT_EQ(
        bytes_of([&] { return y = at::conv2d(x, w, {}, 1, 1); }),
        rank() < 4 ? (1024 + 1024 + 1) * 8 : 0);
    EXPECT_EQ(placements(y), (Placements{Shard(2), Shard(3)}));
    const std::string text = explain(
        "convolution", x, w, c10::IValue(), std::vector<int64_t>{1, 1},
        std::vector<int64_t>{1, 1}, std::vector<int64_t>{1, 1}, false,
        std::vector<int64_t>{0, 0}, 1);
    if (rank() < 4) {
      EXPECT_NE(
          text.find("all_to_all 0,1: rows of neighbours, 16392 bytes"),
          std::string::npos)
          << text;
    }
  });
}

// The gradients of rows that were received go back: as many bytes; the weight's
// are left partial.
TEST(Halo, SendsGradientsBack) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    at::Tensor x =
        cut_of(distinct({2, 3, 16, 16}, f64()), mesh, {Shard(2), Shard(3)});
    const at::Tensor w =
        cut_of(distinct({5, 3, 3, 3}, f64()), mesh, {Replicate(), Replicate()});
    x.set_requires_grad(true);
    const at::Tensor sum = at::conv2d(x, w, {}, 1, 1).sum();
    EXPECT_EQ(
        bytes_of([&] {
          sum.backward();
          return 0;
        }),
        2 * 3 * (8 + 8 + 1) * 8);
    EXPECT_EQ(placements(x.grad()), (Placements{Shard(2), Shard(3)}));
  });
}

TEST(Halo, TransposedConvolutionsByTheirStrideMoveNothing) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    const StrictMode strict({.communication = true, .gathers = true});
    const at::Tensor x =
        cut_of(distinct({2, 4, 8, 8}, f64()), mesh, {Shard(2), Shard(3)});
    const at::Tensor w =
        cut_of(distinct({4, 2, 2, 2}, f64()), mesh, {Replicate(), Replicate()});
    at::Tensor y;
    EXPECT_EQ(
        bytes_of([&] { return y = at::conv_transpose2d(x, w, {}, 2); }), 0);
    EXPECT_EQ(placements(y), (Placements{Shard(2), Shard(3)}));
  });
}

}  // namespace
}  // namespace tessera
