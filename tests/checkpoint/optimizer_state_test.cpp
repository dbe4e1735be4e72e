// What a state dict has of an optimizer: names, groups, frozen and shared
// parameters; what load() makes and takes back.
#include <gtest/gtest.h>

#include <memory>
#include <sstream>

#include <checkpoint/scratch_folder.h>
#include <checkpoint/trained_net.h>

namespace tessera::testing {
namespace {

using checkpoint::StateDict;

TEST(OptimizerState, HasTheNamesOfPyTorch) {
  run_ranks(1, [&] {
    TrainedNet net;
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
    TrainedNet net;
    shard_net(net, mesh, 0);
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
struct OddNet : TrainedNet {
  OddNet() {
    second->weight.set_requires_grad(false);
    tied = register_module("tied", torch::nn::Linear(6, 10));
    tied->to(at::kDouble);
    tied->weight = tied->register_parameter("shared", first->weight);
    register_parameter("alone", distinct({3}));
  }
  at::Tensor forward(const at::Tensor& x) {
    return TrainedNet::forward(x) + torch::tanh(tied(x)).sum();
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
    TrainedNet net;
    shard_net(net, mesh, 0);
    torch::optim::AdamW optimizer(net.parameters());
    train_net(net, optimizer, mesh, 0, 1);
    TrainedNet plain;
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
    EXPECT_ERROR("plain and sharded", train_net(net, optimizer, mesh, 1, 2));
  });
}

TEST(OptimizerState, OfPythonsLbfgsIsRead) {
  const ScratchFolder folder;
  using checkpoint::StateValue;
  const at::Tensor flat = distinct({103});  // as many as the parameters have
  run_ranks(2, [&] {
    // As torch.optim.LBFGS has it after its first iteration.
    const StateDict first{
        {"func_evals", 5},
        {"n_iter", 1},
        {"d", flat},
        {"t", 0.25},
        {"old_dirs", StateValue::List{}},
        {"old_stps", StateValue::List{}},
        {"ro", StateValue::List{}},
        {"H_diag", 1},
        {"prev_flat_grad", flat + 1},
        {"prev_loss", 2.5},
        {"al", StateValue::List{StateValue(), StateValue(), StateValue()}}};
    checkpoint::save(
        {{"optimizer",
          StateDict{{"state", StateDict{{"first.weight", first}}}}}},
        folder / "c");
    const DeviceMesh mesh = mesh_of({2});
    TrainedNet net;
    shard_net(net, mesh, 0);
    torch::optim::LBFGS optimizer(
        net.parameters(), torch::optim::LBFGSOptions(0.1).max_iter(4));
    StateDict state = checkpoint::state_dict(net, optimizer);
    checkpoint::load(state, folder / "c", {.only = {"optimizer.state.*"}});
    const auto& got = dynamic_cast<torch::optim::LBFGSParamState&>(
        *optimizer.state().at(net.first->weight.unsafeGetTensorImpl()));
    EXPECT_EQ(got.func_evals(), 5);
    EXPECT_EQ(got.t(), 0.25);
    EXPECT_EQ(got.prev_loss(), 2.5);
    EXPECT_TRUE(got.old_dirs().empty());
    EXPECT_EQ(got.H_diag().item().toDouble(), 1.0);
    EXPECT_TRUE(same(full_tensor(got.d()), flat));
    EXPECT_EQ(got.al()->size(), 3U);
    train_net(net, optimizer, mesh, 0, 1);
    EXPECT_GT(got.n_iter(), 1) << "it goes on with this state";
  });
}

TEST(OptimizerState, IsTakenBackWhereLoadFails) {
  const ScratchFolder folder;
  run_ranks(2, [&] {
    const DeviceMesh mesh = mesh_of({2});
    TrainedNet net;
    shard_net(net, mesh, 0);
    torch::optim::LBFGS optimizer(
        net.parameters(), torch::optim::LBFGSOptions(0.1).max_iter(4));
    train_net(net, optimizer, mesh, 0, 2);
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
