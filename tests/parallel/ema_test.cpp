// Ema: averages of shards, and clip_grad_norm over the stages of a pipeline.
#include <cmath>
#include <stdexcept>

#include <harness/sharded_test.h>

namespace tessera {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

torch::nn::Linear new_layer(at::ScalarType dtype = at::kDouble) {
  torch::nn::Linear layer(4, 6);
  layer->to(dtype);
  const torch::NoGradGuard guard;
  for (const at::Tensor& p : layer->parameters()) {
    p.copy_(distinct(p.sizes()));
  }
  return layer;
}

void change(const torch::nn::Linear& layer) {
  const torch::NoGradGuard guard;
  for (const at::Tensor& p : layer->parameters()) {
    p.mul_(1.1).add_(0.3);
  }
}

TEST(Ema, IsThatOfPlainParametersAndMovesNothing) {
  constexpr double kDecay = 0.9;
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    auto whole = new_layer(), cut = new_layer();
    parallelize_module(cut, mesh, {{"", ColwiseParallel()}});
    Ema ema(*cut, kDecay), plainly(*whole, kDecay);
    std::vector<at::Tensor> want;
    for (const at::Tensor& p : whole->parameters()) {
      want.push_back(p.detach().clone());
    }
    const CommLog log;
    for (int step = 0; step < 4; ++step) {
      change(whole);
      change(cut);
      ema.update();
      plainly.update();
      for (size_t i = 0; i < want.size(); ++i) {
        want[i] = want[i] * kDecay + whole->parameters()[i] * (1 - kDecay);
      }
    }
    EXPECT_EQ(log.count(), 0);
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(ema.averages()[i].first, i == 0 ? "weight" : "bias");
      EXPECT_TRUE(close(ema.averages()[i].second, want[i], 1e-12));
      EXPECT_TRUE(same(ema.averages()[i].second, plainly.averages()[i].second));
    }
  });
}

TEST(Ema, SwapRestoresBitsAlsoPastAnException) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    auto layer = new_layer(at::kBFloat16);
    parallelize_module(layer, mesh, {{"", ColwiseParallel()}});
    Ema ema(*layer, 0.5);
    EXPECT_EQ(ema.averages()[0].second.scalar_type(), at::kFloat);
    change(layer);
    ema.update();
    const at::Tensor before = plain(layer->weight).clone();
    const CommLog log;
    try {
      const Ema::Swap averaged(ema);
      EXPECT_ERROR("the module holds the averages now", ema.update());
      EXPECT_ERROR("the module holds the averages now", Ema::Swap(ema));
      EXPECT_EQ(log.count(), 0);
      EXPECT_FALSE(at::equal(plain(layer->weight), before));
      throw std::runtime_error("past the guard");
    } catch (const std::runtime_error&) {
      EXPECT_TRUE(same(layer->weight, before));
    }
    ema.update();
  });
}

TEST(Ema, RefusesWhatCannotBeAveraged) {
  auto layer = new_layer();
  EXPECT_ERROR("decay must be between 0 and 1; got 1.5", Ema(*layer, 1.5));
  EXPECT_ERROR("need a floating dtype", Ema(*layer, 0.9, at::kLong));
  run_ranks(2, [] {
    auto own = new_layer();
    Ema ema(*own);
    parallelize_module(own, mesh_of({2}), {{"", ColwiseParallel()}});
    EXPECT_ERROR("'weight' lies elsewhere than its average", ema.update());
  });
}

// Two stages with a mesh each, and a third mesh in one of them.
TEST(ClipOverStages, IsOneNumberOnEveryRankAndRepeats) {
  for (const double p : {1.0, 2.0, static_cast<double>(INFINITY)}) {
    std::vector<at::Tensor> whole;
    for (int64_t i = 0; i < 3; ++i) {
      whole.push_back(at::zeros({4, 3 + i}, f64()).requires_grad_());
      whole.back().mutable_grad() = distinct({4, 3 + i}).add(0.1);
    }
    std::vector<at::Tensor> copies;
    for (const at::Tensor& t : whole) {
      copies.push_back(t.grad().clone());
    }
    const double want = torch::nn::utils::clip_grad_norm_(whole, 0.5, p);
    std::vector<double> first(4);
    for (int again = 0; again < 3; ++again) {
      run_ranks(4, [&] {
        const auto all = mesh_of({2, 2}, {"pp", "tp"});
        const auto tp = all["tp"];
        const size_t stage = rank() < 2 ? 0 : 1;
        std::vector<at::Tensor> mine;
        for (size_t i = stage; i < copies.size(); i += 2) {
          mine.push_back(
              distribute_tensor(at::zeros_like(copies[i]), tp, {Shard(0)})
                  .requires_grad_());
          mine.back().mutable_grad() =
              distribute_tensor(copies[i], tp, {Shard(0)});
        }
        const double got =
            clip_grad_norm(
                mine, 0.5, {.norm_type = p, .stages = all.communicator("pp")})
                .item<double>();
        EXPECT_NEAR(got, want, 1e-12 * want);
        double& seen = first[static_cast<size_t>(rank())];
        EXPECT_TRUE(again == 0 || seen == got);
        seen = got;
        EXPECT_TRUE(close(mine[0].grad(), whole[stage].grad(), 1e-12));
      });
    }
    EXPECT_EQ(first, std::vector<double>(4, first[0]));
  }
}

TEST(ClipOverStages, AnInfiniteNormChangesNothingOnAnyStage) {
  run_ranks(2, [] {
    const auto all = mesh_of({2}, {"pp"});
    const auto p = at::zeros({3}, f64()).requires_grad_();
    p.mutable_grad() = at::ones({3}, f64());
    if (rank() == 1) {
      p.mutable_grad()[1] = NAN;
    }
    const auto before = p.grad().clone();
    EXPECT_ERROR(
        "not finite",
        clip_grad_norm(
            {p}, 0.1,
            {.error_if_nonfinite = true, .stages = all.communicator("pp")}));
    EXPECT_TRUE(at::equal(p.grad()[0], before[0]));
    EXPECT_ERROR(
        "the communicator is undefined",
        clip_grad_norm({p}, 0.1, {.stages = Communicator()}));
    const std::vector<at::Tensor> nothing;  // a stage without gradients
    EXPECT_EQ(
        clip_grad_norm(
            rank() == 0 ? std::vector<at::Tensor>{p} : nothing, 10,
            {.stages = all.communicator("pp")})
            .item<double>(),
        std::sqrt(3.0));
  });
}

}  // namespace
}  // namespace tessera
