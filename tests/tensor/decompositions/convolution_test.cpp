// Convolutions of images cut along rows or columns equal the plain ones and
// send only the rows between neighbours.
#include <tensor/decompositions/along_cut_dims.h>

namespace tessera {
namespace {

using testing::bytes_of;
using testing::close;
using testing::cut_of;
using testing::distinct;
using testing::expect_equal;
using testing::f32;
using testing::leaf;
using testing::mesh_of;
using testing::Tensors;

struct ConvCase {
  std::vector<int64_t> input, weight, stride, padding, dilation;
  int64_t groups = 1;
};

const std::vector<ConvCase>& conv_cases() {
  static const std::vector<ConvCase> all = {
      {{2, 2, 8}, {3, 2, 3}, {1}, {1}, {1}},
      {{2, 2, 7}, {3, 2, 3}, {1}, {0}, {1}},
      {{2, 2, 9}, {3, 2, 3}, {2}, {1}, {1}},
      {{2, 2, 10}, {3, 2, 3}, {1}, {2}, {2}},
      {{2, 2, 8}, {3, 2, 2}, {2}, {0}, {1}},
      {{2, 2, 7}, {3, 2, 5}, {1}, {4}, {1}},
      {{2, 2, 2}, {3, 2, 3}, {1}, {1}, {1}},
      {{2, 2, 11}, {3, 2, 2}, {4}, {0}, {1}},
      {{2, 4, 5, 6}, {4, 2, 3, 2}, {1, 2}, {1, 0}, {1, 1}, 2},
      {{2, 2, 7, 4}, {3, 2, 3, 3}, {2, 1}, {1, 1}, {1, 1}},
      {{1, 2, 5, 3, 4}, {2, 2, 3, 2, 2}, {1, 1, 1}, {1, 0, 1}, {1, 1, 1}},
  };
  return all;
}

TEST(ConvolutionDecomposition, EqualsThePlainOperatorForwardAndBackward) {
  for (const ConvCase& c : conv_cases()) {
    for (int64_t d = 2; d < static_cast<int64_t>(c.input.size()); ++d) {
      expect_equal(
          "convolution",
          {distinct(c.input), distinct(c.weight), distinct({c.weight[0]})},
          {d, -1, -1}, [&](const Tensors& x) {
            return Tensors{at::convolution(
                x[0], x[1], x[2], c.stride, c.padding, c.dilation, false, {0},
                c.groups)};
          });
    }
  }
}

TEST(ConvolutionDecomposition, SendsTheRowsBetweenNeighboursOnly) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const auto x = cut_of(distinct({2, 3, 64, 16}, f32()), mesh, {Shard(2)});
    auto w = cut_of(distinct({5, 3, 3, 3}, f32()), mesh, {Replicate()});
    at::Tensor y;
    const int64_t row = 2 * 3 * 16 * 4;
    const int64_t neighbours = rank() == 0 || rank() == 3 ? 1 : 2;
    EXPECT_EQ(
        bytes_of([&] { return y = at::conv2d(x, w, {}, 1, 1); }),
        neighbours * row);
    EXPECT_EQ(placements(y), Placements{Shard(2)});
    const auto patches =
        cut_of(distinct({5, 3, 4, 4}, f32()), mesh, {Replicate()});
    EXPECT_EQ(bytes_of([&] { return y = at::conv2d(x, patches, {}, 4); }), 0);
    EXPECT_EQ(placements(y), Placements{Shard(2)});
    w.set_requires_grad(true);
    y = at::conv2d(x, w, {}, 1, 1).sum();
    y.backward();
    EXPECT_TRUE(close(
        w.grad(),
        [&] {
          auto plain = leaf(distinct({5, 3, 3, 3}, f32()));
          at::conv2d(distinct({2, 3, 64, 16}, f32()), plain, {}, 1, 1)
              .sum()
              .backward();
          return plain.grad();
        }(),
        1e-3));
  });
}

TEST(ConvolutionDecomposition, LeavesErrorsToAten) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto x = cut_of(distinct({1, 1, 4}), mesh, {Shard(2)});
    const auto w = cut_of(distinct({1, 1, 9}), mesh, {Replicate()});
    EXPECT_ERROR("Kernel size can't be greater", at::conv1d(x, w));
  });
}

}  // namespace
}  // namespace tessera
