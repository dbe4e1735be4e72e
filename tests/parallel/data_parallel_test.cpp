// DataParallel: gradients that stay addends until they are reduced together.
#include "gpt_training.h"

namespace tessera {
namespace {

using testing::close;
using testing::distinct;
using testing::f64;
using testing::mesh_of;

struct Net : torch::nn::Module {
  Net() {
    for (int i = 0; i < 4; ++i) {
      layers.push_back(register_module(
          "layer" + std::to_string(i), torch::nn::Linear(6, 6)));
    }
    to(testing::device(), at::kDouble);
    const torch::NoGradGuard guard;
    for (const at::Tensor& p : parameters()) {
      p.copy_(distinct(p.sizes()).mul(0.3));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers) {
      x = torch::tanh(layer(x));
    }
    return x;
  }
  std::vector<torch::nn::Linear> layers;
};

at::Tensor batch(int64_t i) {
  return distinct({5, 6}).add(static_cast<double>(i));
}
at::Tensor loss(const at::Tensor& y) {
  return (y * y).mean();
}

TEST(DataParallel, GivesTheGradientsOfTheWholeBatch) {
  Net plain;
  loss(plain.forward(batch(0))).backward();
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3}, {"dp"});
    Net net;
    distribute_parameters(net, mesh);
    DataParallel parallel(net, mesh, {.bucket_bytes = 300});
    EXPECT_GT(parallel.bucket_count(), 1);
    loss(net.forward(distribute_tensor(batch(0), mesh, {Shard(0)}))).backward();
    parallel.reduce_gradients();
    const auto mine = net.named_parameters();
    for (const auto& p : plain.named_parameters()) {
      const at::Tensor gradient = mine[p.key()].grad();
      EXPECT_TRUE(placements(gradient)[0].is_replicate());
      EXPECT_TRUE(close(gradient, p.value().grad())) << p.key();
    }
  });
}

TEST(DataParallel, BeginsToReduceDuringBackward) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    Net net;
    distribute_parameters(net, mesh);
    DataParallel parallel(net, mesh, {.bucket_bytes = 400});
    const auto y =
        loss(net.forward(distribute_tensor(batch(0), mesh, {Shard(0)})));
    const CommLog log;
    y.backward();
    EXPECT_EQ(log.count(), parallel.bucket_count());
    parallel.reduce_gradients();
    EXPECT_EQ(log.count(), parallel.bucket_count());
  });
}

TEST(DataParallel, AccumulatesWithoutCommunication) {
  Net plain;
  for (int64_t i = 0; i < 3; ++i) {
    loss(plain.forward(batch(i))).backward();
  }
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    Net net;
    distribute_parameters(net, mesh);
    DataParallel parallel(net, mesh);
    const auto losses = [&](int64_t i) {
      return loss(net.forward(distribute_tensor(batch(i), mesh, {Shard(0)})));
    };
    {
      const DataParallel::Accumulate accumulate(parallel);
      for (int64_t i = 0; i < 2; ++i) {
        const auto l = losses(i);
        const CommLog log;
        l.backward();
        EXPECT_EQ(log.count(), 0);
      }
    }
    losses(2).backward();
    parallel.reduce_gradients();
    const auto mine = net.named_parameters();
    for (const auto& p : plain.named_parameters()) {
      EXPECT_TRUE(close(mine[p.key()].grad(), p.value().grad())) << p.key();
    }
  });
}

// Two backward passes without Accumulate: what the first began is part of the
// sums that the second adds to.
TEST(DataParallel, ServesSeveralBackwardPassesOfAStep) {
  Net plain;
  for (int64_t i = 0; i < 2; ++i) {
    loss(plain.forward(batch(i))).backward();
  }
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    Net net;
    distribute_parameters(net, mesh);
    DataParallel parallel(net, mesh, {.bucket_bytes = 400});
    for (int64_t i = 0; i < 2; ++i) {
      loss(net.forward(distribute_tensor(batch(i), mesh, {Shard(0)})))
          .backward();
    }
    parallel.reduce_gradients();
    const auto mine = net.named_parameters();
    for (const auto& p : plain.named_parameters()) {
      EXPECT_TRUE(close(mine[p.key()].grad(), p.value().grad())) << p.key();
    }
  });
}

