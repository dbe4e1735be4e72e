// Initialisation, and tensors like others.
#include <sharded_tensor/ops/ops_placements.h>

namespace tessera::testing {
namespace {

using namespace sharded_tensor;  // NOLINT

// Local mode: each shard is what LibTorch makes of a clone with the same seed.
template <class Fill, class FillPlain>
void expect_local(Fill fill, FillPlain fill_plain) {
  run_ranks(4, [&] {
    const auto spec = chunks(0, {0, 1, 2, 3});
    const auto t = zeros(spec, {8, 3}, {.dtype = at::kDouble});
    one_at_a_time([&] {
      const at::Tensor copy = t.local_tensor().clone();
      at::manual_seed(42);
      EXPECT_EQ(
          fill(t, FillOptions{.mode = InitMode::kLocal}).hash(), t.hash());
      at::manual_seed(42);
      fill_plain(copy);
      EXPECT_TRUE(same(t.local_tensor(), copy));
    });
  });
}

// Global mode: whatever the cut, the values are those of the whole tensor.
template <class Fill, class FillPlain>
void expect_global(Fill fill, FillPlain fill_plain) {
  run_ranks(4, [&] {
    for (const Cut& how : all_cuts()) {
      SCOPED_TRACE(how.name);
      tessera::manual_seed(7);
      const auto t = zeros(
          *how.spec, {6, 6}, {.dtype = at::kDouble, .requires_grad = true});
      EXPECT_EQ(fill(t, FillOptions{}).hash(), t.hash());
      tessera::manual_seed(7);
      const at::Tensor whole = at::zeros({6, 6}, f64());
      {
        const ReplicatedRandom replicated;
        fill_plain(whole);
      }
      EXPECT_TRUE(shards_are(detach(t), whole));
      EXPECT_GT(whole.std().item<double>(), 0.01);
    }
  });
}

const auto kUniform = [](const ShardedTensor& t, const FillOptions& options) {
  return uniform_(t, 10, 20, options);
};
const auto kUniformPlain = [](const at::Tensor& t) { t.uniform_(10, 20); };
const auto kNormal = [](const ShardedTensor& t, const FillOptions& options) {
  return normal_(t, 10, 20, options);
};
const auto kNormalPlain = [](const at::Tensor& t) { t.normal_(10, 20); };
const auto kKaiming = [](const ShardedTensor& t, const FillOptions& options) {
  return kaiming_uniform_(t, 2, options);
};
const auto kKaimingPlain = [](const at::Tensor& t) {
  torch::nn::init::kaiming_uniform_(t, 2);
};

TEST(TestShardedTensorNNInit, test_init_sharded_tensor_with_uniform) {
  expect_local(kUniform, kUniformPlain);
}

TEST(TestShardedTensorNNInit, test_init_sharded_tensor_with_normal) {
  expect_local(kNormal, kNormalPlain);
}

TEST(TestShardedTensorNNInit, test_init_sharded_tensor_with_kaiming_uniform) {
  expect_local(kKaiming, kKaimingPlain);
}

TEST(DefectD18, ValuesDoNotDependOnTheCut) {
  expect_global(kUniform, kUniformPlain);
  expect_global(kNormal, kNormalPlain);
}

TEST(DefectD18, TheFanIsThatOfTheWholeTensor) {
  expect_global(kKaiming, kKaimingPlain);
  run_ranks(4, [] {
    // Columns are cut: 16 in all, 4 per rank, so the local bound is twice that.
    const auto spec = chunks(1, {0, 1, 2, 3});
    const auto t = zeros(spec, {200, 16}, {.dtype = at::kDouble});
    const double bound = std::sqrt(6.0 / 16);
    kaiming_uniform_(t);
    EXPECT_LE(t.local_tensor().abs().max().item<double>(), bound);
    EXPECT_GT(t.local_tensor().abs().max().item<double>(), 0.9 * bound);
    kaiming_uniform_(t, 0, {.mode = InitMode::kLocal});
    EXPECT_GT(t.local_tensor().abs().max().item<double>(), 1.8 * bound);
  });
}

TEST(Init, TakesAGenerator) {
  run_ranks(4, [] {
    const auto draw = [](const ShardingSpec& spec) {
      auto generator = at::make_generator<at::CPUGeneratorImpl>(123);
      const auto t = zeros(spec, {6, 6}, {.dtype = at::kDouble});
      uniform_(t, 0, 1, {.generator = generator});
      return t;
    };
    const auto a = draw(pinwheel());
    EXPECT_TRUE(equal(a, draw(chunks(0, {0, 1, 2, 3}))));
  });
}

TEST(Init, ConstantsFillAllShards) {
  run_ranks(4, [] {
    for (const Cut& how : all_cuts()) {
      SCOPED_TRACE(how.name);
      const auto t = empty(*how.spec, {6, 6}, {.requires_grad = true});
      EXPECT_EQ(constant_(t, 2.5).hash(), t.hash());
      EXPECT_TRUE(shards_are(t, at::full({6, 6}, 2.5, f32())));
      EXPECT_TRUE(t.requires_grad());
    }
  });
}

TEST(Init, ChecksItsArguments) {
  run_ranks(2, [] {
    const auto t = zeros(chunks(0, {0, 1}), {4});
    EXPECT_THROWN(
        c10::ValueError,
        "the lower bound must not exceed the upper; got 2 and 1",
        uniform_(t, 2, 1));
    EXPECT_THROWN(
        c10::ValueError, "the standard deviation must not be negative",
        normal_(t, 0, -1));
    EXPECT_THROWN(
        c10::ValueError, "the fan needs at least 2 dims", kaiming_uniform_(t));
    const auto integers = zeros(chunks(0, {0, 1}), {4}, {.dtype = at::kLong});
    EXPECT_THROWN(
        c10::ValueError, "the dtype must be floating point",
        uniform_(integers));
    const auto nothing = zeros(chunks(0, {0, 1}), {4, 0});
    EXPECT_EQ(kaiming_uniform_(nothing).hash(), nothing.hash());
  });
}

TEST(TestShardedTensorChunked, test_create_sharded_tensor_like) {
  run_ranks(4, [] {
    for (const Cut& how : all_cuts()) {
      SCOPED_TRACE(how.name);
      const auto t = cut(distinct({6, 6}), *how.spec);
      const LikeOptions options{.dtype = at::kFloat};
      EXPECT_TRUE(shards_are(zeros_like(t, options), at::zeros({6, 6}, f32())));
      EXPECT_TRUE(shards_are(ones_like(t, options), at::ones({6, 6}, f32())));
      EXPECT_TRUE(
          shards_are(full_like(t, 42, options), at::full({6, 6}, 42.0, f32())));
      const auto empty = empty_like(t, options);
      EXPECT_EQ(empty.dtype(), at::kFloat);
      EXPECT_EQ(empty.sizes(), t.sizes());
      EXPECT_EQ(empty.sharding_spec(), t.sharding_spec());
      tessera::manual_seed(3);
      const auto uniform = rand_like(t, options);
      const auto normal = randn_like(t, options);
      tessera::manual_seed(3);
      const auto whole = chunks(0, {0});
      EXPECT_TRUE(equal(uniform, rand(whole, {6, 6}, {.dtype = at::kFloat})));
      EXPECT_TRUE(equal(normal, randn(whole, {6, 6}, {.dtype = at::kFloat})));
    }
  });
}

TEST(DefectD19, LikeKeepsDtypeRequiresGradAndGroup) {
  run_ranks(4, [] {
    if (rank() == 3) {
      return;
    }
    ShardedTensorOptions options{.dtype = at::kDouble, .requires_grad = true};
    options.process_group = ProcessGroup({2, 0, 1});
    const auto t = zeros(chunks(0, {0, 1, 2}), {6, 2}, options);
    for (const auto& like :
         {empty_like(t), zeros_like(t), ones_like(t), full_like(t, 3),
          rand_like(t), randn_like(t)}) {
      EXPECT_EQ(like.dtype(), at::kDouble);
      EXPECT_TRUE(like.requires_grad());
      EXPECT_EQ(like.process_group(), t.process_group());
      EXPECT_EQ(like.sharding_spec(), t.sharding_spec());
    }
    EXPECT_FALSE(zeros_like(t, {.requires_grad = false}).requires_grad());
    EXPECT_FALSE(zeros_like(t, {.dtype = at::kLong}).requires_grad());
    const ProcessGroup other({0, 1, 2});
    EXPECT_EQ(zeros_like(t, {.process_group = other}).process_group(), other);
  });
}

}  // namespace
}  // namespace tessera::testing
