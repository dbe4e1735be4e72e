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
    EXPECT_EQ(
        bytes_of([&] {
          loss.backward();
          return 0;
        }),
        0);
    EXPECT_EQ(placements(x.grad()), Placements{Shard(1)});
  });
}

// Logits of each number of dims, and targets of which one is ignored.
struct EntropyShapes {
  std::vector<int64_t> logits, targets;
};
const std::vector<EntropyShapes>& entropy_shapes() {
  static const std::vector<EntropyShapes> all = {
      {{5, 7}, {5}},
      {{4, 3}, {4}},
      {{2, 5, 3}, {2, 3}},
      {{3, 5, 2, 2}, {3, 2, 2}},
      {{2, 5, 2, 1, 3}, {2, 2, 1, 3}}};
  return all;
}

// One form of cross entropy, as a number whose gradient differs by target.
struct EntropyForm {
  int64_t reduction;
  bool weighted;
  double smoothing;

  at::Tensor operator()(
      const at::Tensor& x, const at::Tensor& t, const at::Tensor& w) const {
    const at::Tensor loss = at::cross_entropy_loss(
        x, t, weighted ? std::optional(w) : std::nullopt, reduction,
        /*ignore_index=*/1, smoothing);
    if (loss.dim() == 0) {
      return loss * 1.5;
    }
    at::Tensor weights = distinct(loss.sizes());
    if (is_dtensor(loss)) {
      weights = cut_of(
          weights, device_mesh(loss),
          Placements(placements(loss).size(), Replicate()));
    }
    return (loss * weights).sum();
  }
};
std::vector<EntropyForm> entropy_forms() {
  std::vector<EntropyForm> all;
  for (const int64_t reduction : {0, 1, 2}) {
    for (const bool weighted : {false, true}) {
      for (const double smoothing : {0.0, 0.3}) {
        all.push_back({reduction, weighted, smoothing});
      }
    }
  }
  return all;
}

TEST(CrossEntropy, OfCutClassesCommunicatesNothingInBackward) {
  for (const EntropyShapes& s : entropy_shapes()) {
    const int64_t classes = s.logits[1];
    const at::Tensor data = distinct(s.logits).mul(3);
    const at::Tensor targets = targets_of(s.targets, classes);
    const at::Tensor weight = distinct({classes}).abs().add(0.1);
    for (const char* where :
         {"R S(1)", "S(0) S(1)", "S(1) S(1)", "S(1) S(0)"}) {
      run_ranks(4, [&] {
        const auto mesh = mesh_of({2, 2});
        const Placements cut = parse_placements(where);
        Placements rows = cut;
        for (Placement& p : rows) {
          p = p.is_shard(1) ? Replicate() : p;
        }
        const Placements whole{Replicate(), Replicate()};
        const at::Tensor t = cut_of(targets, mesh, rows);
        const at::Tensor w = cut_of(weight, mesh, whole);
        for (const EntropyForm& form : entropy_forms()) {
          SCOPED_TRACE(c10::str(
              s.logits, " ", where, ", reduction ", form.reduction,
              form.weighted ? ", weighted" : "", ", smoothed by ",
              form.smoothing));
          const at::Tensor plain = data.clone().requires_grad_();
          form(plain, targets, weight).backward();
          const at::Tensor x = cut_of(data, mesh, cut).requires_grad_();
          const at::Tensor loss = form(x, t, w);
          const CommLog log;
          loss.backward();
          EXPECT_EQ(log.count(), 0) << log;
          EXPECT_EQ(placements(x.grad()), cut);
          EXPECT_TRUE(close(x.grad(), plain.grad()));
        }
      });
    }
  }
}

TEST(CrossEntropy, InTwoCallsCommunicatesNothingInBackwardEither) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    const at::Tensor targets = targets_of({5}, 7);
    const at::Tensor plain = distinct({5, 7}).requires_grad_();
    at::nll_loss(plain.log_softmax(1), targets).backward();
    const at::Tensor x = cut_of(distinct({5, 7}), mesh, {Shard(1)});
    x.requires_grad_();
    const at::Tensor loss =
        at::nll_loss(x.log_softmax(1), cut_of(targets, mesh, {Replicate()}));
    const CommLog log;
    loss.backward();
    EXPECT_EQ(log.count(), 0) << log;
    EXPECT_TRUE(close(x.grad(), plain.grad()));
  });
}

// What is known of a gradient holds until somebody writes it.
TEST(CrossEntropy, AsksAgainWhereAHookWroteTheGradient) {
  const at::Tensor targets = targets_of({5}, 7);
  const auto run = [&](const at::Tensor& x, const at::Tensor& t, bool local) {
    const at::Tensor scores = x.log_softmax(1);
    scores.register_hook([local](const at::Tensor& g) {
      local ? to_local(g).mul_(3) : g.mul_(3);
      return g;
    });
    at::nll_loss(scores, t).backward();
    return x.grad();
  };
  const at::Tensor plain = distinct({5, 7}).requires_grad_();
  const at::Tensor want = run(plain, targets, false);
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const at::Tensor t = cut_of(targets, mesh, {Replicate()});
    for (const bool local : {false, true}) {
      const at::Tensor x = cut_of(distinct({5, 7}), mesh, {Shard(1)});
      EXPECT_TRUE(close(run(x.requires_grad_(), t, local), want));
    }
  });
}

