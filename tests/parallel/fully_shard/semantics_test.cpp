// Programs in which parameters are used in unusual orders, ways and modes.
#include "block_net.h"

namespace tessera {
namespace {

using testing::BlockNet;
using testing::close;
using testing::counts_of;
using testing::distinct;
using testing::expect_equal_gradients;
using testing::f64;
using testing::mesh_of;
using testing::net_indices;
using testing::net_loss;
using testing::net_loss_on;
using testing::plain_net_loss;

const FullyShardOptions kBlocks = {.groups = {"blocks.*"}};

// Runs `program(net, batch)` plainly and fully sharded; batch(step) makes its
// input. Gradients must be equal.
template <class Program>
void expect_alike(
    const Program& program, const FullyShardOptions& options = kBlocks) {
  BlockNet plain;
  program(plain, [](int64_t step) { return net_indices(step); });
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    const auto sharded = fully_shard(net, mesh, options);
    program(net, [&](int64_t step) {
      return distribute_tensor(net_indices(step), mesh, {Shard(0)});
    });
    expect_equal_gradients(net, plain);
    EXPECT_EQ(sharded.report().gathered_bytes, 0);
  });
}

TEST(FullyShardSemantics, TwoForwardsThenTwoBackwards) {
  expect_alike([](BlockNet& net, const auto& batch) {
    const at::Tensor a = net_loss(net.forward(batch(0)));
    const at::Tensor b = net_loss(net.forward(batch(1)));
    a.backward();
    b.backward();
  });
}

TEST(FullyShardSemantics, OneForwardAndTwoBackwards) {
  expect_alike([](BlockNet& net, const auto& batch) {
    const at::Tensor loss = net_loss(net.forward(batch(0)));
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
  });
}

TEST(FullyShardSemantics, GradientsByAutogradGrad) {
  BlockNet plain;
  const auto wanted = torch::autograd::grad(
      {plain_net_loss(plain)}, {plain.block(1).up->weight, plain.head->bias});
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3}, {"dp"});
    BlockNet net;
    const auto sharded = fully_shard(net, mesh, kBlocks);
    const auto got = torch::autograd::grad(
        {net_loss_on(net, mesh)}, {net.block(1).up->weight, net.head->bias});
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_TRUE(placements(got[i])[0].is_shard(0));
      EXPECT_TRUE(close(got[i], wanted[i], 1e-12));
    }
    EXPECT_FALSE(net.head->weight.grad().defined());
  });
}

TEST(FullyShardSemantics, HooksOfLeavesSeeReducedGradients) {
  expect_alike([](BlockNet& net, const auto& batch) {
    net.block(0).up->weight.register_hook(
        [](const at::Tensor& g) { return g * 3; });
    net_loss(net.forward(batch(0))).backward();
  });
}

TEST(FullyShardSemantics, ABlockUsedTwice) {
  expect_alike([](BlockNet& net, const auto& batch) {
    at::Tensor x = net.tokens(batch(0));
    for (const size_t i : {0, 1, 0, 2, 2}) {
      x = net.block(i).forward(x);
    }
    net_loss(net.head(x)).backward();
  });
}

TEST(FullyShardSemantics, AnyFunctionMayUseParameters) {
  expect_alike([](BlockNet& net, const auto& batch) {
    const at::Tensor x = net.hidden(batch(0));
    net_loss(x.matmul(net.tokens->weight.t()) + net.head->bias).backward();
  });
}

// One weight of two blocks: it belongs to what is around both.
TEST(FullyShardSemantics, TiedWeightsOfTwoGroups) {
  const auto tie = [](BlockNet& net) {
    return net.block(2).register_parameter("tied", net.block(0).up->weight);
  };
  const auto loss = [](BlockNet& net, const at::Tensor& x,
                       const at::Tensor& tied) {
    const at::Tensor y = net.hidden(x);
    return net_loss(net.head(y + y.matmul(tied.t()).matmul(tied)));
  };
  BlockNet plain;
  loss(plain, net_indices(0), tie(plain)).backward();
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    const at::Tensor tied = tie(net);
    const auto sharded = fully_shard(net, mesh, kBlocks);
    const auto root = sharded.report().groups[0].members;
    EXPECT_NE(
        std::find(root.begin(), root.end(), "blocks.0.up.weight"), root.end());
    loss(net, distribute_tensor(net_indices(0), mesh, {Shard(0)}), tied)
        .backward();
    expect_equal_gradients(net, plain);
  });
}

