// Copies: what is new, what is shared, what requires a gradient.
#include <sharded_tensor/ops/ops_placements.h>

namespace tessera::testing {
namespace {

using namespace sharded_tensor;  // NOLINT

TEST(TestTensorOps, test_deep_copy) {
  run_ranks(4, [] {
    const at::Tensor whole = distinct({12, 5});
    const auto t = cut(whole, chunks(0, {0, 1, 2, 3}));
    const auto copy = clone(detach(t));
    EXPECT_NE(copy.hash(), t.hash());
    EXPECT_TRUE(equal(copy, t));
    add_(t, 1.0);
    EXPECT_TRUE(shards_are(copy, whole));
    EXPECT_EQ(copy.process_group(), t.process_group());
  });
}

TEST(TestTensorOps, test_inplace_copy) {
  run_ranks(4, [] {
    const auto spec = chunks(0, {0, 1, 2, 3});
    const auto t = cut(distinct({12, 5}), spec);
    const auto ones =
        sharded_tensor::ones(spec, {12, 5}, {.dtype = at::kDouble});
    EXPECT_FALSE(equal(t, ones));
    EXPECT_EQ(copy_(t, ones).hash(), t.hash());
    EXPECT_TRUE(equal(t, ones));

    const auto with_grad = requires_grad_(cut(distinct({12, 5}), spec));
    EXPECT_ERROR("in-place", copy_(with_grad, ones));
    const at::NoGradGuard no_grad;
    copy_(with_grad, ones);
    EXPECT_TRUE(equal(with_grad, ones));
    EXPECT_TRUE(with_grad.requires_grad());
  });
}

TEST(TestTensorOps, test_clone) {
  run_ranks(4, [] {
    for (const Cut& how : all_cuts()) {
      SCOPED_TRACE(how.name);
      const at::Tensor whole = leaf(distinct({6, 6}));
      const auto t = cut(whole, *how.spec);
      const auto copy = clone(t);
      EXPECT_NE(copy.hash(), t.hash());
      EXPECT_EQ(copy.sharding_spec(), t.sharding_spec());
      EXPECT_TRUE(shards_are(copy, whole));
      EXPECT_TRUE(copy.requires_grad());
      backward_of_shards(copy, distinct({6, 6}));
      EXPECT_TRUE(gradients_are(t, distinct({6, 6})));
    }
  });
}

TEST(TestTensorOps, test_detach) {
  run_ranks(4, [] {
    for (const Cut& how : all_cuts()) {
      SCOPED_TRACE(how.name);
      const auto t = cut(leaf(distinct({6, 6})), *how.spec);
      EXPECT_TRUE(t.requires_grad());
      const auto d = detach(t);
      EXPECT_FALSE(d.requires_grad());
      EXPECT_FALSE(d.metadata().tensor_properties.requires_grad);
      for (size_t i = 0; i < d.local_shards().size(); ++i) {
        EXPECT_FALSE(d.local_shards()[i].tensor.requires_grad());
        EXPECT_TRUE(
            d.local_shards()[i].tensor.is_alias_of(t.local_shards()[i].tensor));
      }
    }
  });
}

TEST(TestTensorOps, test_set_requires_grad) {
  run_ranks(4, [] {
    for (const Cut& how : all_cuts()) {
      SCOPED_TRACE(how.name);
      const auto t = cut(distinct({6, 6}), *how.spec);
      EXPECT_FALSE(t.requires_grad());
      EXPECT_EQ(requires_grad_(t).hash(), t.hash());
      EXPECT_TRUE(t.requires_grad());
      for (const auto& shard : t.local_shards()) {
        EXPECT_TRUE(shard.tensor.requires_grad());
      }
      // The ranks without shards record too.
      EXPECT_TRUE(mul(t, 2.0).requires_grad());
      EXPECT_FALSE(requires_grad_(t, false).requires_grad());
      EXPECT_FALSE(mul(t, 2.0).requires_grad());
    }
  });
}

TEST(RequiresGrad, ReachesTheTensorWithPlacements) {
  run_ranks(4, [] {
    const at::Tensor tensor =
        distribute_tensor(distinct({6, 6}), mesh_of({4}), {tessera::Shard(0)});
    const auto t = from_dtensor(tensor);
    requires_grad_(t);
    EXPECT_TRUE(tensor.requires_grad());
    backward_of_shards(mul(t, 3.0), distinct({6, 6}));
    EXPECT_TRUE(close(tensor.grad(), distinct({6, 6}) * 3));
  });
}

TEST(Copy, MovesTheShardsOfAnotherCut) {
  run_ranks(4, [] {
    for (const Cut& from : all_cuts()) {
      for (const Cut& to : all_cuts()) {
        SCOPED_TRACE(from.name + " to " + to.name);
        const at::Tensor whole = distinct({6, 6});
        const auto t = zeros(*to.spec, {6, 6}, {.dtype = at::kFloat});
        copy_(t, cut(whole, *from.spec));
        EXPECT_TRUE(shards_are(t, whole.to(at::kFloat)));
        EXPECT_EQ(t.sharding_spec(), *to.spec);
      }
    }
  });
}

TEST(Copy, PassesGradientsToTheSource) {
  run_ranks(4, [] {
    const auto from = cut(leaf(distinct({6, 6})), pinwheel());
    const auto t = zeros(grid(3, {0, 1, 2, 3}), {6, 6}, {.dtype = at::kDouble});
    copy_(t, from);
    EXPECT_TRUE(t.requires_grad());
    backward_of_shards(t, distinct({6, 6}));
    EXPECT_TRUE(gradients_are(from, distinct({6, 6})));
  });
}

TEST(Copy, IntoATensorWithPlacementsKeepsTheHistory) {
  run_ranks(4, [] {
    const auto from = cut(leaf(distinct({6, 6})), chunks(0, {0, 1, 2, 3}));
    const auto t = from_dtensor(distribute_tensor(
        at::zeros({6, 6}, f64()), mesh_of({4}), {tessera::Shard(0)}));
    copy_(t, from);
    backward_of_sum(softmax(t, 0), distinct({6, 6}));
    const at::Tensor whole = leaf(distinct({6, 6}));
    (whole.softmax(0) * distinct({6, 6})).sum().backward();
    EXPECT_TRUE(gradients_are(from, whole.grad()));
  });
}

TEST(Copy, NeedsEqualSizes) {
  run_ranks(2, [] {
    const auto spec = chunks(0, {0, 1});
    EXPECT_THROWN(
        c10::ValueError, "the sizes must be equal; got [4] and [5]",
        copy_(zeros(spec, {4}), zeros(spec, {5})));
  });
}

TEST(TypeAs, ReturnsTheTensorItselfWhereNothingChanges) {
  run_ranks(4, [] {
    for (const Cut& how : all_cuts()) {
      SCOPED_TRACE(how.name);
      const at::Tensor whole = distinct({6, 6});
      const auto t = cut(whole, *how.spec);
      EXPECT_EQ(type_as(t, at::ones({}, at::kDouble)).hash(), t.hash());
      const auto narrow = type_as(t, at::ones({}, at::kFloat));
      EXPECT_EQ(narrow.dtype(), at::kFloat);
      EXPECT_TRUE(shards_are(narrow, whole.to(at::kFloat)));
      EXPECT_EQ(type_as(t, narrow).dtype(), at::kFloat);
    }
    const auto t = zeros(chunks(0, {0, 1}), {4});
    EXPECT_THROWN(
        c10::ValueError, "the tensor is undefined", type_as(t, at::Tensor()));
  });
}

}  // namespace
}  // namespace tessera::testing