TEST(CrossEntropy, OfCutClassesHasSecondDerivatives) {
  const at::Tensor targets = targets_of({5}, 7);
  const auto second = [](const at::Tensor& x, const at::Tensor& t,
                         double smoothing) {
    const at::Tensor loss =
        at::cross_entropy_loss(x, t, {}, at::Reduction::Mean, 1, smoothing);
    const at::Tensor first =
        torch::autograd::grad({loss}, {x}, {}, true, /*create_graph=*/true)[0];
    first.pow(2).sum().backward();
    return x.grad();
  };
  for (const double smoothing : {0.0, 0.3}) {
    const at::Tensor plain = distinct({5, 7}).requires_grad_();
    const at::Tensor want = second(plain, targets, smoothing);
    run_ranks(2, [&] {
      const auto mesh = mesh_of({2});
      const at::Tensor x = cut_of(distinct({5, 7}), mesh, {Shard(1)});
      EXPECT_TRUE(close(
          second(
              x.requires_grad_(), cut_of(targets, mesh, {Replicate()}),
              smoothing),
          want));
    });
  }
}

// Weights that are cut are not known to all ranks: one sum is asked for.
TEST(CrossEntropy, OfCutWeightsSumsOnceInBackward) {
  const at::Tensor targets = targets_of({5}, 7);
  const at::Tensor weight = distinct({7}).abs().add(0.1);
  const at::Tensor plain = distinct({5, 7}).requires_grad_();
  at::cross_entropy_loss(plain, targets, weight).backward();
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const at::Tensor x = cut_of(distinct({5, 7}), mesh, {Shard(1)});
    x.requires_grad_();
    const at::Tensor loss = at::cross_entropy_loss(
        x, cut_of(targets, mesh, {Replicate()}),
        cut_of(weight, mesh, {Shard(0)}));
    const CommLog log;
    loss.backward();
    EXPECT_EQ(log.count(), 1) << log;
    EXPECT_TRUE(close(x.grad(), plain.grad()));
  });
}

TEST(CrossEntropy, OfSmoothedLabelsKeepsHalvesAndCountsInFloat) {
  // bf16 has no 257
  const at::Tensor data = distinct({257, 6}, f32().dtype(at::kBFloat16));
  const at::Tensor targets = targets_of({257}, 6);
  const auto run = [](const at::Tensor& x, const at::Tensor& t) {
    const at::Tensor loss = at::cross_entropy_loss(
        x, t, {}, at::Reduction::Mean, -100, /*label_smoothing=*/0.25);
    loss.backward();
    return loss.detach();
  };
  const at::Tensor plain = data.to(at::kFloat).requires_grad_();
  const at::Tensor want = run(plain, targets);
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const at::Tensor x = cut_of(data, mesh, {Shard(1)}).requires_grad_();
    const at::Tensor loss = run(x, cut_of(targets, mesh, {Replicate()}));
    EXPECT_EQ(loss.scalar_type(), at::kBFloat16);
    EXPECT_EQ(x.grad().scalar_type(), at::kBFloat16);
    EXPECT_NEAR(full_tensor(loss).item<double>(), want.item<double>(), 0.02);
    EXPECT_TRUE(close(
        full_tensor(x.grad()).mul(257).to(at::kFloat), plain.grad().mul(257),
        0.01));
  });
}

TEST(CrossEntropy, IsExplainedAsItRuns) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    const at::Tensor x = cut_of(distinct({5, 7}), mesh, {Shard(0), Shard(1)});
    x.requires_grad_();
    const at::Tensor t =
        cut_of(targets_of({5}, 7), mesh, {Shard(0), Replicate()});
    for (const double smoothing : {0.0, 0.3}) {
      const std::string said = explain(
          "cross_entropy_loss", x, t, c10::IValue(), 1, -100, smoothing);
      const int64_t sent = bytes_of(
          [&] { return at::cross_entropy_loss(x, t, {}, 1, -100, smoothing); });
      EXPECT_NE(
          said.find(c10::str("total: ", sent, " bytes")), std::string::npos)
          << sent << "\n"
          << said;
    }
  });
}

// The gradient of a sum is whole on every rank, and so is its own sum.
TEST(LogSoftmaxDecomposition, OfAWholeGradientSumsItAlone) {
  const at::Tensor plain = distinct({5, 7}).requires_grad_();
  const at::Tensor by = distinct({5, 1}).add(2);
  (plain.log_softmax(1) * by).sum().backward();
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const at::Tensor x = cut_of(distinct({5, 7}), mesh, {Shard(1)});
    x.requires_grad_();
    const at::Tensor g =
        cut_of(by.expand({5, 7}).contiguous(), mesh, {Replicate()});
    const at::Tensor y = x.log_softmax(1);
    const CommLog log;
    y.backward(g);
    EXPECT_EQ(log.count(), 0) << log;
    EXPECT_TRUE(close(x.grad(), plain.grad()));
  });
}

// A shard without classes is in any order of dims; all ranks must still ask
// each other alike.
TEST(LogSoftmaxDecomposition, OfATurnedGradientIsTheSameOnEmptyShards) {
  const auto loss = [](const at::Tensor& x, const at::Tensor& t) {
    return at::nll_loss2d(
        at::log_softmax(x, 1).transpose(2, 3).contiguous(), t);
  };
  const at::Tensor whole = distinct({2, 2, 3, 4});
  const at::Tensor plain = whole.clone().requires_grad_();
  loss(plain, targets_of({2, 4, 3}, 2)).backward();
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    const at::Tensor x = cut_of(whole, mesh, {Shard(1)});
    x.requires_grad_();
    loss(x, cut_of(targets_of({2, 4, 3}, 2), mesh, {Replicate()})).backward();
    EXPECT_TRUE(close(x.grad(), plain.grad()));
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