TEST(FullyShardSemantics, AViewOfAnOutputWrittenInPlace) {
  expect_alike([](BlockNet& net, const auto& batch) {
    at::Tensor x = net.tokens(batch(0));
    for (size_t i = 0; i < 3; ++i) {
      x = net.block(i).forward(x).view({-1, 16});
      x.mul_(1.5);
    }
    net_loss(net.head(x)).backward();
  });
}

TEST(FullyShardSemantics, FrozenMembers) {
  expect_alike([](BlockNet& net, const auto& batch) {
    net.block(0).up->weight.set_requires_grad(false);
    for (const at::Tensor& p : net.block(1).parameters()) {
      p.set_requires_grad(false);
    }
    for (int64_t step = 0; step < 2; ++step) {
      net_loss(net.forward(batch(step))).backward();
    }
  });
}

TEST(FullyShardSemantics, AFrozenGroupIsNotReduced) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    auto sharded = fully_shard(net, mesh, kBlocks);
    for (const at::Tensor& p : net.blocks->parameters()) {
      p.set_requires_grad(false);
    }
    const CommLog log;
    net_loss_on(net, mesh).backward();
    EXPECT_EQ(counts_of(log).reductions, 1);
    EXPECT_EQ(counts_of(log).gathers, 6);
  });
}

TEST(FullyShardSemantics, EvaluationGivesThePlainValues) {
  BlockNet plain;
  const at::Tensor wanted = plain.forward(net_indices(0)).detach();
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3}, {"dp"});
    BlockNet net;
    const auto sharded = fully_shard(net, mesh, kBlocks);
    const at::Tensor x = distribute_tensor(net_indices(0), mesh, {Shard(0)});
    {
      const c10::InferenceMode mode;
      EXPECT_TRUE(close(net.forward(x), wanted, 1e-12));
    }
    {
      const torch::NoGradGuard no_grad;
      EXPECT_TRUE(close(net.forward(x), wanted, 1e-12));
    }
    net_loss(net.forward(x)).backward();
    EXPECT_TRUE(net.head->weight.grad().defined());
  });
}

TEST(FullyShardSemantics, AnExceptionLeavesNothingToReset) {
  expect_alike([](BlockNet& net, const auto& batch) {
    EXPECT_THROW(
        {
          at::Tensor x = net.tokens(batch(0));
          x = net.block(0).forward(x);
          x = net.block(1).forward(x);
          throw std::runtime_error("of the program");
        },
        std::runtime_error);
    net_loss(net.forward(batch(1))).backward();
    at::Tensor x = net.hidden(batch(0));
    x.register_hook([](const at::Tensor&) -> at::Tensor {
      throw std::runtime_error("of a hook");
    });
    EXPECT_THROW(net_loss(net.head(x)).backward(), std::runtime_error);
    net.zero_grad();
    net_loss(net.forward(batch(2))).backward();
  });
}

TEST(FullyShardSemantics, WritesReachTheShards) {
  BlockNet plain;
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3}, {"dp"});
    BlockNet net;
    const auto sharded = fully_shard(net, mesh, kBlocks);
    const torch::NoGradGuard no_grad;
    const auto change = [](BlockNet& of) {
      of.block(0).up->weight[0].zero_();
      of.block(0).up->weight[1].fill_(3);
      of.block(1).up->bias.mul_(2);
      of.head->weight.t().select(0, 1).add_(1);
      of.tokens->weight.detach().add_(0.5);
    };
    BlockNet wanted;
    change(wanted);
    net_loss_on(net, mesh);  // gathered before the writes
    change(net);
    for (size_t p = 0; p < net.parameters().size(); ++p) {
      EXPECT_TRUE(close(net.parameters()[p], wanted.parameters()[p])) << p;
    }
    EXPECT_TRUE(close(
        net.forward(distribute_tensor(net_indices(0), mesh, {Shard(0)})),
        wanted.forward(net_indices(0)), 1e-12));
  });
}

TEST(FullyShardSemantics, AParameterWrittenBetweenForwardAndBackwardIsAnError) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    const auto sharded = fully_shard(net, mesh, kBlocks);
    const at::Tensor loss = net_loss_on(net, mesh);
    {
      const torch::NoGradGuard no_grad;
      net.head->weight.mul_(2);
    }
    EXPECT_ERROR("modified by an inplace operation", loss.backward());
  });
}

