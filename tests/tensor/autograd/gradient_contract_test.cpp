// The contract of gradients: their placements, what grad_placements may say,
// and what is an error.
#include "numeric_gradient.h"

namespace tessera {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

// The gradient that arrives at `input`, with `given` as that of `output`.
at::Tensor arriving(
    const at::Tensor& output, const at::Tensor& input,
    const at::Tensor& given) {
  return torch::autograd::grad({output}, {input}, {given})[0];
}

// Not a leaf, so that its gradient is seen as it arrives.
at::Tensor inner_of(
    const at::Tensor& x, const DeviceMesh& mesh, const Placements& placements) {
  return redistribute(leaf_of(x, mesh, placements), placements);
}

void check_triple(
    const DeviceMesh& mesh, const Placements& from, const Placements& to,
    const Placements& given) {
  const auto x = distinct({3, 4});
  const auto inner = inner_of(x, mesh, from);
  const auto g = leaf_of(weights({3, 4}), mesh, given).detach();
  const auto got = arriving(redistribute(inner, to), inner, g);
  Placements want = from;
  for (size_t m = 0; m < want.size(); ++m) {
    if (want[m].is_partial() && !given[m].is_partial()) {
      want[m] = Replicate();
    }
  }
  EXPECT_EQ(placements(got), want);
  EXPECT_TRUE(close(got, weights({3, 4})));
}

TEST(RedistributeGradient, HasTheSourcesPlacementsOrReplicateForPartial) {
  for (const GradientCase& c :
       {GradientCase{{2}, {3, 4}}, GradientCase{{2, 2}, {3, 4}}}) {
    run_ranks(c.ranks(), [&] {
      const auto mesh = mesh_of(c.mesh);
      const auto list = all_placements(c);
      const size_t stride = c.mesh.size() == 1 || long_form() ? 1 : 3;
      for (const auto& from : list) {
        for (const auto& to : list) {
          for (size_t i = 0; i < list.size(); i += stride) {
            const auto& given = list[i];
            SCOPED_TRACE(
                to_string(from) + " -> " + to_string(to) + ", gradient " +
                to_string(given) + ", rank " + std::to_string(rank()));
            check_triple(mesh, from, to, given);
          }
        }
      }
    });
  }
}

TEST(ToLocalGradient, HasTheTensorsPlacementsOrReplicateForPartial) {
  for (const GradientCase& c : two_dim_cases()) {
    run_ranks(c.ranks(), [&] {
      const auto mesh = mesh_of(c.mesh);
      for (const Placements& p : placements_with_default(c)) {
        SCOPED_TRACE(to_string(p) + ", rank " + std::to_string(rank()));
        const auto inner = inner_of(distinct(c.shape), mesh, p);
        Placements want = p;
        double addends = 1;
        for (size_t m = 0; m < want.size(); ++m) {
          if (p[m].is_partial()) {
            want[m] = Replicate();
            addends *= p[m].reduce_op() == ReduceOp::kAvg ? 2 : 1;
          }
        }
        const auto shard = shard_of(weights(c.shape), mesh, want);
        const auto got = arriving(to_local(inner), inner, shard);
        EXPECT_EQ(placements(got), want);
        EXPECT_TRUE(close(got, weights(c.shape) * addends));
      }
    });
  }
}

TEST(ToLocalGradient, IsWhatGradPlacementsSay) {
  run_ranks(4, [] {
    const auto mesh = mesh_of({2, 2});
    for (const char* tensor : {"R S(0)", "P(sum) S(0)", "P(max) S(0)"}) {
      for (const char* gradient :
           {"R S(0)", "P(sum) S(0)", "P(avg) S(0)", "P(max) S(0)",
            "P(product) S(0)"}) {
        SCOPED_TRACE(std::string(tensor) + ", gradient " + gradient);
        const auto p = parse_placements(gradient);
        const auto inner =
            inner_of(distinct({3, 2}), mesh, parse_placements(tensor));
        const auto got = arriving(
            to_local(inner, {.grad_placements = p}), inner,
            shard_of(weights({3, 2}), mesh, p));
        EXPECT_EQ(placements(got), p);
        EXPECT_TRUE(close(got, weights({3, 2})));
      }
    }
  });
}

// Rank (a, b) weighs the value by 1 + a + 10 b; what differs along a mesh dim
// is an addend there.
TEST(FullTensorGradient, AddsWhatRanksDoDifferently) {
  run_ranks(4, [] {
    const auto mesh = mesh_of({2, 2});
    const double a = static_cast<double>(mesh.local_rank(0));
    const double b = static_cast<double>(mesh.local_rank(1));
    struct Row {
      const char* gradient;
      double mine;
      double total;
    };
    for (const Row& row :
         {Row{"P(sum) R", 1 + a, 3}, Row{"R P(sum)", 1 + 10 * b, 12},
          Row{"P(sum) P(sum)", 1 + a + 10 * b, 26}, Row{"P(avg) R", 1 + a, 1.5},
          Row{"R R", 7, 7}}) {
      for (const char* layout :
           {"R R", "S(0) S(1)", "P(sum) S(0)", "P(avg) P(avg)", "S(1) R",
            "P(max) R"}) {
        SCOPED_TRACE(std::string(row.gradient) + " for " + layout);
        const auto x = distinct({3, 2});
        const auto t = leaf_of(x, mesh, parse_placements(layout));
        const auto y =
            full_tensor(t, {.grad_placements = parse_placements(row.gradient)});
        (loss_of(y) * row.mine).backward();
        EXPECT_EQ(to_string(placements(t.grad())), layout);
        EXPECT_TRUE(close(t.grad(), weights({3, 2}) * x.cos() * row.total));
      }
    }
  });
}

TEST(FromLocalGradient, IsAShardOfGradPlacements) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    for (const char* layout : {"R", "P(sum)", "P(max)", "P(product)"}) {
      for (const char* gradient :
           {"R", "P(sum)", "P(avg)", "P(max)", "P(product)"}) {
        SCOPED_TRACE(std::string(layout) + ", gradient " + gradient);
        const auto p = parse_placements(gradient);
        const auto local = distinct({3}).requires_grad_();
        const auto t = from_local(
            local, mesh, parse_placements(layout), {.grad_placements = p});
        torch::autograd::backward({t}, {replicate(weights({3}), mesh)});
        const auto whole = from_local(local.grad(), mesh, p);
        EXPECT_TRUE(close(whole, weights({3})));
      }
    }
  });
}

