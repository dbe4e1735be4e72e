// Losses of cut scores and targets equal the plain ones and send only what is
// small.
#include <tensor/decompositions/along_cut_dims.h>

#include <functional>

namespace tessera {
namespace {

using testing::bytes_of;
using testing::close;
using testing::counting;
using testing::cut_of;
using testing::distinct;
using testing::expect_equal;
using testing::f32;
using testing::i64;
using testing::mesh_of;
using testing::shapes;
using testing::Tensors;

TEST(LossDecomposition, EqualsThePlainOperatorForwardAndBackward) {
  using Loss =
      std::function<at::Tensor(const at::Tensor&, const at::Tensor&, int64_t)>;
  const std::vector<std::pair<const char*, Loss>> losses = {
      {"mse_loss",
       [](auto& x, auto& y, auto r) { return at::mse_loss(x, y, r); }},
      {"smooth_l1_loss",
       [](auto& x, auto& y, auto r) {
         return at::smooth_l1_loss(x, y, r, 0.7);
       }},
      {"huber_loss",
       [](auto& x, auto& y, auto r) { return at::huber_loss(x, y, r, 0.7); }},
      {"l1_loss",
       [](auto& x, auto& y, auto r) { return at::l1_loss(x, y, r); }},
      {"soft_margin_loss",
       [](auto& x, auto& y, auto r) {
         return at::soft_margin_loss(x, y.sign().detach(), r);
       }},
      {"kl_div",
       [](auto& x, auto& y, auto r) { return at::kl_div(x, y.sigmoid(), r); }},
      {"binary_cross_entropy",
       [](auto& x, auto& y, auto r) {
         return at::binary_cross_entropy(
             x.sigmoid(), y.sigmoid().detach(), {}, r);
       }},
      {"binary_cross_entropy, weighted",
       [](auto& x, auto& y, auto r) {
         return at::binary_cross_entropy(
             x.sigmoid(), y.sigmoid().detach(), y.detach().abs(), r);
       }},
      {"binary_cross_entropy_with_logits",
       [](auto& x, auto& y, auto r) {
         return at::binary_cross_entropy_with_logits(
             x, y.sigmoid().detach(), {}, {}, r);
       }},
  };
  for (const auto& [name, loss] : losses) {
    for (const auto& shape : shapes()) {
      for (const int64_t target : {1, -1}) {
        expect_equal(
            name, {distinct(shape), distinct(shape).mul(0.5)}, {1, target},
            [&, loss = loss](const Tensors& x) {
              return Tensors{loss(x[0], x[1], at::Reduction::Mean)};
            });
      }
    }
  }
}

TEST(LossDecomposition, IsAnAddendAndDoesNotOverflow) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto x =
        cut_of(at::full({100000}, 2, f32().dtype(at::kHalf)), mesh, {Shard(0)});
    const auto y = cut_of(
        at::zeros({100000}, f32().dtype(at::kHalf)), mesh, {Replicate()});
    at::Tensor loss;
    EXPECT_EQ(bytes_of([&] { return loss = at::mse_loss(x, y); }), 0);
    EXPECT_EQ(placements(loss), Placements{Partial()});
    EXPECT_EQ(full_tensor(loss).item<double>(), 4.0);
    // a target that is cut and one number that is not
    const auto one = cut_of(at::ones({}, f32()), mesh, {Replicate()});
    const auto many = cut_of(counting({6}, f32()), mesh, {Shard(0)});
    EXPECT_TRUE(close(
        at::mse_loss(many, one.expand({6})),
        at::mse_loss(counting({6}, f32()), at::ones({6}, f32())), 1e-5));
  });
}

at::Tensor targets_of(at::IntArrayRef shape, int64_t classes) {
  return counting(shape, i64()).mul(5).add(1).remainder(classes);
}

TEST(NllDecomposition, EqualsThePlainOperatorForwardAndBackward) {
  struct Shapes {
    std::vector<int64_t> scores, targets;
  };
  const std::vector<Shapes> all = {
      {{5, 8}, {5}},
      {{4, 7}, {4}},
      {{3, 2}, {3}},
      {{6}, {}},
      {{2, 5, 3, 2}, {2, 3, 2}}};
  for (const Shapes& s : all) {
    const int64_t classes = s.scores.size() == 1 ? s.scores[0] : s.scores[1];
    for (const int64_t reduction : {0, 1, 2}) {
      for (const int64_t cut : {0, 1, 2}) {
        if (cut >= static_cast<int64_t>(s.scores.size())) {
          continue;
        }
        for (const bool weighted : {false, true}) {
          const int64_t target = cut == 0 && !s.targets.empty() ? 0 : -1;
          expect_equal(
              "nll_loss",
              {distinct(s.scores), targets_of(s.targets, classes),
               distinct({classes}).abs().add(0.1)},
              {cut, target, -1}, [&](const Tensors& x) {
                const std::optional<at::Tensor> w =
                    weighted ? std::optional<at::Tensor>(x[2].detach())
                             : std::nullopt;
                // class 1 does not count
                return Tensors{at::nll_loss_nd(x[0], x[1], w, reduction, 1)};
              });
        }
      }
    }
  }
}

TEST(NllDecomposition, CrossEntropyOfCutClassesSendsNoScores) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    auto x = cut_of(distinct({8, 4000}, f32()), mesh, {Shard(1)});
    x.set_requires_grad(true);
    const auto t = cut_of(targets_of({8}, 4000), mesh, {Replicate()});
    at::Tensor loss;
    // log_softmax 96, sum and weight 16
    EXPECT_EQ(
        bytes_of([&] { return loss = at::cross_entropy_loss(x, t); }), 112);
    EXPECT_EQ(placements(loss), Placements{Replicate()});
    // the sum of log_softmax's gradient
    EXPECT_EQ(
        bytes_of([&] {
          loss.backward();
          return 0;
        }),
        48);
    EXPECT_EQ(placements(x.grad()), Placements{Shard(1)});
  });
}

TEST(NllDecomposition, RefusesTargetsOutsideTheClasses) {
  EXPECT_ERROR("targets must be in [0, 8); got 8", run_ranks(2, [&] {
                 const auto mesh = mesh_of({2});
                 const auto x = cut_of(distinct({3, 8}), mesh, {Shard(1)});
                 const auto t =
                     cut_of(at::full({3}, 8, i64()), mesh, {Replicate()});
                 at::nll_loss(x, t);
               }));
}

TEST(NllDecomposition, IsNaNWhereNothingCounts) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto x = cut_of(distinct({3, 8}), mesh, {Shard(1)});
    const auto t = cut_of(at::full({3}, -100, i64()), mesh, {Replicate()});
    EXPECT_TRUE(std::isnan(at::nll_loss(x, t).item<double>()));
  });
}

}  // namespace
}  // namespace tessera
