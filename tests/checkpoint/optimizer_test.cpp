// A training that is saved, and goes on elsewhere, goes on as if it had not
// stopped: other ranks, other layouts, every optimizer.
#include <gtest/gtest.h>
#include <tessera/checkpoint/checkpoint.h>
#include <torch/torch.h>

#include <functional>
#include <memory>

#include <checkpoint/scratch_folder.h>
#include <harness/sharded_test.h>

namespace tessera::testing {
namespace {

using checkpoint::StateDict;
using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(
    std::vector<at::Tensor>)>;

struct Net : torch::nn::Module {
  Net()
      : first(register_module("first", torch::nn::Linear(6, 10))),
        second(register_module("second", torch::nn::Linear(10, 3))) {
    to(at::kDouble);
    int64_t offset = 0;
    const at::NoGradGuard no_grad;
    for (at::Tensor& p : parameters()) {
      p.copy_(distinct(p.sizes()).sub(0.1 * static_cast<double>(offset++)));
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    return second(torch::tanh(first(x)));
  }
  torch::nn::Linear first, second;
};

void shard(Net& net, const DeviceMesh& mesh, int64_t dim) {
  for (const at::Tensor& p : net.parameters()) {
    make_dtensor_(p, mesh, {Shard(p.dim() == 1 ? 0 : dim)});
  }
}

void train(
    Net& net, torch::optim::Optimizer& optimizer, const DeviceMesh& mesh,
    int from, int to) {
  for (int step = from; step < to; ++step) {
    const at::Tensor x = distribute_tensor(
        distinct({4, 6}).mul(0.1 * (step + 1)), mesh, {Replicate()});
    optimizer.zero_grad();
    net.forward(x).pow(2).mean().backward();
    optimizer.step();
  }
}

std::vector<at::Tensor> values_of(const Net& net) {
  std::vector<at::Tensor> values;
  for (const at::Tensor& p : net.parameters()) {
    values.push_back(full_tensor(p.detach()).clone());
  }
  return values;
}

class Continued : public ::testing::TestWithParam<const char*> {
 public:
  static std::unique_ptr<torch::optim::Optimizer> make(
      std::vector<at::Tensor> parameters) {
    const std::string name = GetParam();
    using namespace torch::optim;  // NOLINT
    if (name == "SGD") {
      return std::make_unique<SGD>(
          parameters, SGDOptions(0.05).momentum(0.9).dampening(0.1));
    }
    if (name == "Adam") {
      return std::make_unique<Adam>(
          parameters, AdamOptions(0.01).amsgrad(true));
    }
    if (name == "RMSprop") {
      return std::make_unique<RMSprop>(
          parameters, RMSpropOptions(0.01).momentum(0.5).centered(true));
    }
    if (name == "Adagrad") {
      return std::make_unique<Adagrad>(parameters, AdagradOptions(0.1));
    }
    return std::make_unique<AdamW>(parameters, AdamWOptions(0.01));
  }
};

TEST_P(Continued, TrainingEqualsOneThatDidNotStop) {
  const ScratchFolder folder;
  std::vector<at::Tensor> want;
  run_ranks(4, [&] {
    const DeviceMesh mesh = mesh_of({4});
    Net net;
    shard(net, mesh, 0);
    const auto optimizer = make(net.parameters());
    train(net, *optimizer, mesh, 0, 3);
    static_cast<torch::optim::OptimizerOptions&>(
        optimizer->param_groups()[0].options())
        .set_lr(0.02);
    checkpoint::save(checkpoint::state_dict(net, *optimizer), folder / "c");
    train(net, *optimizer, mesh, 3, 6);
    const auto values = values_of(net);
    if (rank() == 0) {
      want = values;
    }
  });
  for (const bool stepped : {false, true}) {
    run_ranks(3, [&] {
      const DeviceMesh mesh = mesh_of({3});
      Net net;
      shard(net, mesh, 1);
      const auto optimizer = make(net.parameters());
      if (stepped) {
        train(net, *optimizer, mesh, 7, 8);
      }
      StateDict state = checkpoint::state_dict(net, *optimizer);
      checkpoint::load(state, folder / "c");
      train(net, *optimizer, mesh, 3, 6);
      const auto values = values_of(net);
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_TRUE(close(values[i], want[i], 1e-12));
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, Continued,
    ::testing::Values("SGD", "Adam", "AdamW", "RMSprop", "Adagrad"),
    [](const auto& chosen) { return std::string(chosen.param); });

TEST(OptimizerState, HasTheNamesOfPyTorch) {
  run_ranks(1, [&] {
    Net net;
    torch::optim::AdamW optimizer(net.parameters());
    const at::Tensor x = distinct({4, 6});
    net.forward(x).sum().backward();
    optimizer.step();
    const StateDict dict = checkpoint::state_dict(net, optimizer);
    const StateDict& state =
        dict.at("optimizer").to_dict().at("state").to_dict();
    const StateDict& weight = state.at("first.weight").to_dict();
    EXPECT_EQ(weight.at("step").to_tensor().item().toDouble(), 1.0);
    EXPECT_TRUE(weight.contains("exp_avg"));
    EXPECT_TRUE(weight.contains("exp_avg_sq"));
    EXPECT_FALSE(weight.contains("max_exp_avg_sq"));
    const auto& group = dict.at("optimizer")
                            .to_dict()
                            .at("param_groups")
                            .to_list()[0]
                            .to_dict();
    EXPECT_EQ(group.at("params").to_list().size(), 4U);
    EXPECT_EQ(group.at("lr").to_double(), 1e-3);
  });
}

TEST(OptimizerState, OfASavedNewOptimizerIsAbsent) {
  const ScratchFolder folder;
  run_ranks(2, [&] {
    const DeviceMesh mesh = mesh_of({2});
    Net net;
    shard(net, mesh, 0);
    torch::optim::SGD optimizer(
        net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    checkpoint::save(checkpoint::state_dict(net, optimizer), folder / "c");
    StateDict state = checkpoint::state_dict(net, optimizer);
    checkpoint::load(state, folder / "c");
    EXPECT_TRUE(optimizer.state().empty());
  });
}

}  // namespace
}  // namespace tessera::testing
