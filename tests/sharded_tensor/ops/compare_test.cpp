// Comparison: one answer on all ranks, whatever the cuts.
#include <limits>

#include <sharded_tensor/ops/ops_placements.h>

namespace tessera::testing {
namespace {

using namespace sharded_tensor;  // NOLINT

ShardedTensor filled(
    double value, const ShardingSpec& spec,
    const ShardedTensorOptions& options = {}) {
  return full(spec, {10, 5}, value, options);
}

// What both comparisons say of tensors that differ in one thing.
template <class Compare>
void expect_specs(Compare same) {
  run_ranks(4, [&] {
    const auto spec = chunks(0, {0, 1, 2, 3});
    const auto t = filled(10, spec);
    EXPECT_FALSE(same(t, filled(11, spec)));
    EXPECT_FALSE(same(t, full(spec, {11, 5}, 10)));
    EXPECT_FALSE(same(t, filled(10, spec, {.dtype = at::kDouble})));
    EXPECT_TRUE(same(t, filled(10, chunks(0, {3, 2, 1, 0}))));
    EXPECT_TRUE(same(t, filled(10, chunks(1, {0, 1, 2, 3}))));
    EXPECT_TRUE(same(t, filled(10, spec, {.requires_grad = true})));
    ShardedTensorOptions options;
    options.process_group = ProcessGroup({0, 1, 2, 3});
    EXPECT_TRUE(same(t, filled(10, spec, options)));
    options.process_group = ProcessGroup({3, 2, 1, 0});
    EXPECT_THROWN(
        c10::Error, "must have the same group",
        same(t, filled(10, spec, options)));
  });
}

TEST(TestShardedTensorBinaryOps, test_torch_equal_tensor_specs) {
  expect_specs([](const auto& a, const auto& b) { return equal(a, b); });
}

TEST(TestShardedTensorBinaryOps, test_torch_allclose_tensor_specs) {
  expect_specs([](const auto& a, const auto& b) { return allclose(a, b); });
}

TEST(TestShardedTensorBinaryOps, test_torch_equal) {
  run_ranks(4, [] {
    const auto spec = chunks(0, {0, 1, 2, 3});
    EXPECT_TRUE(
        equal(cut(distinct({10, 5}), spec), cut(distinct({10, 5}), spec)));
  });
}

TEST(TestShardedTensorBinaryOps, test_torch_allclose) {
  run_ranks(4, [] {
    const auto spec = chunks(0, {0, 1, 2, 3});
    const auto a = filled(10, spec);
    const auto b = filled(10.5, spec);
    EXPECT_FALSE(allclose(a, b));
    EXPECT_TRUE(allclose(a, b, /*rtol=*/0, /*atol=*/0.6));
    EXPECT_FALSE(allclose(a, b, /*rtol=*/0, /*atol=*/0.4));
    EXPECT_TRUE(allclose(a, b, /*rtol=*/0.1, /*atol=*/0));
    EXPECT_THROWN(
        c10::ValueError, "tolerances must not be negative", allclose(a, b, -1));
  });
}

TEST(DefectD17, ComparesOnTheCpuAndAcrossCuts) {
  run_ranks(4, [] {
    const at::Tensor whole = distinct({6, 6});
    for (const Cut& one : all_cuts()) {
      for (const Cut& other : all_cuts()) {
        SCOPED_TRACE(one.name + " and " + other.name);
        const auto a = cut(whole, *one.spec);
        EXPECT_TRUE(equal(a, cut(whole, *other.spec)));
        EXPECT_TRUE(allclose(a, cut(whole + 1e-9, *other.spec)));
        // One element of one rank decides for all.
        at::Tensor changed = whole.clone();
        changed[5][5] += 1;
        EXPECT_FALSE(equal(a, cut(changed, *other.spec)));
        EXPECT_FALSE(allclose(a, cut(changed, *other.spec)));
      }
    }
  });
}

TEST(Comparison, NansAreEqualWhereAskedFor) {
  run_ranks(4, [] {
    at::Tensor whole = distinct({6, 6});
    whole[1][1] = std::numeric_limits<double>::quiet_NaN();
    const auto a = cut(whole, pinwheel());
    const auto b = cut(whole, grid(3, {0, 1, 2, 3}));
    EXPECT_FALSE(equal(a, b));
    EXPECT_FALSE(allclose(a, b));
    EXPECT_TRUE(allclose(a, b, 1e-5, 1e-8, /*equal_nan=*/true));
  });
}

TEST(Comparison, WorksInASubgroup) {
  run_ranks(4, [] {
    if (rank() == 0) {
      return;
    }
    const ProcessGroup group({3, 1, 2});
    const at::Tensor whole = distinct({5, 2});
    const auto a = cut(whole, chunks(0, {1, 2, 3}), group);
    EXPECT_TRUE(equal(a, cut(whole, chunks(1, {2, 3}), group)));
    EXPECT_FALSE(equal(a, cut(whole + 1, chunks(1, {2, 3}), group)));
  });
}

}  // namespace
}  // namespace tessera::testing