// Rank 0 alone keeps things: all ranks communicate alike.
TEST(FullyShardSemantics, WhatOneRankKeepsDecidesNothing) {
  BlockNet plain;
  for (int64_t step = 0; step < 3; ++step) {
    plain_net_loss(plain, step).backward();
  }
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    const auto sharded = fully_shard(net, mesh, kBlocks);
    std::vector<at::Tensor> kept;
    at::Tensor first;
    for (int64_t step = 0; step < 3; ++step) {
      const CommLog log;
      const at::Tensor loss = net_loss_on(net, mesh, step);
      const at::Tensor view = net.head->weight.t();
      const at::Tensor local = to_local(view);
      if (rank() == 0) {
        kept.insert(kept.end(), {loss, view, local});
      }
      loss.backward();
      EXPECT_EQ(counts_of(log).gathers, 6);
      EXPECT_EQ(counts_of(log).reductions, 4);
    }
    expect_equal_gradients(net, plain);
    if (rank() == 0) {
      EXPECT_TRUE(close(kept[2], plain.head->weight.t().detach()));
      EXPECT_GT(sharded.report().groups[0].handed_out_bytes, 0);
    }
  });
}

// The dtype of a module changes; its groups stay.
TEST(FullyShardSemantics, AConvertedModuleStaysSharded) {
  BlockNet plain(at::kFloat);
  plain_net_loss(plain).backward();
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net(at::kDouble);
    const auto sharded = fully_shard(net, mesh, kBlocks);
    net_loss_on(net, mesh).backward();
    net.zero_grad();
    net.to(at::kFloat);
    const CommLog log;
    net_loss_on(net, mesh).backward();
    EXPECT_EQ(counts_of(log).gathers, 6);
    for (const CommLogEntry& entry : log.entries()) {
      EXPECT_NE(entry.dtype, at::kDouble);
    }
    expect_equal_gradients(net, plain, 1e-4);
  });
}

TEST(FullyShardSemantics, OptimizersAreMadeBeforeOrAfter) {
  BlockNet plain;
  const auto train = [](BlockNet& net, torch::optim::Optimizer& optimizer,
                        const auto& loss) {
    for (int64_t step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      loss(net, step).backward();
      optimizer.step();
    }
  };
  torch::optim::AdamW optimizer(plain.parameters(), 1e-2);
  train(plain, optimizer, plain_net_loss);
  for (const bool before : {false, true}) {
    run_ranks(2, [&] {
      const auto mesh = mesh_of({2}, {"dp"});
      BlockNet net;
      std::optional<torch::optim::AdamW> its;
      if (before) {
        its.emplace(net.parameters(), 1e-2);
      }
      const auto sharded = fully_shard(net, mesh, kBlocks);
      if (!before) {
        its.emplace(net.parameters(), 1e-2);
      }
      train(net, *its, [&](BlockNet& of, int64_t step) {
        return net_loss_on(of, mesh, step);
      });
      for (size_t p = 0; p < net.parameters().size(); ++p) {
        EXPECT_TRUE(close(net.parameters()[p], plain.parameters()[p], 1e-9));
      }
    });
  }
}

TEST(FullyShardSemantics, ClippingCountsEachElementOnce) {
  BlockNet plain;
  plain_net_loss(plain).backward();
  const double wanted =
      torch::nn::utils::clip_grad_norm_(plain.parameters(), 0.5);
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3}, {"dp"});
    BlockNet net;
    const auto sharded = fully_shard(net, mesh, kBlocks);
    net_loss_on(net, mesh).backward();
    EXPECT_NEAR(
        clip_grad_norm(net.parameters(), 0.5).item<double>(), wanted,
        1e-10 * wanted);
    expect_equal_gradients(net, plain, 1e-10);
  });
}

TEST(FullyShardSemantics, ADeferredModuleIsMadeInParts) {
  BlockNet plain;
  plain_net_loss(plain).backward();
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    std::unique_ptr<BlockNet> net;
    {
      const DeferredInit later;
      net = std::make_unique<BlockNet>();
    }
    const auto sharded = fully_shard(*net, mesh, kBlocks);
    net_loss_on(*net, mesh).backward();
    expect_equal_gradients(*net, plain);
  });
}

