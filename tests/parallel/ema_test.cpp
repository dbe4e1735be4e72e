// Ema: averages of shards.
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

}  // namespace
}  // namespace tessera
