// Hooks, retained graphs, accumulation, modes and undefined gradients: as on
// plain tensors, and in the leaf's placements.
#include "numeric_gradient.h"

#include <atomic>

#include <ATen/autocast_mode.h>

namespace tessera {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

const std::vector<const char*>& layouts() {
  static const std::vector<const char*> list = {"R",      "S(0)",   "S(1)",
                                                "P(sum)", "P(avg)", "SS(0,2)"};
  return list;
}

// Calls f(leaf, x) on two ranks for every layout of a leaf.
template <class F>
void for_each_leaf(F f) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    for (const char* text : layouts()) {
      SCOPED_TRACE(std::string(text) + ", rank " + std::to_string(rank()));
      const auto x = distinct({3, 4});
      f(leaf_of(x, mesh, parse_placements(text)), x);
    }
  });
}

// A loss whose gradient arrives in other placements than the leaf's.
at::Tensor moved_loss(const at::Tensor& leaf) {
  const Placement to = placements(leaf)[0].is_shard(1) ? Shard(0) : Shard(1);
  return loss_of(redistribute(leaf, {to}).mul(2).div(2));
}

at::Tensor expected(const at::Tensor& x) {
  return weights(x.sizes()) * x.cos();
}

::testing::AssertionResult placed_like(
    const at::Tensor& gradient, const at::Tensor& leaf) {
  if (is_dtensor(gradient) && placements(gradient) == placements(leaf)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure()
         << (is_dtensor(gradient) ? to_string(placements(gradient)) : "plain")
         << " for " << to_string(placements(leaf));
}

TEST(LeafGradient, AddsUpOverBackwardPasses) {
  for_each_leaf([](const at::Tensor& leaf, const at::Tensor& x) {
    moved_loss(leaf).backward();
    loss_of(leaf).backward();
    EXPECT_TRUE(placed_like(leaf.grad(), leaf));
    EXPECT_TRUE(close(leaf.grad(), expected(x) * 2));
    leaf.mutable_grad().reset();
    loss_of(leaf).backward();
    EXPECT_TRUE(placed_like(leaf.grad(), leaf));
    EXPECT_TRUE(close(leaf.grad(), expected(x)));
  });
}

TEST(LeafGradient, AddsUpOverUsesInOneGraph) {
  for_each_leaf([](const at::Tensor& leaf, const at::Tensor& x) {
    const auto plain_use = loss_of(full_tensor(leaf));
    const auto sharded_use = full_tensor(moved_loss(leaf) + loss_of(leaf));
    (plain_use + sharded_use).backward();
    EXPECT_TRUE(placed_like(leaf.grad(), leaf));
    EXPECT_TRUE(close(leaf.grad(), expected(x) * 3));
  });
}

TEST(LeafGradient, ComesAgainFromARetainedGraph) {
  for_each_leaf([](const at::Tensor& leaf, const at::Tensor& x) {
    const auto loss = moved_loss(leaf);
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    EXPECT_TRUE(placed_like(leaf.grad(), leaf));
    EXPECT_TRUE(close(leaf.grad(), expected(x) * 2));
    EXPECT_ERROR("second time", loss.backward());
  });
}

TEST(LeafGradient, FromGradHasTheLeafsPlacements) {
  for_each_leaf([](const at::Tensor& leaf, const at::Tensor& x) {
    const auto g = torch::autograd::grad({moved_loss(leaf)}, {leaf})[0];
    EXPECT_TRUE(placed_like(g, leaf));
    EXPECT_TRUE(close(g, expected(x)));
    EXPECT_FALSE(leaf.grad().defined());
  });
}

TEST(LeafGradient, OfAllOrdersHasTheLeafsPlacements) {
  for_each_leaf([](const at::Tensor& leaf, const at::Tensor& x) {
    const auto first =
        torch::autograd::grad({moved_loss(leaf)}, {leaf}, {}, true, true)[0];
    const auto second =
        torch::autograd::grad({first.sum()}, {leaf}, {}, true, true)[0];
    const auto third = torch::autograd::grad({second.sum()}, {leaf})[0];
    EXPECT_TRUE(placed_like(second, leaf));
    EXPECT_TRUE(placed_like(third, leaf));
    EXPECT_TRUE(close(second, -weights(x.sizes()) * x.sin()));
    EXPECT_TRUE(close(third, -weights(x.sizes()) * x.cos()));
  });
}

// What a hook sees and what it returns, wherever it was registered.
void check_hook(
    const at::Tensor& leaf, const at::Tensor& x, bool before, bool by_grad) {
  int calls = 0;
  const auto hook = [&](const at::Tensor& gradient) {
    ++calls;
    EXPECT_TRUE(placed_like(gradient, leaf));
    EXPECT_TRUE(close(gradient, expected(x)));
    return gradient * 3;
  };
  unsigned handle = 0;
  if (before) {
    handle = leaf.register_hook(hook);
  }
  const auto loss = moved_loss(leaf);
  if (!before) {
    handle = leaf.register_hook(hook);
  }
  at::Tensor gradient;
  if (by_grad) {
    gradient = torch::autograd::grad({loss}, {leaf})[0];
  } else {
    loss.backward();
    gradient = leaf.grad();
  }
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(placed_like(gradient, leaf));
  EXPECT_TRUE(close(gradient, expected(x) * 3));
  leaf.remove_hook(handle);
  const auto without = torch::autograd::grad({moved_loss(leaf)}, {leaf})[0];
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(close(without, expected(x)));
}

TEST(LeafHooks, SeeAndReturnGradientsInTheLeafsPlacements) {
  for (const bool before : {true, false}) {
    for (const bool by_grad : {true, false}) {
      for_each_leaf([&](const at::Tensor& leaf, const at::Tensor& x) {
        SCOPED_TRACE(
            std::string(before ? "before" : "after") + " forward, " +
            (by_grad ? "grad" : "backward"));
        check_hook(leaf, x, before, by_grad);
      });
    }
  }
}

TEST(LeafHooks, MayReturnOtherPlacements) {
  for_each_leaf([](const at::Tensor& leaf, const at::Tensor& x) {
    leaf.register_hook([](const at::Tensor& gradient) {
      return redistribute(gradient, {Shard(1)}) * 2;
    });
    const auto g = torch::autograd::grad({moved_loss(leaf)}, {leaf})[0];
    EXPECT_TRUE(placed_like(g, leaf));
    moved_loss(leaf).backward();
    EXPECT_TRUE(placed_like(leaf.grad(), leaf));
    EXPECT_TRUE(close(leaf.grad(), expected(x) * 2));
  });
}

// What Python's register_hook does: it replaces all hooks of the tensor.
TEST(LeafHooks, MayBeReplacedBetweenForwardAndBackward) {
  for_each_leaf([](const at::Tensor& leaf, const at::Tensor& x) {
    const auto loss = moved_loss(leaf);
    torch::autograd::impl::clear_hooks(leaf);
    const auto g =
        torch::autograd::grad({loss}, {leaf}, {}, /*retain_graph=*/true)[0];
    EXPECT_TRUE(placed_like(g, leaf));
    loss.backward();
    EXPECT_TRUE(placed_like(leaf.grad(), leaf));
    EXPECT_TRUE(close(leaf.grad(), expected(x)));
  });
}

// A hook of another kind, as Python's.
class OtherHook final : public torch::autograd::FunctionPreHook {
 public:
  explicit OtherHook(std::vector<at::Tensor>& seen) : seen_(seen) {}
  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients) override {
    seen_.push_back(gradients[0]);
    return {redistribute(gradients[0], {Shard(1)}) * 2};
  }

 private:
  std::vector<at::Tensor>& seen_;
};

