// Elementwise operators on every kind of cut, with gradients.
#include <limits>

#include <sharded_tensor/ops/ops_placements.h>

namespace tessera::testing {
namespace {

using namespace sharded_tensor;  // NOLINT

using Unary = std::function<ShardedTensor(const ShardedTensor&)>;
using Plain = std::function<at::Tensor(const at::Tensor&)>;

// Values and gradients of f(t) on all cuts are those of the whole tensor.
void expect_unary(const Unary& f, const Plain& plain) {
  run_ranks(4, [&] {
    for (const Cut& how : all_cuts()) {
      SCOPED_TRACE(how.name);
      const at::Tensor whole = leaf(distinct({6, 6}));
      const auto t = cut(whole, *how.spec);
      const auto result = f(t);
      const at::Tensor want = plain(whole);
      EXPECT_TRUE(shards_are_close(result, want));
      EXPECT_EQ(result.sharding_spec(), t.sharding_spec());
      EXPECT_EQ(result.dtype(), want.scalar_type());
      EXPECT_TRUE(result.requires_grad());
      (want * distinct({6, 6})).sum().backward();
      backward_of_shards(result, distinct({6, 6}));
      EXPECT_TRUE(gradients_are(t, whole.grad()));
    }
  });
}

TEST(Arithmetic, WorksWithNumbersOnAnyCut) {
  expect_unary(
      [](const auto& t) { return t + 2.5; },
      [](const auto& t) { return t + 2.5; });
  expect_unary(
      [](const auto& t) { return t - 2; }, [](const auto& t) { return t - 2; });
  expect_unary(
      [](const auto& t) { return t * -1.5; },
      [](const auto& t) { return t * -1.5; });
  expect_unary(
      [](const auto& t) { return t / 3.0; },
      [](const auto& t) { return t / 3.0; });
}

TEST(Arithmetic, TakesANumberFirst) {
  expect_unary(
      [](const auto& t) { return add(2.5, t); },
      [](const auto& t) { return 2.5 + t; });
  expect_unary(
      [](const auto& t) { return sub(2, t); },
      [](const auto& t) { return 2 - t; });
  expect_unary(
      [](const auto& t) { return mul(-1.5, t); },
      [](const auto& t) { return -1.5 * t; });
  expect_unary(
      [](const auto& t) { return div(3.0, t); },
      [](const auto& t) { return 3.0 / t; });
}

TEST(Arithmetic, NumbersKeepTheDtype) {
  run_ranks(2, [] {
    const auto t = ones(chunks(0, {0, 1}), {4}, {.dtype = at::kHalf});
    EXPECT_EQ(add(t, 1.5).dtype(), at::kHalf);
    EXPECT_EQ(sub(1.5, t).dtype(), at::kHalf);
    EXPECT_EQ(add(t, at::ones({}, at::kDouble)).dtype(), at::kHalf);
    EXPECT_EQ(add(t, at::ones({4}, f64())).dtype(), at::kDouble);
  });
}

TEST(Arithmetic, ActivationsWorkOnAnyCut) {
  expect_unary(
      [](const auto& t) { return gelu(t); },
      [](const auto& t) { return at::gelu(t); });
  expect_unary(
      [](const auto& t) { return relu(t); },
      [](const auto& t) { return at::relu(t); });
  expect_unary(
      [](const auto& t) { return sharded_tensor::tanh(t); },
      [](const auto& t) { return at::tanh(t); });
  expect_unary(
      [](const auto& t) {
        return dispatch_one("aten::clamp_min", {t, 0.3});
      },
      [](const auto& t) { return at::clamp_min(t, 0.3); });
}

TEST(Arithmetic, ReplacesNans) {
  run_ranks(4, [] {
    at::Tensor whole = distinct({6, 6});
    whole[3][3] = std::numeric_limits<double>::quiet_NaN();
    whole[0][5] = std::numeric_limits<double>::infinity();
    for (const Cut& how : all_cuts()) {
      SCOPED_TRACE(how.name);
      EXPECT_TRUE(
          shards_are(nan_to_num(cut(whole, *how.spec)), whole.nan_to_num()));
    }
  });
}

TEST(Arithmetic, WorksWithPlainTensorsThatBroadcast) {
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{6, 6}, {6}, {6, 1}, {1, 6}, {}}) {
    run_ranks(4, [&] {
      for (const Cut& how : all_cuts()) {
        SCOPED_TRACE(how.name + " with " + ::testing::PrintToString(sizes));
        const at::Tensor whole = leaf(distinct({6, 6}));
        const auto t = cut(whole, *how.spec);
        const at::Tensor b = leaf(distinct(sizes) + 2);
        const at::Tensor other = leaf(b);
        const auto result = div(other, mul(t, t) + 1.0);
        const at::Tensor want = b / (whole * whole + 1.0);
        EXPECT_TRUE(shards_are_close(result, want));
        (want * distinct({6, 6})).sum().backward();
        // Every rank takes part, those without shards too.
        backward_of_sum(
            result.resharded(chunks(0, {0, 1, 2, 3})), distinct({6, 6}));
        EXPECT_TRUE(gradients_are(t, whole.grad()));
        EXPECT_TRUE(close(other.grad(), b.grad()));
      }
    });
  }
}

