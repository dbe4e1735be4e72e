// Softmax and its relatives along cut dims equal the plain ones, keep their
// shards and send only what is small.
#include <tensor/decompositions/along_cut_dims.h>

namespace tessera {
namespace {

using testing::bytes_of;
using testing::close;
using testing::cut_of;
using testing::distinct;
using testing::expect_equal;
using testing::expect_equal_along;
using testing::f32;
using testing::f64;
using testing::kInf;
using testing::kNan;
using testing::mesh_of;
using testing::Tensors;

TEST(SoftmaxDecomposition, EqualsThePlainOperatorForwardAndBackward) {
  expect_equal_along(
      "softmax", [](const at::Tensor& x) { return Tensors{x.softmax(1)}; });
  expect_equal_along("softmax of a negative dim", [](const at::Tensor& x) {
    return Tensors{x.softmax(1 - x.dim())};
  });
  expect_equal_along("log_softmax", [](const at::Tensor& x) {
    return Tensors{x.log_softmax(1)};
  });
  expect_equal_along("safe_softmax", [](const at::Tensor& x) {
    return Tensors{at::_safe_softmax(x, 1)};
  });
  expect_equal_along("logsumexp", [](const at::Tensor& x) {
    return Tensors{x.logsumexp(1), x.logsumexp(1, true)};
  });
  expect_equal_along("logsumexp of all", [](const at::Tensor& x) {
    return Tensors{x.logsumexp(at::IntArrayRef({0, 1}))};
  });
}

TEST(SoftmaxDecomposition, TreatsInfinityAndNaNAsAtenDoes) {
  const auto data = at::tensor(
      {-kInf, -kInf, -kInf, -kInf, kInf, 1., 2., 3., kNan, 1., 2., 3., -kInf,
       1., 2., kInf},
      f64());
  for (const char* name : {"softmax", "log_softmax", "safe", "logsumexp"}) {
    const std::string which = name;
    expect_equal(
        name, {data.view({4, 4})}, {1},
        [&](const Tensors& x) -> Tensors {
          return {
              which == "softmax"       ? x[0].softmax(1)
              : which == "log_softmax" ? x[0].log_softmax(1)
              : which == "safe"        ? at::_safe_softmax(x[0], 1)
                                       : x[0].logsumexp(1)};
        },
        1e-10, /*backward=*/false);
  }
}

TEST(SoftmaxDecomposition, KeepsTheCutAndSendsOneNumberPerRowTwice) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const auto x = cut_of(distinct({8, 4000}, f32()), mesh, {Shard(1)});
    at::Tensor y;
    // all_reduce of 8 f32: 2 * (32 - 32 / 4) = 48 bytes, for largest and sum
    EXPECT_EQ(bytes_of([&] { return y = x.softmax(1); }), 96);
    EXPECT_EQ(placements(y), Placements{Shard(1)});
    EXPECT_EQ(bytes_of([&] { return x.log_softmax(1); }), 96);
    EXPECT_EQ(bytes_of([&] { return y = x.logsumexp(1); }), 96);
    EXPECT_EQ(placements(y), Placements{Replicate()});
    EXPECT_EQ(
        bytes_of(
            [&] { return at::_softmax_backward_data(x, x, 1, at::kFloat); }),
        48);
  });
}

TEST(SoftmaxDecomposition, SumsInFloatAndAcceptsDtypesAndAddends) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto whole = distinct({3, 9}, f32().dtype(at::kBFloat16));
    const auto x = cut_of(whole, mesh, {Shard(1)});
    EXPECT_TRUE(close(x.softmax(1), whole.softmax(1), 1e-2));
    EXPECT_TRUE(
        close(x.softmax(1, at::kFloat), whole.softmax(1, at::kFloat), 1e-5));
    const auto many = cut_of(
        at::ones({1, 4096}, f32().dtype(at::kBFloat16)), mesh, {Shard(1)});
    EXPECT_EQ(many.softmax(1).sum().item<double>(), 1.0);
    const auto grid = mesh_of({1, 2});
    const auto sum = from_local(
        distinct({3, 5}), grid, {Partial(), Shard(1)},
        {.shape = std::vector<int64_t>{3, 10}});
    EXPECT_TRUE(close(sum.softmax(1), full_tensor(sum).softmax(1)));
  });
}

}  // namespace
}  // namespace tessera