// The root is whole after an evaluation, and an optimizer writes its shards.
TEST(FullyShardSemantics, OptimizersMakeGatheredParametersStale) {
  BlockNet plain;
  const auto step = [](BlockNet& net, const auto& loss) {
    torch::optim::SGD sgd(net.parameters(), 0.1);
    torch::optim::AdamW adam(net.parameters(), 0.01);
    loss(net, 0).backward();
    for (torch::optim::Optimizer* optimizer :
         std::initializer_list<torch::optim::Optimizer*>{&sgd, &adam}) {
      const torch::NoGradGuard no_grad;
      loss(net, 1);
      optimizer->step();
    }
    const torch::NoGradGuard no_grad;
    return loss(net, 2);
  };
  const at::Tensor wanted = step(plain, plain_net_loss);
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    const auto sharded = fully_shard(net, mesh, kBlocks);
    EXPECT_TRUE(close(
        step(
            net,
            [&](BlockNet& of, int64_t i) { return net_loss_on(of, mesh, i); }),
        wanted, 1e-12));
  });
}

// Rank 2 runs the same program and has no part in it.
TEST(FullyShardSemantics, RanksOutsideOfTheMesh) {
  BlockNet plain;
  plain_net_loss(plain).backward();
  run_ranks(3, [&] {
    const DeviceMesh mesh(
        testing::device(), at::tensor({0, 1}, at::kLong), {"dp"});
    BlockNet net;
    const auto sharded = fully_shard(net, mesh, kBlocks);
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    for (int step = 0; step < 2; ++step) {
      const CommLog log;
      net_loss_on(net, mesh).backward();
      EXPECT_EQ(counts_of(log).gathers, rank() < 2 ? 6 : 0);
      if (rank() < 2 && step == 0) {
        expect_equal_gradients(net, plain);
      }
      optimizer.step();
      net.zero_grad();
    }
  });
}

TEST(FullyShardSemantics, EvaluationGathersAheadInItsOrder) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    const auto sharded = fully_shard(net, mesh, kBlocks);
    const torch::NoGradGuard no_grad;
    for (int i = 0; i < 3; ++i) {
      net_loss_on(net, mesh);
    }
    EXPECT_EQ(
        sharded.report().forward_order,
        (std::vector<std::string>{"blocks.0", "blocks.1", "blocks.2"}));
  });
}

TEST(FullyShardSemantics, UnshardAndReshardByPath) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    auto sharded = fully_shard(net, mesh, kBlocks);
    sharded.unshard("blocks.1");
    EXPECT_TRUE(sharded.report().groups[2].is_gathered);
    EXPECT_FALSE(sharded.report().groups[1].is_gathered);
    const CommLog log;
    net_loss_on(net, mesh).backward();
    EXPECT_EQ(counts_of(log).gathers, 5);
    sharded.unshard("blocks");
    sharded.reshard("blocks.2");
    EXPECT_TRUE(sharded.report().groups[1].is_gathered);
    EXPECT_FALSE(sharded.report().groups[3].is_gathered);
    sharded.reshard();
    EXPECT_EQ(sharded.report().gathered_bytes, 0);
  });
}

TEST(FullyShardSemantics, PlainInputsAreThisRanksPart) {
  BlockNet plain;
  plain_net_loss(plain).backward();
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    const auto sharded = fully_shard(net, mesh, kBlocks);
    const at::Tensor mine = net_indices(0).chunk(2)[rank()];
    net_loss(net.forward(mine)).backward();
    expect_equal_gradients(net, plain);
  });
}

TEST(FullyShardSemantics, ActivationCheckpointsGatherNoMore) {
  BlockNet plain;
  plain_net_loss(plain).backward();
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    const auto sharded = fully_shard(net, mesh, kBlocks);
    for (int step = 0; step < 2; ++step) {
      net.zero_grad();
      const CommLog log;
      at::Tensor x =
          net.tokens(distribute_tensor(net_indices(0), mesh, {Shard(0)}));
      for (size_t i = 0; i < 3; ++i) {
        x = activation_checkpoint(
            [&net, i](const at::Tensor& y) { return net.block(i).forward(y); },
            x);
      }
      net_loss(net.head(x)).backward();
      EXPECT_EQ(counts_of(log).gathers, 6) << step;
      EXPECT_EQ(counts_of(log).reductions, 4) << step;
      expect_equal_gradients(net, plain);
    }
  });
}

}  // namespace
}  // namespace tessera