TEST(Arithmetic, WorksWithTensorsCutAlike) {
  run_ranks(4, [] {
    for (const Cut& how : all_cuts()) {
      SCOPED_TRACE(how.name);
      const at::Tensor a = leaf(distinct({6, 6}));
      const at::Tensor b = leaf(distinct({6, 6}).cos() + 3);
      const auto x = cut(a, *how.spec);
      const auto y = cut(b, *how.spec);
      const auto result = (x + y) * (x - y) / y;
      const at::Tensor want = (a + b) * (a - b) / b;
      EXPECT_TRUE(shards_are_close(result, want));
      (want * distinct({6, 6})).sum().backward();
      backward_of_shards(result, distinct({6, 6}));
      EXPECT_TRUE(gradients_are(x, a.grad()));
      EXPECT_TRUE(gradients_are(y, b.grad()));
    }
  });
}

TEST(Arithmetic, SpecsMayListTheirBoxesInAnyOrder) {
  run_ranks(4, [] {
    auto boxes = pinwheel().shards();
    std::reverse(boxes.begin(), boxes.end());
    const at::Tensor whole = distinct({6, 6});
    const auto x = cut(whole, pinwheel());
    const auto y = cut(whole.cos(), EnumerableShardingSpec(boxes));
    EXPECT_TRUE(shards_are(x - y, whole - whole.cos()));
    EXPECT_TRUE(shards_are(sub_(x, y), whole - whole.cos()));
  });
}

TEST(Arithmetic, BroadcastsBetweenShardedTensorsOnOneMesh) {
  run_ranks(4, [] {
    const at::Tensor a = leaf(distinct({6, 8}));
    const at::Tensor b = leaf(distinct({8}) + 2);
    const auto x = cut(a, chunks(0, {0, 1, 2, 3}));
    const auto y = cut(b, chunks(0, {0, 1, 2, 3}));
    const auto result = mul(x, y);
    EXPECT_TRUE(shards_are_close(result, a * b));
    (a * b * distinct({6, 8})).sum().backward();
    backward_of_sum(result, distinct({6, 8}));
    EXPECT_TRUE(gradients_are(x, a.grad()));
    EXPECT_TRUE(gradients_are(y, b.grad()));
  });
}

TEST(Arithmetic, TensorsOfOneMeshNeedNotBeCutAlike) {
  run_ranks(4, [] {
    const at::Tensor a = distinct({6, 6});
    const auto x = cut(a, chunks(0, {0, 1, 2, 3}));
    const auto y = cut(a.cos(), chunks(1, {0, 1, 2, 3}));
    const auto result = add(x, y);
    EXPECT_TRUE(shards_are_close(result, a + a.cos()));
    EXPECT_EQ(result.sharding_spec(), x.sharding_spec());
  });
}

