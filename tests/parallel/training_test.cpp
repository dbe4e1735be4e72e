// A user's own module trains on a mesh with the numbers of one device.
#include <harness/sharded_test.h>

namespace tessera {
namespace {

using testing::close;
using testing::device;
using testing::distinct;
using testing::f64;
using testing::mesh_of;
using testing::same;

// A class of a user's: an own tensor member, nested modules, a buffer.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t width)
      : up(register_module("up", torch::nn::Linear(width, 2 * width))),
        down(register_module("down", torch::nn::Linear(2 * width, width))) {}
  at::Tensor forward(const at::Tensor& x) {
    return x + down(torch::gelu(up(x)));
  }
  torch::nn::Linear up, down;
};
TORCH_MODULE(Block);

struct UserNet : torch::nn::Module {
  UserNet()
      : block(register_module("block", Block(6))),
        norm(register_module(
            "norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})))),
        head(register_module("head", torch::nn::Linear(6, 3))),
        gain(register_parameter("gain", torch::ones({6}))),
        steps(register_buffer("steps", torch::zeros({1}))) {
    torch::NoGradGuard guard;
    double shift = 0.1;
    for (auto& p : parameters()) {
      p.copy_(distinct(p.sizes(), at::kDouble)
                  .mul(0.3)
                  .add(shift)
                  .to(p.scalar_type()));
      shift += 0.05;
    }
    to(device(), at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) {
    steps.add_(1);
    return head(norm(block(x)) * gain);
  }
  Block block;
  torch::nn::LayerNorm norm;
  torch::nn::Linear head;
  at::Tensor gain, steps;
};

at::Tensor inputs() {
  return distinct({10, 6});
}
at::Tensor targets() {
  return distinct({10, 3}).sin();
}

std::vector<double> train(
    UserNet& net, torch::optim::Optimizer& optimizer, const at::Tensor& x,
    const at::Tensor& y, int steps) {
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) {
    optimizer.zero_grad();
    const auto loss = torch::mse_loss(net.forward(x), y);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

PartitionFn shard_linears(int64_t dim) {
  return
      [dim](const std::string&, torch::nn::Module& m, const DeviceMesh& mesh) {
        if (auto* linear = m.as<torch::nn::Linear>()) {
          make_dtensor_(linear->weight, mesh, {Shard(dim)});
          make_dtensor_(linear->bias, mesh, {Shard(0)});
        }
      };
}

void expect_equal_runs(
    const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], 1e-10) << "step " << i << ", rank " << rank();
  }
}

TEST(Training, EqualsThePlainRunOnAnyNumberOfRanks) {
  UserNet plain;
  torch::optim::AdamW reference(
      plain.parameters(), torch::optim::AdamWOptions(0.01));
  const auto want = train(plain, reference, inputs(), targets(), 20);
  EXPECT_LT(want.back(), 0.8 * want.front());
  for (int n = 1; n <= 4; ++n) {
    for (int64_t dim : {-1, 0, 1}) {
      SCOPED_TRACE(
          "ranks " + std::to_string(n) + ", dim " + std::to_string(dim));
      run_ranks(n, [&] {
        const auto mesh = mesh_of({n});
        UserNet net;
        distribute_parameters(
            net, mesh, dim < 0 ? PartitionFn() : shard_linears(dim));
        EXPECT_TRUE(is_dtensor(net.gain));
        EXPECT_TRUE(is_dtensor(net.steps));
        torch::optim::AdamW optimizer(
            net.parameters(), torch::optim::AdamWOptions(0.01));
        const auto x = distribute_tensor(inputs(), mesh, {Shard(0)});
        const auto y = distribute_tensor(targets(), mesh, {Shard(0)});
        expect_equal_runs(train(net, optimizer, x, y, 20), want);
        const auto mine = net.named_parameters();
        for (const auto& p : plain.named_parameters()) {
          EXPECT_TRUE(close(mine[p.key()], p.value()));
        }
        EXPECT_TRUE(same(net.steps, plain.steps));
      });
    }
  }
}

TEST(Training, EqualsThePlainRunWithEachOptimizer) {
  const auto make = [](int kind, std::vector<at::Tensor> p)
      -> std::unique_ptr<torch::optim::Optimizer> {
    switch (kind) {
      case 0:
        return std::make_unique<torch::optim::SGD>(
            p, torch::optim::SGDOptions(0.05).momentum(0.9));
      case 1:
        return std::make_unique<torch::optim::Adam>(
            p, torch::optim::AdamOptions(0.01).amsgrad(true));
      case 2:
        return std::make_unique<torch::optim::RMSprop>(
            p, torch::optim::RMSpropOptions(0.01).momentum(0.5).centered(true));
      default:
        return std::make_unique<torch::optim::Adagrad>(
            p, torch::optim::AdagradOptions(0.05));
    }
  };
  for (int kind = 0; kind < 4; ++kind) {
    SCOPED_TRACE(kind);
    UserNet plain;
    auto reference = make(kind, plain.parameters());
    const auto want = train(plain, *reference, inputs(), targets(), 8);
    run_ranks(3, [&] {
      const auto mesh = mesh_of({3});
      UserNet net;
      // Four plain steps, then sharded ones: the state must come along.
      auto optimizer = make(kind, net.parameters());
      auto got = train(net, *optimizer, inputs(), targets(), 4);
      distribute_parameters(net, mesh, shard_linears(0));
      EXPECT_ERROR(
          "distribute_optimizer()",
          train(
              net, *optimizer, distribute_tensor(inputs(), mesh, {Shard(0)}),
              distribute_tensor(targets(), mesh, {Shard(0)}), 1));
      distribute_optimizer(*optimizer);
      UserNet again;
      auto second = make(kind, again.parameters());
      got = train(again, *second, inputs(), targets(), 4);
      distribute_parameters(again, mesh, shard_linears(0));
      distribute_optimizer(*second);
      const auto rest = train(
          again, *second, distribute_tensor(inputs(), mesh, {Shard(0)}),
          distribute_tensor(targets(), mesh, {Shard(0)}), 4);
      got.insert(got.end(), rest.begin(), rest.end());
      expect_equal_runs(got, want);
    });
  }
}

TEST(Training, EqualsThePlainRunOnATwoDimMesh) {
  UserNet plain;
  torch::optim::AdamW reference(
      plain.parameters(), torch::optim::AdamWOptions(0.01));
  const auto want = train(plain, reference, inputs(), targets(), 5);
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2}, {"dp", "tp"});
    UserNet net;
    distribute_parameters(net, mesh, [](const auto&, auto& m, const auto& on) {
      if (auto* linear = m.template as<torch::nn::Linear>()) {
        make_dtensor_(linear->weight, on, {Shard(0), Shard(1)});
      }
    });
    torch::optim::AdamW optimizer(
        net.parameters(), torch::optim::AdamWOptions(0.01));
    const auto x = distribute_tensor(inputs(), mesh, {Shard(0), Replicate()});
    const auto y = distribute_tensor(targets(), mesh, {Shard(0), Replicate()});
    expect_equal_runs(train(net, optimizer, x, y, 5), want);
  });
}