void replace_hooks(const at::Tensor& leaf, std::vector<at::Tensor>& seen) {
  torch::autograd::impl::clear_hooks(leaf);
  torch::autograd::impl::add_hook(leaf, std::make_unique<OtherHook>(seen));
}

TEST(LeafHooks, OfOtherKindsMayReturnOtherPlacements) {
  for (const bool before : {true, false}) {
    for_each_leaf([&](const at::Tensor& leaf, const at::Tensor& x) {
      std::vector<at::Tensor> seen;
      if (before) {
        replace_hooks(leaf, seen);
      }
      const auto loss = moved_loss(leaf);
      if (!before) {
        replace_hooks(leaf, seen);
      }
      loss.backward();
      ASSERT_EQ(seen.size(), 1U);
      EXPECT_TRUE(!before || placed_like(seen[0], leaf));
      EXPECT_TRUE(placed_like(leaf.grad(), leaf));
      EXPECT_TRUE(close(leaf.grad(), expected(x) * 2));
      torch::autograd::impl::clear_hooks(leaf);
    });
  }
}

// A hook that uses its leaf again, while the engine runs the leaf's hooks.
class UsingHook final : public torch::autograd::FunctionPreHook {
 public:
  explicit UsingHook(const at::Tensor& leaf) : leaf_(leaf) {}
  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients) override {
    ++calls;
    return {gradients[0] + leaf_ * 0};
  }
  static inline std::atomic<int> calls = 0;

 private:
  const at::Tensor& leaf_;
};