TEST(DataParallel, LeavesParametersWithoutGradientAlone) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    Net net;
    net.layers[1]->weight.requires_grad_(false);
    distribute_parameters(net, mesh);
    DataParallel parallel(net, mesh);
    const auto x = distribute_tensor(batch(0), mesh, {Shard(0)});
    loss(net.layers[2](x)).backward();  // the others have none
    parallel.reduce_gradients();
    EXPECT_FALSE(net.layers[0]->weight.grad().defined());
    EXPECT_FALSE(net.layers[1]->weight.grad().defined());
    Net plain;
    loss(plain.layers[2](batch(0))).backward();
    EXPECT_TRUE(
        close(net.layers[2]->weight.grad(), plain.layers[2]->weight.grad()));
  });
}

struct TwoNamesImpl : torch::nn::Module {
  TwoNamesImpl() {
    layer = register_module("a", torch::nn::Linear(6, 6));
    register_module("b", layer);
    spare = register_module("c", torch::nn::Linear(6, 6));
    to(testing::device(), at::kDouble);
  }
  torch::nn::Linear layer = nullptr, spare = nullptr;
};

// One parameter under two names, and one that no loss depends on: reductions
// still begin in backward, from the second step on.
TEST(DataParallel, KnowsParametersOnceAndLearnsWhichAreUnused) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    TwoNamesImpl net;
    distribute_parameters(net, mesh);
    int64_t bytes = 0;
    for (const at::Tensor& p : net.layer->parameters()) {
      bytes += p.numel() * 8;
    }
    DataParallel parallel(net, mesh, {.bucket_bytes = 100});
    const auto x = distribute_tensor(batch(0), mesh, {Shard(0)});
    for (int step = 0; step < 3; ++step) {
      net.zero_grad();
      const auto y = loss(net.layer(x));
      const CommLog log;
      y.backward();
      EXPECT_EQ(log.count() > 0, step > 0);
      parallel.reduce_gradients();
      EXPECT_EQ(log.bytes(), bytes);
    }
  });
}

// A weight that is cut along the batch's dim has no gradient to sum up later.
TEST(DataParallel, LeavesCutParametersToThemselves) {
  Net plain;
  loss(plain.forward(batch(0))).backward();
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    Net net;
    distribute_parameters(net, mesh, [](auto&, auto& m, const auto& on) {
      if (auto* linear = m.template as<torch::nn::Linear>()) {
        make_dtensor_(linear->weight, on, {Shard(0)});
      }
    });
    DataParallel parallel(net, mesh);
    loss(net.forward(distribute_tensor(batch(0), mesh, {Shard(0)}))).backward();
    parallel.reduce_gradients();
    const auto mine = net.named_parameters();
    for (const auto& p : plain.named_parameters()) {
      EXPECT_EQ(placements(mine[p.key()].grad()), placements(mine[p.key()]));
      EXPECT_TRUE(close(mine[p.key()].grad(), p.value().grad())) << p.key();
    }
  });
}

TEST(DataParallel, GivesGradientsBackAtItsEnd) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    Net net;
    distribute_parameters(net, mesh);
    { const DataParallel parallel(net, mesh); }
    loss(net.forward(distribute_tensor(batch(0), mesh, {Shard(0)}))).backward();
    EXPECT_EQ(to_string(placements(net.layers[0]->weight.grad())), "R");
  });
}

TEST(DataParallel, RefusesWhatItCannotServe) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    Net net;
    EXPECT_ERROR("layer0.weight, plain", DataParallel(net, mesh));
    distribute_parameters(net, mesh);
    EXPECT_ERROR(
        "bucket_bytes must be above 0",
        DataParallel(net, mesh, {.bucket_bytes = 0}));
    const DataParallel one(net, mesh);
    EXPECT_ERROR("the other DataParallel", DataParallel(net, mesh));
    EXPECT_ERROR(
        "has no dim \"tp\"", DataParallel(net, mesh, {.mesh_dim = "tp"}));
  });
}

}  // namespace
}  // namespace tessera
