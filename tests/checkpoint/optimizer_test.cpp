// A training that is saved, and goes on elsewhere, goes on as if it had not
// stopped: other ranks, other layouts, every optimizer.
#include <gtest/gtest.h>
#include <tessera/checkpoint/checkpoint.h>
#include <torch/torch.h>

#include <functional>
#include <memory>

#include <checkpoint/scratch_folder.h>
#include <checkpoint/trained_net.h>

namespace tessera::testing {
namespace {

using checkpoint::StateDict;
using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(
    std::vector<at::Tensor>)>;

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
    TrainedNet net;
    shard_net(net, mesh, 0);
    const auto optimizer = make(net.parameters());
    train_net(net, *optimizer, mesh, 0, 3);
    static_cast<torch::optim::OptimizerOptions&>(
        optimizer->param_groups()[0].options())
        .set_lr(0.02);
    checkpoint::save(checkpoint::state_dict(net, *optimizer), folder / "c");
    train_net(net, *optimizer, mesh, 3, 6);
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
      TrainedNet net;
      shard_net(net, mesh, 1);
      if (when == "later") {
        StateDict model{{"model", checkpoint::state_dict(net)}};
        checkpoint::load(model, folder / "c", {.only = {"model.*"}});
      }
      const auto optimizer = make(net.parameters());
      if (when == "stepped") {
        train_net(net, *optimizer, mesh, 7, 8);
      }
      StateDict state = checkpoint::state_dict(net, *optimizer);
      if (when == "later") {
        checkpoint::load(state, folder / "c", {.only = {"optimizer.*"}});
      } else {
        checkpoint::load(state, folder / "c");
      }
      train_net(net, *optimizer, mesh, 3, 6);
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

}  // namespace
}  // namespace tessera::testing