TEST(LeafHooks, MayUseTheirLeaf) {
  for_each_leaf([](const at::Tensor& leaf, const at::Tensor& x) {
    const auto loss = moved_loss(leaf);
    torch::autograd::impl::clear_hooks(leaf);
    torch::autograd::impl::add_hook(leaf, std::make_unique<UsingHook>(leaf));
    const int before = UsingHook::calls;
    loss.backward();
    EXPECT_GT(UsingHook::calls, before);
    EXPECT_TRUE(placed_like(leaf.grad(), leaf));
    EXPECT_TRUE(close(leaf.grad(), expected(x)));
    torch::autograd::impl::clear_hooks(leaf);
  });
}

TEST(LeafHooks, MayBeAddedBehindOurs) {
  for_each_leaf([](const at::Tensor& leaf, const at::Tensor& x) {
    std::vector<at::Tensor> seen;
    const auto loss = moved_loss(leaf);
    torch::autograd::impl::hooks(leaf).push_back(
        std::make_unique<OtherHook>(seen));
    loss.backward();
    ASSERT_EQ(seen.size(), 1U);
    EXPECT_TRUE(placed_like(seen[0], leaf));
    EXPECT_TRUE(placed_like(leaf.grad(), leaf));
    EXPECT_TRUE(close(leaf.grad(), expected(x) * 2));
    torch::autograd::impl::clear_hooks(leaf);
  });
}

// C++ hooks that were there before the first call, beside ours.
TEST(LeafHooks, MayBeRemovedAndSetAgain) {
  for_each_leaf([](const at::Tensor& leaf, const at::Tensor& x) {
    const auto first = leaf.register_hook(
        [](const at::Tensor& g) { return redistribute(g, {Shard(1)}) * 2; });
    moved_loss(leaf).backward();
    leaf.remove_hook(first);
    moved_loss(leaf).backward();
    leaf.register_hook([](const at::Tensor& g) { return g * 7; });
    moved_loss(leaf).backward();
    EXPECT_TRUE(placed_like(leaf.grad(), leaf));
    EXPECT_TRUE(close(leaf.grad(), expected(x) * 10));
  });
}

TEST(LeafHooks, OfTwoUsersRunInTheirOrder) {
  for_each_leaf([](const at::Tensor& leaf, const at::Tensor& x) {
    leaf.register_hook([](const at::Tensor& g) { return g + 1; });
    const auto loss = moved_loss(leaf);
    leaf.register_hook([](const at::Tensor& g) { return g * 5; });
    loss.backward();
    EXPECT_TRUE(placed_like(leaf.grad(), leaf));
    EXPECT_TRUE(close(leaf.grad(), (expected(x) + 1) * 5));
  });
}

TEST(InnerGradient, IsRetainedWithThePlainValue) {
  for_each_leaf([](const at::Tensor& leaf, const at::Tensor& x) {
    const auto inner = redistribute(leaf, placements(leaf));
    inner.retain_grad();
    int calls = 0;
    inner.register_hook([&](const at::Tensor& g) {
      ++calls;
      return g * 2;
    });
    moved_loss(inner).backward();
    EXPECT_EQ(calls, 1);
    EXPECT_TRUE(is_dtensor(inner.grad()));
    EXPECT_TRUE(close(inner.grad(), expected(x) * 2));
    EXPECT_TRUE(close(leaf.grad(), expected(x) * 2));
    EXPECT_TRUE(placed_like(leaf.grad(), leaf));
  });
}

