// Operators whose bins or sizes depend on the values: they keep the shards,
// agree by a few numbers, and give partial counts or ragged results.
#include <tensor/decompositions/along_cut_dims.h>

namespace tessera {
namespace {

using testing::bytes_of;
using testing::cut_of;
using testing::distinct;
using testing::expect_equal;
using testing::f64;
using testing::i64;
using testing::mesh_of;
using testing::same;
using testing::Tensors;

at::Tensor mixed(const std::vector<int64_t>& shape) {
  const at::Tensor t = distinct(shape, f64());
  return (t * 7).remainder(static_cast<double>(t.numel()) + 0.5) - 3;
}

TEST(Histograms, OfTheRangeOfTheDataEqualThePlainOnes) {
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{16}, {5, 3}, {2, 4}, {1, 3}}) {
    for (const at::Tensor& x : {mixed(shape), at::full(shape, 2.5, f64())}) {
      for (int64_t d = 0; d < x.dim(); ++d) {
        expect_equal("histc", {x}, {d}, [](const Tensors& t) {
          return Tensors{at::histc(t[0].detach(), 5)};
        });
        expect_equal("histogram", {x}, {d}, [](const Tensors& t) {
          const auto [counts, edges] = at::histogram(t[0].detach(), 5);
          return Tensors{counts, edges};
        });
        expect_equal(
            "weights", {x, mixed(shape)}, {d, d}, [](const Tensors& t) {
              const auto [counts, edges] =
                  at::histogram(t[0].detach(), 4, std::nullopt, t[1].detach());
              return Tensors{counts, edges};
            });
      }
    }
  }
}

TEST(Histograms, CountsOfIntegersEqualThePlainOnes) {
  for (const int64_t size : {16, 7, 2}) {
    const at::Tensor x = at::arange(size).mul(5).remainder(11);
    expect_equal("bincount", {x}, {0}, [](const Tensors& t) {
      return Tensors{
          at::bincount(t[0]), at::bincount(t[0], {}, 20),
          at::bincount(t[0], t[0].to(at::kDouble) * 0.5),
          at::bincount(t[0], t[0].to(at::kFloat))};
    });
  }
  run_ranks(2, [] {
    const at::Tensor x =
        cut_of(at::tensor({3, 1, -1, 2}, i64()), mesh_of({2}), {Shard(0)});
    EXPECT_ERROR("non-negative", at::bincount(x));
  });
}

TEST(Histograms, SendTwoNumbersAndLeavePartialCounts) {
  run_ranks(4, [] {
    const auto mesh = mesh_of({4});
    const StrictMode strict({.communication = false, .gathers = true});
    const at::Tensor x = cut_of(mixed({64}), mesh, {Shard(0)});
    at::Tensor counts;
    // An all_reduce of two numbers among 4 ranks.
    const int64_t bytes = bytes_of([&] { return counts = at::histc(x, 9); });
    EXPECT_LE(bytes, 2 * 2 * 8);
    EXPECT_EQ(placements(counts), Placements{Partial()});
  });
}

TEST(Selections, EqualThePlainOnes) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{
           {16}, {7, 3}, {2, 5}, {1, 6, 2}, {3, 1}}) {
    for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
      for (const double above : {-100.0, 1.0, 1000.0}) {
        expect_equal("select", {mixed(shape)}, {d}, [&](const Tensors& x) {
          return Tensors{at::masked_select(x[0], x[0].detach().gt(above))};
        });
      }
    }
  }
}

TEST(Selections, StayOnTheirRanksAndSendTheirCounts) {
  run_ranks(4, [] {
    const auto mesh = mesh_of({4});
    const StrictMode strict({.communication = false, .gathers = true});
    const at::Tensor plain = distinct({8, 100}, f64());
    const at::Tensor x = cut_of(plain, mesh, {Shard(0)});
    at::Tensor chosen;
    // One number of each of 3 others.
    EXPECT_EQ(
        bytes_of([&] { return chosen = at::masked_select(x, x.gt(350.5)); }),
        3 * 8);
    EXPECT_TRUE(same(chosen, at::masked_select(plain, plain.gt(350.5))));
    EXPECT_TRUE(placements(chosen)[0].is_shard(0));
    // Only one mesh dim's lengths can differ.
    const at::Tensor y =
        cut_of(plain, mesh_of({2, 2}), {Shard(0), Replicate()});
    EXPECT_TRUE(same(
        at::masked_select(y, y.gt(7)), at::masked_select(plain, plain.gt(7))));
  });
}

}  // namespace
}  // namespace tessera
