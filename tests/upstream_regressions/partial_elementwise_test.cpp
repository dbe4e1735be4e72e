// Wrong answers that another implementation of sharded tensors gave, one test
// each: partial values under operators that change or write single elements.
// Numbers are issues of github.com/pytorch/pytorch unless another repository is
// named; "measured" were found by running it.
#include <upstream_regressions/expect_plain.h>

namespace tessera {
namespace {

using testing::close;
using testing::counting;
using testing::cut;
using testing::distinct;
using testing::expect_plain;
using testing::f64;
using testing::i64;
using testing::mesh_of;
using testing::parts;
using testing::same;

TEST(KnownBugs, ANumberIsAddedToASumOnce) {  // 163193, 149768
  expect_plain(
      3, {3}, distinct({4, 3}), {"P(sum)", "P(avg)", "P(max)", "S(0)"},
      [](const at::Tensor& t) { return 1.5 - (t + 2.0).add(3, 2) - 1; });
  expect_plain(2, {2}, distinct({4, 3}), {"P(sum)"}, [](const at::Tensor& t) {
    return (t + 1e-6).reciprocal();
  });
}

TEST(KnownBugs, ASumTimesAnotherNumberIsAnotherResult) {  // 147180, 153603
  run_ranks(2, [&] {
    const auto t = cut(distinct({4, 3}), mesh_of({2}), "P(sum)");
    for (const double by : {2.0, 3.0, -1.0, 0.5, 2.0}) {
      EXPECT_TRUE(close(t * by, distinct({4, 3}) * by)) << by;
      EXPECT_TRUE(close(t / by, distinct({4, 3}) / by)) << by;
      EXPECT_TRUE(close(t.pow(by), distinct({4, 3}).pow(by))) << by;
    }
  });
}

TEST(KnownBugs, ClampInPlaceClampsTheSum) {  // 163374
  run_ranks(3, [&] {
    auto t = parts(mesh_of({3}), Partial(), [](int64_t r) {
      return counting({4}).add(static_cast<double>(r));
    });
    auto whole = counting({4}).mul(3).add(3);  // 3 6 9 12
    t.clamp_(std::nullopt, 7);
    EXPECT_TRUE(same(t, whole.clamp(std::nullopt, 7)));
    EXPECT_EQ(to_string(placements(t)), "P(sum)");
    EXPECT_TRUE(same(t.relu_(), whole.clamp(std::nullopt, 7)));
  });
}

TEST(KnownBugs, FillingASumFillsItsValue) {  // measured
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    for (const char* text : {"P(sum)", "P(avg)", "P(max)", "P(product)"}) {
      SCOPED_TRACE(text);
      const auto like = [&] { return cut(distinct({3, 2}), mesh, text); };
      EXPECT_TRUE(same(like().fill_(7), at::full({3, 2}, 7., f64())));
      EXPECT_TRUE(same(like().zero_(), at::zeros({3, 2}, f64())));
      EXPECT_TRUE(same(at::full_like(like(), 7), at::full({3, 2}, 7., f64())));
      EXPECT_TRUE(same(at::ones_like(like()), at::ones({3, 2}, f64())));
      auto t = like();
      t.select(0, 1).fill_(9);
      auto p = distinct({3, 2});
      p.select(0, 1).fill_(9);
      EXPECT_TRUE(close(t, p));
    }
  });
  expect_plain(
      2, {2}, distinct({4, 6}), {"P(sum)", "S(0)", "S(1)"},
      [](const at::Tensor& t) {
        const auto sign = at::ones_like(t.select(1, 0).detach());
        return at::cosine_embedding_loss(t, t.flip(1).detach(), sign) +
               at::cosine_embedding_loss(t, t.flip(1).detach(), -sign);
      });
}

TEST(KnownBugs, FillsOfPartsOfASumAreAddedOnce) {  // traps, 5
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto value = distinct({4, 3});
    const auto t = cut(value, mesh, "P(sum)");
    const auto index = at::tensor({2, 0}, i64());
    const auto rows = cut(index, mesh, "R");
    EXPECT_TRUE(close(t.index_fill(0, rows, 5), value.index_fill(0, index, 5)));
    EXPECT_TRUE(close(
        at::constant_pad_nd(t, {1, 1}, 3),
        at::constant_pad_nd(value, {1, 1}, 3)));
    EXPECT_TRUE(close(
        t.masked_fill(cut(value.gt(0.5), mesh, "R"), 4),
        value.masked_fill(value.gt(0.5), 4)));
    EXPECT_TRUE(close(
        t.scatter(0, rows.unsqueeze(1), 6),
        value.scatter(0, index.unsqueeze(1), 6)));
    EXPECT_TRUE(close(
        at::where(cut(value.gt(0.5), mesh, "R"), t, 4),
        at::where(value.gt(0.5), value, 4)));
  });
}

TEST(KnownBugs, ThresholdOfAMaximumIsThatOfTheWhole) {  // measured
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto low = at::tensor({-1.0, -2.0, 1.0, 3.0}, f64());
    const auto high = at::tensor({2.0, -1.0, 2.0, 4.0}, f64());
    for (const Placement& placement :
         {Partial(ReduceOp::kMax), Partial(ReduceOp::kMin)}) {
      const auto t = parts(
          mesh, placement, [&](int64_t r) { return r == 0 ? low : high; });
      const auto whole = full_tensor(t);
      EXPECT_TRUE(same(at::threshold(t, 0, 5), at::threshold(whole, 0, 5)));
      EXPECT_TRUE(same(at::threshold(t, 0, -5), at::threshold(whole, 0, -5)));
      EXPECT_TRUE(same(at::hardshrink(t, 1.5), at::hardshrink(whole, 1.5)));
      EXPECT_TRUE(close(t.mul(-2), whole.mul(-2)));
      EXPECT_TRUE(close(t.neg().exp(), whole.neg().exp()));
      EXPECT_TRUE(close(t.abs().sqrt(), whole.abs().sqrt()));
      EXPECT_TRUE(close(at::erfc(t), at::erfc(whole)));
    }
  });
}

TEST(KnownBugs, FourierTransformsReduceMaximaFirst) {  // measured
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    for (const Placement& placement :
         {Partial(ReduceOp::kMax), Partial(ReduceOp::kMin), Partial()}) {
      const auto t = parts(mesh, placement, [](int64_t r) {
        return distinct({3, 6}).mul(r == 0 ? 1 : -2);
      });
      const auto whole = full_tensor(t);
      EXPECT_TRUE(close(at::fft_fft(t), at::fft_fft(whole)));
      EXPECT_TRUE(close(at::fft_rfft(t), at::fft_rfft(whole)));
      EXPECT_TRUE(close(
          at::fft_irfft(at::fft_rfft(t)), at::fft_irfft(at::fft_rfft(whole))));
    }
  });
}

}  // namespace
}  // namespace tessera