TEST(NoGrad, RecordsNothingInAnyConversion) {
  for_each_leaf([](const at::Tensor& leaf, const at::Tensor& x) {
    const auto check = [&] {
      const auto local = to_local(leaf);
      EXPECT_FALSE(local.requires_grad());
      EXPECT_FALSE(full_tensor(leaf).requires_grad());
      EXPECT_FALSE(redistribute(leaf, {Replicate()}).requires_grad());
      EXPECT_FALSE(from_local(
                       local, device_mesh(leaf), placements(leaf),
                       {.shape = x.sizes().vec()})
                       .requires_grad());
    };
    {
      c10::NoGradGuard no_grad;
      check();
    }
    {
      c10::InferenceMode inference;
      check();
      EXPECT_TRUE(close(moved_loss(leaf), loss_of(x)));
    }
    moved_loss(leaf).backward();
    EXPECT_TRUE(close(leaf.grad(), expected(x)));
  });
}

TEST(Detach, CutsTheGraph) {
  for_each_leaf([](const at::Tensor& leaf, const at::Tensor& x) {
    const auto cut = leaf.detach();
    EXPECT_FALSE(cut.requires_grad());
    EXPECT_TRUE(placed_like(cut, leaf));
    (loss_of(leaf) + loss_of(leaf * cut)).backward();
    const auto product = x * x;
    EXPECT_TRUE(close(
        leaf.grad(), expected(x) + weights(x.sizes()) * product.cos() * x));
    EXPECT_TRUE(placed_like(leaf.grad(), leaf));
  });
}

TEST(Autocast, GivesThePlainGradients) {
  for (const char* text : {"R", "S(0)", "S(1)", "P(sum)"}) {
    run_ranks(2, [&] {
      SCOPED_TRACE(text);
      const auto mesh = mesh_of({2});
      const auto type = device();
      const auto w = distinct({4, 4}, f32());
      const auto x = distinct({3, 4}, f32());
      const auto loss = [&](const at::Tensor& weight, const at::Tensor& in) {
        at::autocast::set_autocast_enabled(type, true);
        at::autocast::set_autocast_dtype(type, at::kBFloat16);
        const auto y = at::matmul(in, weight);
        EXPECT_EQ(y.scalar_type(), at::kBFloat16);
        const auto z = is_dtensor(y) ? redistribute(y, {Replicate()}) : y;
        at::autocast::set_autocast_enabled(type, false);
        at::autocast::clear_cache();
        return z.to(at::kFloat).sin().sum();
      };
      const auto p = w.clone().requires_grad_();
      loss(p, x).backward();
      const auto t =
          distribute_tensor(w, mesh, parse_placements(text)).requires_grad_();
      loss(t, replicate(x, mesh)).backward();
      EXPECT_EQ(t.grad().scalar_type(), at::kFloat);
      EXPECT_TRUE(placed_like(t.grad(), t));
      EXPECT_TRUE(same(t.grad(), p.grad()));
    });
  }
}

// Recomputes its forward in backward, as activation checkpointing does.
struct Recompute : torch::autograd::Function<Recompute> {
  static at::Tensor forward(
      torch::autograd::AutogradContext* context, const at::Tensor& t) {
    context->save_for_backward({t});
    return compute(t);
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      torch::autograd::variable_list gradients) {
    const auto again =
        context->get_saved_variables()[0].detach().requires_grad_();
    torch::AutoGradMode enable(true);
    compute(again).backward(gradients[0]);
    return {again.grad()};
  }
  static at::Tensor compute(const at::Tensor& t) {
    return redistribute(t, {Shard(1)}).sin();
  }
};

TEST(Checkpointing, RecomputesWithTheSameGradients) {
  for_each_leaf([](const at::Tensor& leaf, const at::Tensor& x) {
    const auto y = Recompute::apply(leaf);
    (y * replicate(weights(x.sizes()), device_mesh(leaf))).sum().backward();
    EXPECT_TRUE(placed_like(leaf.grad(), leaf));
    EXPECT_TRUE(close(leaf.grad(), expected(x)));
  });
}

TEST(UndefinedGradient, OfAnUnusedResultIsNone) {
  for_each_leaf([](const at::Tensor& leaf, const at::Tensor& x) {
    const auto other = leaf_of(x, device_mesh(leaf), placements(leaf));
    const auto unused = redistribute(other, {Replicate()});
    const auto got = torch::autograd::grad(
        {moved_loss(leaf)}, {leaf, unused, other}, {}, /*retain_graph=*/true,
        /*create_graph=*/false, /*allow_unused=*/true);
    EXPECT_TRUE(close(got[0], expected(x)));
    EXPECT_FALSE(got[1].defined());
    EXPECT_FALSE(got[2].defined());
  });
}

