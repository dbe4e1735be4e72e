// LossScaler: what it divides, when it skips, how its scale goes.
#include <cmath>

#include <harness/sharded_test.h>

namespace tessera {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

at::Tensor parameter_with(const at::Tensor& gradient) {
  at::Tensor p = at::zeros_like(gradient).requires_grad_();
  p.mutable_grad() = gradient;
  return p;
}

// Gradients on two meshes and plain, in two dtypes.
std::vector<at::Tensor> parameters_on_meshes() {
  const auto mesh = mesh_of({2, 2}, {"dp", "tp"});
  const auto line = mesh_of({4});
  return {
      parameter_with(distribute_tensor(
          distinct({4, 6}).to(at::kHalf), mesh, {Shard(0), Replicate()})),
      parameter_with(distribute_tensor(
          distinct({5, 4}, f32()), mesh, {Replicate(), Shard(1)})),
      parameter_with(distribute_tensor(distinct({7}), line, {Shard(0)})),
      parameter_with(distinct({3}))};
}

TEST(LossScaler, DividesByTheScaleOnAllMeshes) {
  run_ranks(4, [] {
    const auto parameters = parameters_on_meshes();
    std::vector<at::Tensor> want;
    for (const at::Tensor& p : parameters) {
      want.push_back(plain(p.grad()).div(1024));
    }
    LossScaler scaler({.initial = 1024});
    EXPECT_EQ(scaler.scale(at::ones({})).item<double>(), 1024);
    EXPECT_TRUE(scaler.unscale(parameters));
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_TRUE(same(parameters[i].grad(), want[i])) << i;
    }
    EXPECT_ERROR("unscaled already", scaler.unscale(parameters));
  });
}

// The rows of such a gradient lie across shards, so it shows a copy.
TEST(LossScaler, DividesGradientsThatAreViews) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const at::Tensor value = distinct({5, 4}, f32());
    const at::Tensor flat = distribute_tensor(value, mesh, {Shard(0)});
    const auto p = parameter_with(flat.view({4, 5}));
    LossScaler scaler({.initial = 4});
    EXPECT_TRUE(scaler.unscale({p}));
    EXPECT_TRUE(same(p.grad(), value.view({4, 5}).div(4)));
    EXPECT_TRUE(same(flat, value.div(4)));
  });
}

TEST(LossScaler, OneInfinityOnOneRankSkipsTheStepOfAll) {
  for (const size_t where : {size_t{0}, size_t{1}, size_t{2}}) {
    for (const double wrong :
         std::vector<double>{INFINITY, -INFINITY, std::nan("")}) {
      run_ranks(4, [&] {
        const auto parameters = parameters_on_meshes();
        const at::Tensor shard = to_local(parameters[where].grad());
        if (rank() == 3) {
          shard.view(-1)[0].fill_(wrong);
        }
        torch::optim::SGD optimizer(parameters, 0.1);
        LossScaler scaler({.initial = 8, .interval = 2});
        EXPECT_FALSE(scaler.step(optimizer));
        for (const at::Tensor& p : parameters) {
          EXPECT_EQ(plain(p).abs().max().item<double>(), 0);
        }
        scaler.update();
        EXPECT_EQ(scaler.state().scale, 4);
      });
    }
  }
}

TEST(LossScaler, GrowsAfterGoodStepsAndContinues) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto p = parameter_with(
        distribute_tensor(distinct({4}, f32()), mesh, {Shard(0)}));
    torch::optim::SGD optimizer(std::vector<at::Tensor>{p}, 0.1);
    LossScaler scaler({.initial = 4, .interval = 3});
    const auto step = [&](LossScaler& with) {
      EXPECT_TRUE(with.step(optimizer));
      with.update();
    };
    step(scaler);
    step(scaler);
    EXPECT_EQ(scaler.state(), (LossScalerState{4, 2}));
    LossScaler other({.interval = 3});
    other.set_state(scaler.state());
    step(other);
    EXPECT_EQ(other.state(), (LossScalerState{8, 0}));
    EXPECT_ERROR("no gradient was unscaled", other.update());
  });
}

// What step() does for an optimizer of another library.
TEST(LossScaler, UnscalesOnce) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const at::Tensor value = distinct({4}, f32());
    const auto a = parameter_with(distribute_tensor(value, mesh, {Shard(0)}));
    const auto b = parameter_with(
        distribute_tensor(at::full({4}, INFINITY, f32()), mesh, {Shard(0)}));
    LossScaler scaler({.initial = 2});
    EXPECT_TRUE(scaler.unscale({a}));
    EXPECT_TRUE(scaler.unscale_once({a}));
    EXPECT_FALSE(scaler.unscale_once({a, b}));
    EXPECT_FALSE(scaler.unscale_once({b}));
    EXPECT_TRUE(same(a.grad(), value.div(2)));
    scaler.update();
    EXPECT_EQ(scaler.state().scale, 1);
  });
}

// Two stages with a mesh each; one has an infinity.
TEST(LossScaler, StagesSkipTogether) {
  run_ranks(4, [] {
    const auto all = mesh_of({2, 2}, {"pp", "tp"});
    const auto tp = all["tp"];
    auto gradient = distinct({4}, f32());
    if (rank() < 2) {
      gradient[3] = INFINITY;
    }
    const auto p = parameter_with(distribute_tensor(gradient, tp, {Shard(0)}));
    LossScaler scaler({.stages = all.communicator("pp")});
    EXPECT_FALSE(scaler.unscale({p}));
  });
}

TEST(LossScaler, RefusesFactorsThatCannotWork) {
  EXPECT_ERROR("growth must be above 1; got 1", LossScaler({.growth = 1}));
  EXPECT_ERROR("backoff must be between", LossScaler({.backoff = 1}));
  EXPECT_ERROR("backoff must be between", LossScaler({.backoff = 0}));
  EXPECT_ERROR(
      "growth must be above 1; got inf", LossScaler({.growth = INFINITY}));
  EXPECT_ERROR("interval must be at least 1", LossScaler({.interval = 0}));
  EXPECT_ERROR("scale must be above zero", LossScaler({.initial = 0}));
  LossScaler scaler;
  EXPECT_ERROR("scale must be above zero", scaler.set_state({.scale = NAN}));
  EXPECT_ERROR(
      "good_steps must not be negative", scaler.set_state({.good_steps = -1}));
}

}  // namespace
}  // namespace tessera