TEST(Arithmetic, InPlaceFormsWriteTheShards) {
  run_ranks(4, [] {
    for (const Cut& how : all_cuts()) {
      SCOPED_TRACE(how.name);
      const at::Tensor a = distinct({6, 6});
      const at::Tensor row = distinct({6}) + 2;
      const auto t = cut(a, *how.spec);
      const auto before = t.local_shards();
      EXPECT_EQ(add_(t, 1.5).hash(), t.hash());
      sub_(t, cut(a.cos(), *how.spec));
      mul_(t, row);
      div_(t, 3.0);
      EXPECT_TRUE(shards_are_close(t, (a + 1.5 - a.cos()) * row / 3));
      for (size_t i = 0; i < before.size(); ++i) {
        EXPECT_TRUE(before[i].tensor.is_alias_of(t.local_shards()[i].tensor));
      }
    }
  });
}

TEST(Arithmetic, InPlaceFormsRecordHistory) {
  run_ranks(4, [] {
    for (const Cut& how : all_cuts()) {
      SCOPED_TRACE(how.name);
      const at::Tensor whole = leaf(distinct({6, 6}));
      const auto t = cut(whole, *how.spec);
      EXPECT_ERROR("must not be written", add_(t, 1.0));
      const auto result = clone(t);
      mul_(result, t);
      backward_of_shards(result, distinct({6, 6}));
      (whole * whole * distinct({6, 6})).sum().backward();
      EXPECT_TRUE(gradients_are(t, whole.grad()));
    }
  });
}

TEST(Arithmetic, FillsWhereAMaskSays) {
  run_ranks(4, [] {
    const at::Tensor mask = distinct({6, 6}).gt(0.2);
    for (const Cut& how : all_cuts()) {
      SCOPED_TRACE(how.name);
      const at::Tensor whole = leaf(distinct({6, 6}));
      const auto t = cut(whole, *how.spec);
      EXPECT_TRUE(shards_are(
          masked_fill(t, mask, -1.0), whole.masked_fill(mask, -1.0)));
      EXPECT_TRUE(shards_are(
          masked_fill(t, mask[0], 7), whole.masked_fill(mask[0], 7)));
      const auto result = masked_fill(t, cut(mask, *how.spec), 0.5);
      EXPECT_TRUE(shards_are(result, whole.masked_fill(mask, 0.5)));
      backward_of_shards(result, distinct({6, 6}));
      EXPECT_TRUE(gradients_are(t, distinct({6, 6}).masked_fill(mask, 0)));
    }
  });
}

TEST(Dropout, ItsMaskDoesNotDependOnTheCut) {
  run_ranks(4, [] {
    const at::Tensor whole = at::ones({6, 6}, f64());
    tessera::manual_seed(11);
    const auto first = dropout(cut(whole, pinwheel()), 0.25);
    const at::Tensor kept = whole_value(first);
    const int64_t zeros = kept.eq(0).sum().item<int64_t>();
    EXPECT_GT(zeros, 0);
    EXPECT_EQ(kept.eq(4.0 / 3).sum().item<int64_t>(), 36 - zeros);
    for (const Cut& how : all_cuts()) {
      SCOPED_TRACE(how.name);
      tessera::manual_seed(11);
      const auto t = cut(leaf(whole), *how.spec);
      const auto result = dropout(t, 0.25);
      EXPECT_TRUE(shards_are(result, kept));
      // All ranks have drawn alike, with shards or without.
      EXPECT_EQ(random_state().operations, 1);
      backward_of_shards(result, distinct({6, 6}));
      EXPECT_TRUE(gradients_are(t, kept * distinct({6, 6})));
    }
  });
}

TEST(Dropout, DoesNothingOutsideOfTraining) {
  run_ranks(2, [] {
    const auto t = cut(distinct({4}), chunks(0, {0, 1}));
    EXPECT_EQ(dropout(t, 0.5, false).hash(), t.hash());
    EXPECT_EQ(dropout(t, 0).hash(), t.hash());
    EXPECT_TRUE(shards_are(dropout(t, 1), at::zeros({4}, f64())));
    EXPECT_THROWN(
        c10::ValueError, "the probability must be from 0 to 1; got 1.5",
        dropout(t, 1.5));
  });
}

}  // namespace
}  // namespace tessera::testing