// A function of two results, of which only one gets a gradient.
struct Split : torch::autograd::Function<Split> {
  static torch::autograd::variable_list forward(
      torch::autograd::AutogradContext* context, const at::Tensor& a,
      const at::Tensor& b) {
    context->set_materialize_grads(false);
    return {a * 2, b * 3};
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext*,
      torch::autograd::variable_list gradients) {
    return {
        gradients[0].defined() ? gradients[0] * 2 : at::Tensor(),
        gradients[1].defined() ? gradients[1] * 3 : at::Tensor()};
  }
};

TEST(UndefinedGradient, PassesThroughEveryConversion) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto x = distinct({4});
    const auto t = leaf_of(x, mesh, {Shard(0)});
    const auto u = leaf_of(x, mesh, {Shard(0)});
    const auto local = distinct({2}).requires_grad_();
    const auto both = Split::apply(
        redistribute(t, {Replicate()}),
        redistribute(
            from_local(
                to_local(redistribute(u, {Shard(0)})) + local, mesh,
                {Shard(0)}),
            {Replicate()}));
    loss_of(both[0]).backward();
    EXPECT_TRUE(close(t.grad(), weights({4}) * x.mul(2).cos() * 2));
    EXPECT_FALSE(u.grad().defined());
    EXPECT_FALSE(local.grad().defined());
  });
}

TEST(OneOfTwoInputs, MayNeedNoGradient) {
  for_each_leaf([](const at::Tensor& leaf, const at::Tensor& x) {
    const auto fixed = leaf_of(x, device_mesh(leaf), {Shard(0)}).detach();
    const auto y = redistribute(fixed, placements(leaf));
    EXPECT_FALSE(y.requires_grad());
    loss_of(leaf * y).backward();
    EXPECT_TRUE(placed_like(leaf.grad(), leaf));
    EXPECT_FALSE(fixed.grad().defined());
    EXPECT_TRUE(close(leaf.grad(), weights(x.sizes()) * (x * x).cos() * x));
  });
}

TEST(RanksOutsideTheMesh, FollowTheBackwardPass) {
  run_ranks(3, [] {
    const auto mesh = mesh_of({2});
    const GradientCheck check;
    for (const char* text : {"R", "S(0)", "P(sum)", "P(avg)"}) {
      SCOPED_TRACE(std::string(text) + ", rank " + std::to_string(rank()));
      const auto p = parse_placements(text);
      const auto x = distinct({3, 2});
      const auto leaf = distribute_tensor(x, mesh, p).requires_grad_();
      const auto inner = from_local(
          to_local(leaf).mul(1.0), mesh, p, {.shape = x.sizes().vec()});
      loss_of(redistribute(inner, {Shard(1)})).backward();
      EXPECT_TRUE(placed_like(leaf.grad(), leaf));
      EXPECT_EQ(leaf.grad().sizes(), x.sizes());
      if (rank() < 2) {
        EXPECT_TRUE(close(leaf.grad(), expected(x)));
      }
    }
  });
}

TEST(ComplexGradient, IsThePlainOne) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto x = at::complex(distinct({3, 2}), weights({3, 2}));
    const auto w = at::complex(weights({3, 2}), direction({3, 2}));
    const auto p = x.clone().requires_grad_();
    at::abs(p * w).sum().backward();
    for (const char* text : {"R", "S(0)", "S(1)", "P(sum)", "P(avg)"}) {
      SCOPED_TRACE(text);
      const auto t =
          distribute_tensor(x, mesh, parse_placements(text)).requires_grad_();
      const auto again = from_local(
          to_local(t).mul(1.0), mesh, placements(t),
          {.shape = x.sizes().vec()});
      at::abs(redistribute(again, {Shard(0)}) * replicate(w, mesh))
          .sum()
          .backward();
      EXPECT_TRUE(placed_like(t.grad(), t));
      EXPECT_TRUE(close(t.grad(), p.grad()));
    }
  });
}

}  // namespace
}  // namespace tessera
