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
    optimizer.step([&] {
      optimizer.zero_grad();
      const at::Tensor loss = net.forward(x).pow(2).mean();
      loss.backward();
      return loss;
    });
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
    if (name == "LBFGS") {
      return std::make_unique<LBFGS>(
          parameters, LBFGSOptions(0.1).max_iter(4).history_size(5));
    }
    if (name == "LBFGSWithLineSearch") {
      return std::make_unique<LBFGS>(
          parameters,
          LBFGSOptions(0.5).max_iter(3).line_search_fn("strong_wolfe"));
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
  // When the other optimizer is made: before load() and never stepped, with a
  // state of its own, or after the model was loaded.
  for (const std::string when : {"new", "stepped", "later"}) {
    SCOPED_TRACE(when);
    run_ranks(3, [&] {
      const DeviceMesh mesh = mesh_of({3});
      Net net;
      shard(net, mesh, 1);
      if (when == "later") {
        StateDict model{{"model", checkpoint::state_dict(net)}};
        checkpoint::load(model, folder / "c", {.only = {"model.*"}});
      }
      const auto optimizer = make(net.parameters());
      if (when == "stepped") {
        train(net, *optimizer, mesh, 7, 8);
      }
      StateDict state = checkpoint::state_dict(net, *optimizer);
      if (when == "later") {
        checkpoint::load(state, folder / "c", {.only = {"optimizer.*"}});
      } else {
        checkpoint::load(state, folder / "c");
      }
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
    ::testing::Values(
        "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "LBFGS",
        "LBFGSWithLineSearch"),
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

// Two groups with rates of their own, a parameter that no group has and one
// that does not learn, and one that two modules share.
struct OddNet : Net {
  OddNet() {
    second->weight.set_requires_grad(false);
    tied = register_module("tied", torch::nn::Linear(6, 10));
    tied->to(at::kDouble);
    tied->weight = tied->register_parameter("shared", first->weight);
    register_parameter("alone", distinct({3}));
  }
  at::Tensor forward(const at::Tensor& x) {
    return Net::forward(x) + torch::tanh(tied(x)).sum();
  }
  torch::nn::Linear tied{nullptr};
};

std::unique_ptr<torch::optim::Optimizer> two_groups(
    OddNet& net, const std::vector<double>& rates) {
  using torch::optim::AdamWOptions;
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(
      std::vector<at::Tensor>{net.first->weight, net.second->weight},
      std::make_unique<AdamWOptions>(rates[0]));
  groups.emplace_back(
      std::vector<at::Tensor>{net.second->bias, net.first->bias},
      std::make_unique<AdamWOptions>(rates[1]));
  return std::make_unique<torch::optim::AdamW>(groups, AdamWOptions(0.5));
}

void train_odd(
    OddNet& net, torch::optim::Optimizer& optimizer, const DeviceMesh& mesh,
    int from, int to) {
  for (int step = from; step < to; ++step) {
    optimizer.zero_grad();
    net
        .forward(distribute_tensor(
            distinct({4, 6}).mul(0.1 * (step + 1)), mesh, {Replicate()}))
        .pow(2)
        .mean()
        .backward();
    optimizer.step();
  }
}

TEST(OptimizerState, OfGroupsFrozenAndSharedParametersGoesOn) {
  const ScratchFolder folder;
  std::vector<at::Tensor> want;
  const auto shard_all = [](OddNet& net, const DeviceMesh& mesh, int64_t dim) {
    for (const at::Tensor& p : net.parameters()) {
      if (!is_dtensor(p)) {
        make_dtensor_(p, mesh, {Shard(p.dim() == 1 ? 0 : dim)});
      }
    }
  };
  run_ranks(4, [&] {
    const DeviceMesh mesh = mesh_of({4});
    OddNet net;
    shard_all(net, mesh, 0);
    const auto optimizer = two_groups(net, {0.01, 0.03});
    train_odd(net, *optimizer, mesh, 0, 3);
    checkpoint::save(checkpoint::state_dict(net, *optimizer), folder / "c");
    train_odd(net, *optimizer, mesh, 3, 6);
    const auto values = values_of(net);
    if (rank() == 0) {
      want = values;
    }
  });
  run_ranks(2, [&] {
    const DeviceMesh mesh = mesh_of({2});
    OddNet net;
    shard_all(net, mesh, 1);
    const auto optimizer = two_groups(net, {7.0, 8.0});
    StateDict state = checkpoint::state_dict(net, *optimizer);
    checkpoint::load(state, folder / "c");
    EXPECT_EQ(optimizer->state().size(), 3U) << "the frozen one has none";
    train_odd(net, *optimizer, mesh, 3, 6);
    const auto values = values_of(net);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_TRUE(close(values[i], want[i], 1e-12));
    }
  });
}

TEST(OptimizerState, OfShardsIsRefusedByTorchSaveAndUsedByNoStepOfTorchLoad) {
  run_ranks(2, [&] {
    const DeviceMesh mesh = mesh_of({2});
    Net net;
    shard(net, mesh, 0);
    torch::optim::AdamW optimizer(net.parameters());
    train(net, optimizer, mesh, 0, 1);
    Net plain;
    torch::optim::AdamW its(plain.parameters());
    plain.forward(distinct({4, 6})).sum().backward();
    its.step();
    std::ostringstream out, refused;
    one_at_a_time([&] {
      EXPECT_ERROR(
          "tessera::checkpoint::save to save it",
          torch::save(optimizer, refused));
      torch::save(its, out);
      std::istringstream in(out.str());
      torch::load(optimizer, in);
    });
    EXPECT_ERROR("plain and sharded", train(net, optimizer, mesh, 1, 2));
  });
}

TEST(OptimizerState, IsTakenBackWhereLoadFails) {
  const ScratchFolder folder;
  run_ranks(2, [&] {
    const DeviceMesh mesh = mesh_of({2});
    Net net;
    shard(net, mesh, 0);
    torch::optim::LBFGS optimizer(
        net.parameters(), torch::optim::LBFGSOptions(0.1).max_iter(4));
    train(net, optimizer, mesh, 0, 2);
    StateDict state = checkpoint::state_dict(net, optimizer);
    checkpoint::save(state, folder / "c");
    const auto direction = [&] {
      return state.at("optimizer")
          .to_dict()
          .at("state")
          .to_dict()
          .at("first.weight")
          .to_dict()
          .at("d")
          .to_tensor();
    };
    const at::Tensor before = direction();
    state.set("z", 1);
    EXPECT_ERROR("lacks 'z'", checkpoint::load(state, folder / "c"));
    EXPECT_TRUE(direction().is_same(before));
    checkpoint::load(state, folder / "c", {.strict = false});
    EXPECT_FALSE(direction().is_same(before)) << "made anew";
    EXPECT_TRUE(same(direction(), before));
  });
}

}  // namespace
}  // namespace tessera::testing