TEST(FromLocalGradient, KeepsAPartialGradientWithoutCommunication) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto local = distinct({3}).requires_grad_();
    const auto t = from_local(
        local, mesh, {Replicate()}, {.grad_placements = Placements{Partial()}});
    const auto addend = weights({3}) * static_cast<double>(rank() + 1);
    torch::autograd::backward({t}, {from_local(addend, mesh, {Partial()})});
    EXPECT_TRUE(same(local.grad(), addend));
  });
}

TEST(GradPlacements, ThatCannotBeAreErrorsBeforeAnythingMoves) {
  run_ranks(3, [] {
    const auto mesh = mesh_of({3});
    const auto r = leaf_of(distinct({5, 2}), mesh, {Replicate()});
    const auto s = leaf_of(distinct({5, 2}), mesh, {Shard(0)});
    const auto on = [](const at::Tensor& t, const char* text) {
      return to_local(t, {.grad_placements = parse_placements(text)});
    };
    constexpr const char* kShape = "the gradient of a local tensor has its";
    EXPECT_ERROR(kShape, on(r, "S(0)"));
    EXPECT_ERROR(kShape, on(s, "R"));
    EXPECT_ERROR(kShape, on(s, "P(sum)"));
    EXPECT_ERROR(kShape, on(s, "S(1)"));
    EXPECT_ERROR(kShape, on(s, "RS(0,[2,2,1])"));
    EXPECT_ERROR("repeat S(0) there", on(s, "SS(0,2)"));
    EXPECT_ERROR("placement", on(s, "S(0) R"));
    EXPECT_ERROR("S(2)", on(r, "S(2)"));
    EXPECT_ERROR(
        kShape, full_tensor(s, {.grad_placements = Placements{Shard(0)}}));
    EXPECT_ERROR(
        kShape, from_local(
                    distinct({2}), mesh, {Shard(0)},
                    {.grad_placements = Placements{Replicate()}}));
    EXPECT_ERROR(
        "placement", from_local(
                         distinct({2}), mesh, {Shard(0)},
                         {.grad_placements = Placements{Shard(0), Shard(0)}}));
    // One rank alone hears of it too: nothing was sent.
    if (rank() == 1) {
      EXPECT_ERROR(kShape, on(r, "S(0)"));
    }
    EXPECT_EQ(error_of([&] { on(s, "S(-2)"); }), "");  // the same cut
  });
}

TEST(GradPlacements, MayCutAMeshDimOfOne) {
  run_ranks(1, [] {
    const auto mesh = mesh_of({1});
    const auto t = leaf_of(distinct({3}), mesh, {Replicate()});
    loss_of(to_local(t, {.grad_placements = Placements{Shard(0)}})).backward();
    EXPECT_TRUE(close(t.grad(), weights({3}) * distinct({3}).cos()));
  });
}

TEST(GradPlacements, MustBeGivenForAddendsThatDependOnEachOther) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    for (const char* text : {"P(max)", "P(min)", "P(product)"}) {
      SCOPED_TRACE(text);
      const auto p = parse_placements(text);
      const auto t = leaf_of(distinct({3}), mesh, p);
      EXPECT_ERROR(
          "backward of to_local(f64[3] " + std::string(text),
          to_local(t).sum().backward());
      const auto local = distinct({3}).requires_grad_();
      EXPECT_ERROR(
          "depends on the other addends",
          from_local(local, mesh, p).sum().backward());
      // Without a gradient there is nothing to say.
      EXPECT_FALSE(to_local(t.detach()).requires_grad());
    }
  });
}

// Of two copies the larger counts: its addend has the whole gradient.
TEST(GradPlacements, SayWhatTheGradientsOfAMaximumAre) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto t = leaf_of(distinct({4}), mesh, {Partial(ReduceOp::kMax)});
    const auto local = to_local(t, {.grad_placements = Placements{Partial()}});
    const at::Tensor winner =
        from_local(local.detach(), mesh, {Partial(ReduceOp::kMax)});
    const auto mine = local.detach().eq(full_tensor(winner));
    (weights({4}) * local * mine).sum().backward();
    EXPECT_TRUE(close(t.grad(), weights({4})));
    EXPECT_EQ(to_string(placements(t.grad())), "P(max)");
  });
}

}  // namespace
}  // namespace tessera
