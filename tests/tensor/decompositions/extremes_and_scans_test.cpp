// Extremes, scans and the largest elements along cut dims equal the plain ones
// and send only what is small.
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
using testing::i64;
using testing::kInf;
using testing::kNan;
using testing::mesh_of;
using testing::Tensors;

TEST(ExtremeDecomposition, EqualsThePlainOperatorForwardAndBackward) {
  expect_equal_along("max", [](const at::Tensor& x) {
    const auto [a, b] = x.max(1);
    const auto [c, d] = x.min(-x.dim() + 1, true);
    return Tensors{a, b, c, d};
  });
  expect_equal_along("argmax", [](const at::Tensor& x) {
    return Tensors{
        x.argmax(1), x.argmin(1, true), x.argmax(), x.argmin(),
        at::argmax(x, std::nullopt, true)};
  });
  expect_equal_along("aminmax", [](const at::Tensor& x) {
    const auto [a, b] = at::aminmax(x, 1);
    const auto [c, d] = at::aminmax(x, 1, true);
    const auto [e, f] = at::aminmax(x);
    return Tensors{a, b, c, d, e, f};
  });
}

TEST(ExtremeDecomposition, TakesTheFirstOfEqualsAndNaNBeforeAll) {
  const auto equal = at::tensor({3, 7, 7, 5, 7, 1, 1, 2}, i64()).view({2, 4});
  const auto nan =
      at::tensor(
          {1., kNan, 9., kNan, -kInf, -kInf, -kInf, -kInf, 2., 3., 1., kNan},
          f64())
          .view({3, 4});
  for (const at::Tensor& data : {equal, nan, equal.to(at::kInt), equal.gt(4)}) {
    expect_equal(
        "ties", {data}, {1},
        [](const Tensors& x) {
          const auto [a, b] = x[0].max(1);
          const auto [c, d] = x[0].min(1);
          return Tensors{a, b, c, d};
        },
        0, /*backward=*/false);
    if (data.scalar_type() != at::kBool) {
      expect_equal(
          "ties", {data}, {1},
          [](const Tensors& x) {
            return Tensors{
                x[0].argmax(1), x[0].argmin(1), x[0].argmax(), x[0].argmin()};
          },
          0, /*backward=*/false);
    }
  }
}

TEST(ExtremeDecomposition, SendsAValueAndAPlacePerRow) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const auto x = cut_of(distinct({8, 4000}, f32()), mesh, {Shard(1)});
    // 8 f32: 48 bytes, 8 int64: 96
    EXPECT_EQ(bytes_of([&] { return x.max(1); }), 144);
    EXPECT_EQ(bytes_of([&] { return x.argmax(); }), 24);
    EXPECT_EQ(bytes_of([&] { return x.aminmax(1); }), 0);
    EXPECT_EQ(placements(x.argmax(1)), Placements{Replicate()});
    const auto grid = mesh_of({2, 2});
    const auto y = cut_of(distinct({6, 4}), grid, {Shard(0), Shard(1)});
    EXPECT_EQ(
        placements(std::get<1>(y.max(1))), (Placements{Shard(0), Replicate()}));
    EXPECT_EQ(placements(y.argmax(0)), (Placements{Replicate(), Shard(0)}));
    EXPECT_ERROR(
        "Expected reduction dim",
        cut_of(at::zeros({2, 0}, f32()), mesh, {Shard(1)}).argmax(1));
  });
}

TEST(ScanDecomposition, EqualsThePlainOperatorForwardAndBackward) {
  expect_equal_along("cumsum", [](const at::Tensor& x) {
    return Tensors{x.cumsum(1), x.cumprod(1)};
  });
  expect_equal_along("logcumsumexp", [](const at::Tensor& x) {
    return Tensors{x.logcumsumexp(1)};
  });
  expect_equal_along("cummax", [](const at::Tensor& x) {
    const auto [a, b] = x.cummax(1);
    const auto [c, d] = x.cummin(1);
    return Tensors{a, b, c, d};
  });
}

TEST(ScanDecomposition, TreatsTypesTiesAndNaNAsAtenDoes) {
  const auto numbers = at::tensor({3, 7, 7, 5, 7, 1, 1, 2}, i64()).view({2, 4});
  expect_equal(
      "integers", {numbers}, {1},
      [](const Tensors& x) {
        const auto [a, b] = x[0].cummax(1);
        const auto [c, d] = x[0].cummin(1);
        return Tensors{
            a,
            b,
            c,
            d,
            x[0].cumsum(1),
            x[0].cumsum(1, at::kFloat),
            x[0].to(at::kInt).cumprod(1),
            x[0].gt(4).cumsum(1)};
      },
      0, false);
  const auto nan =
      at::tensor(
          {1., kNan, 9., kNan, 9., 2., kInf, 3., 1., 2., kNan, 1.}, f64())
          .view({3, 4});
  expect_equal(
      "NaN", {nan}, {1},
      [](const Tensors& x) {
        const auto [a, b] = x[0].cummax(1);
        return Tensors{a, b, x[0].cumsum(1), x[0].logcumsumexp(1)};
      },
      1e-10, false);
}