TEST(DistributeModule, AppliesInputAndOutputFunctions) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto net = std::make_shared<UserNet>();
    UserNet plain;
    const auto module = distribute_module(
        net, mesh, shard_linears(0),
        [](std::vector<at::Tensor> in, const DeviceMesh& on) {
          for (auto& t : in) {
            t = distribute_tensor(t, on, {Shard(0)});
          }
          return in;
        },
        [](std::vector<at::Tensor> out, const DeviceMesh&) {
          for (auto& t : out) {
            t = full_tensor(t);
          }
          return out;
        });
    const auto y = module(inputs());
    EXPECT_FALSE(is_dtensor(y));
    EXPECT_TRUE(close(y, plain.forward(inputs())));
    EXPECT_TRUE(is_dtensor(module->gain));
    y.sum().backward();
    EXPECT_TRUE(net->gain.grad().defined());
    const auto wrong = distribute_module(
        net, mesh, {}, [](std::vector<at::Tensor>, const DeviceMesh&) {
          return std::vector<at::Tensor>{};
        });
    EXPECT_ERROR("as many tensors as it receives", wrong(inputs()));
  });
}

TEST(DistributeModule, TakesHoldersToo) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    torch::nn::Linear linear(6, 4);
    linear->to(device(), at::kDouble);
    const auto module = distribute_module(linear, mesh, shard_linears(0));
    const auto y = module(distribute_tensor(inputs(), mesh, {Shard(0)}));
    const auto want = at::linear(
        inputs(), full_tensor(linear->weight), full_tensor(linear->bias));
    EXPECT_TRUE(close(y, want));
    EXPECT_EQ(to_string(placements(module->weight)), "S(0)");
  });
}

TEST(DistributeModule, RefusesAModuleSharedBetweenRanks) {
  const auto net = std::make_shared<UserNet>();
  EXPECT_ERROR(
      "every rank needs tensors and modules of its own", run_ranks(2, [&] {
        distribute_parameters(*net, mesh_of({2}));
        init().communicator().barrier();
        distribute_parameters(*net, mesh_of({2}));
        net->forward(distribute_tensor(inputs(), mesh_of({2}), {Shard(0)}));
      }));
}

TEST(DistributeModule, IsANoOpTheSecondTime) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    UserNet net;
    distribute_parameters(net, mesh, shard_linears(0));
    distribute_parameters(net, mesh, shard_linears(0));
    EXPECT_ERROR(
        "another layout already",
        distribute_parameters(net, mesh, shard_linears(1)));
  });
}

}  // namespace
}  // namespace tessera