TEST(ScanDecomposition, SendsASlicePerRank) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const auto x = cut_of(distinct({8, 4000}, f32()), mesh, {Shard(1)});
    at::Tensor y;
    EXPECT_EQ(bytes_of([&] { return y = x.cumsum(1); }), 96);
    EXPECT_EQ(placements(y), Placements{Shard(1)});
    const auto ragged =
        cut_of(distinct({2, 6}), mesh, {RaggedShard(1, {3, 0, 1, 2})});
    EXPECT_TRUE(close(ragged.cumsum(1), distinct({2, 6}).cumsum(1)));
    EXPECT_EQ(placements(ragged.cumsum(1)), placements(ragged));
  });
}

TEST(TopkDecomposition, EqualsThePlainOperatorForwardAndBackward) {
  for (const bool largest : {true, false}) {
    expect_equal_along("topk", [&](const at::Tensor& x) {
      const auto [a, b] = x.topk(std::min<int64_t>(x.size(1), 3), 1, largest);
      return Tensors{a, b};
    });
  }
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const auto x = cut_of(distinct({8, 4000}, f32()), mesh, {Shard(1)});
    // 12 values of f32 and of int64 per row, a quarter of them at home
    EXPECT_EQ(bytes_of([&] { return x.topk(3, 1); }), 8 * 9 * 12);
  });
}

// A tensor of which dim 1 is cut, and the placements of a gather along it.
struct TopkCase {
  std::vector<int64_t> mesh;
  std::vector<int64_t> shape;
  Placements cut;
  Placements gathered;
};

// Even, uneven, more ranks than elements, shards without any by their sizes,
// and a mesh dim that cuts the rows.
std::vector<TopkCase> topk_cases() {
  std::vector<TopkCase> all;
  for (const int64_t ranks : {2, 3, 4}) {
    for (const int64_t length : {1, 2, 5, 8, 13, 40}) {
      for (const int64_t rows : {1, 3}) {
        all.push_back({{ranks}, {rows, length}, {Shard(1)}, {Replicate()}});
      }
      std::vector<int64_t> ragged(static_cast<size_t>(ranks), 0);
      ragged.back() = length - length / 2;
      ragged[ragged.size() - 2] += length / 2;
      all.push_back(
          {{ranks}, {2, length}, {RaggedShard(1, ragged)}, {Replicate()}});
    }
  }
  for (const int64_t length : {2, 7, 24}) {
    all.push_back(
        {{2, 2}, {3, length}, {Shard(0), Shard(1)}, {Shard(0), Replicate()}});
  }
  return all;
}

TEST(TopkDecomposition, NeverSendsMoreThanAGatherOfTheTensor) {
  for (const TopkCase& c : topk_cases()) {
    run_ranks(testing::ranks_of(c.mesh), [&] {
      const auto mesh = mesh_of(c.mesh);
      const int64_t length = c.shape[1];
      for (const auto& options :
           {f32(), f64(), i64().dtype(at::kInt), f32().dtype(at::kHalf)}) {
        const at::Tensor data =
            counting(c.shape, i64()).mul(37).remainder(127).to(options.dtype());
        const at::Tensor x = cut_of(data, mesh, c.cut);
        const int64_t gather =
            bytes_of([&] { return redistribute(x, c.gathered); });
        for (const int64_t k : {int64_t{0}, int64_t{1}, length / 2, length}) {
          SCOPED_TRACE(c10::str(
              to_string(c.cut), " of ", c.shape, " ", data.dtype(),
              ", k = ", k));
          std::tuple<at::Tensor, at::Tensor> got;
          EXPECT_LE(bytes_of([&] { return got = x.topk(k, 1); }), gather);
          const auto want = data.topk(k, 1);
          EXPECT_TRUE(close(std::get<0>(got), std::get<0>(want), 0));
          EXPECT_TRUE(close(std::get<1>(got), std::get<1>(want), 0));
        }
      }
    });
  }
}

TEST(TopkDecomposition, OfMostElementsBreaksTiesAsThePlainOperatorDoes) {
  const at::Tensor data =
      counting({3, 20}, i64()).remainder(4).to(f32().dtype());
  run_ranks(3, [&] {
    const at::Tensor x = cut_of(data, mesh_of({3}), {Shard(1)});
    for (const bool largest : {true, false}) {
      const auto [values, places] = x.topk(15, 1, largest);
      const auto [wanted, at] = data.topk(15, 1, largest);
      EXPECT_TRUE(close(values, wanted, 0));
      EXPECT_TRUE(close(places, at, 0));
    }
  });
}

TEST(TopkDecomposition, SaysBeforehandWhatItWillSend) {
  run_ranks(2, [&] {
    const at::Tensor x =
        cut_of(distinct({1, 16}, f32()), mesh_of({2}), {Shard(1)});
    // 5 x 12 <= 16 x 4, but 7 x 12 is more
    for (const int64_t k : {2, 3}) {
      const int64_t sent = bytes_of([&] { return x.topk(k, 1); });
      EXPECT_TRUE(k == 2 ? sent == 2 * 12 : sent <= 8 * 4) << sent;
      const std::string said = explain("topk", x, k, 1, true, true);
      EXPECT_NE(
          said.find(c10::str("total: ", sent, " bytes")), std::string::npos)
          << said;
      EXPECT_EQ(said.find("rule") == std::string::npos, k == 2) << said;
    }
  });
}

}  // namespace
}  // namespace tessera
