// Programs on sharded tensors as one simulated rank: shapes, and the data that
// the rank holds, are those of a real one.
#include <set>

#include <harness/sharded_test.h>
#include <sharded_tensor/tensor/family_test.h>

namespace tessera {
namespace {

using testing::counting;
using testing::f32;
using testing::f64;
using testing::mesh_of;

struct Case {
  std::vector<int64_t> mesh;
  std::vector<int64_t> shape;
  Placements from;
  Placements to;
};

std::vector<Case> cases() {
  const std::vector<Placements> on_line = {
      {Shard(0)}, {Shard(1)}, {Replicate()}, {Partial()}};
  const std::vector<Placements> on_square = {
      {Shard(0), Shard(1)},
      {Shard(1), Shard(0)},
      {Shard(0), Shard(0)},
      {Shard(0).with_order(1), Shard(0).with_order(0)},
      {Replicate(), Shard(1)},
      {Shard(0), Replicate()},
      {Replicate(), Replicate()},
      {Partial(), Shard(0)}};
  std::vector<Case> all;
  const auto add = [&](const std::vector<int64_t>& mesh,
                       const std::vector<Placements>& placements) {
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{4, 8}, {5, 3}, {1, 7}}) {
      for (const Placements& from : placements) {
        for (const Placements& to : placements) {
          all.push_back({mesh, shape, from, to});
        }
      }
    }
  };
  add({3}, on_line);
  add({2, 2}, on_square);
  return all;
}

struct Shards {
  at::Tensor before;
  at::Tensor after;
};

// Element i of the global tensor is i, so a value tells its place.
std::vector<Shards> move_all(const std::vector<int64_t>& mesh_shape) {
  const auto mesh = mesh_of(mesh_shape);
  std::vector<Shards> shards;
  for (const Case& c : cases()) {
    if (c.mesh == mesh_shape) {
      const auto t = distribute_tensor(counting(c.shape), mesh, c.from);
      shards.push_back(
          {to_local(t).clone(), to_local(redistribute(t, c.to)).clone()});
    }
  }
  return shards;
}

std::set<double> values_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  const auto* data = flat.const_data_ptr<double>();
  return {data, data + flat.numel()};
}

// Expects that elements which a rank held before are right after a move.
void expect_held(const Shards& got, const Shards& want) {
  ASSERT_EQ(got.after.sizes(), want.after.sizes());
  EXPECT_TRUE(at::equal(got.before, want.before));
  const std::set<double> held = values_of(want.before);
  const at::Tensor mine = got.after.contiguous();
  const at::Tensor real = want.after.contiguous();
  for (int64_t i = 0; i < real.numel(); ++i) {
    const double value = real.const_data_ptr<double>()[i];
    if (held.contains(value)) {
      EXPECT_EQ(mine.const_data_ptr<double>()[i], value);
    }
  }
}

TEST(SimulatedTensors, HaveTheShardsOfRealRanks) {
  for (const std::vector<int64_t>& mesh :
       {std::vector<int64_t>{3}, std::vector<int64_t>{2, 2}}) {
    const int n = mesh.size() == 1 ? 3 : 4;
    std::vector<std::vector<Shards>> real(static_cast<size_t>(n));
    run_ranks(n, [&] { real[static_cast<size_t>(rank())] = move_all(mesh); });
    std::vector<Case> moved;
    for (const Case& c : cases()) {
      if (c.mesh == mesh) {
        moved.push_back(c);
      }
    }
    for (int r = 0; r < n; ++r) {
      run_simulated({.rank = r, .size = n}, [&] {
        const auto got = move_all(mesh);
        const auto& want = real[static_cast<size_t>(r)];
        ASSERT_EQ(got.size(), moved.size());
        for (size_t i = 0; i < got.size(); ++i) {
          SCOPED_TRACE(
              to_string(moved[i].from) + " -> " + to_string(moved[i].to) +
              ", case " + std::to_string(i) + ", rank " + std::to_string(r));
          const bool reduces =
              moved[i].from[0].is_partial() && !moved[i].to[0].is_partial();
          if (reduces) {
            EXPECT_EQ(got[i].after.sizes(), want[i].after.sizes());
          } else {
            expect_held(got[i], want[i]);
          }
        }
      });
    }
  }
}

TEST(SimulatedTensors, DrawTheRandomNumbersOfTheirRank) {
  const auto draw = [] {
    manual_seed(7);
    const auto mesh = mesh_of({2, 2});
    return to_local(randn({5, 6}, mesh, {Shard(0), Shard(1)})).clone();
  };
  std::vector<at::Tensor> real(4);
  run_ranks(4, [&] { real[static_cast<size_t>(rank())] = draw(); });
  for (int r = 0; r < 4; ++r) {
    run_simulated({.rank = r, .size = 4}, [&] {
      EXPECT_TRUE(at::equal(draw(), real[static_cast<size_t>(r)]));
    });
  }
}

// Two layers, one cut by columns and one by rows, over a batch cut by dp.
struct Mlp : torch::nn::Module {
  explicit Mlp(int64_t width)
      : up(register_module("up", torch::nn::Linear(width, 2 * width))),
        down(register_module("down", torch::nn::Linear(2 * width, width))) {}
  at::Tensor forward(const at::Tensor& x) { return down(torch::relu(up(x))); }
  torch::nn::Linear up, down;
};

// One step of training; returns the shapes of all shards that it meets.
std::vector<std::vector<int64_t>> train(
    const std::vector<int64_t>& mesh_shape, int64_t width, int64_t batch) {
  const auto mesh = mesh_of(mesh_shape, {"dp", "tp"});
  auto net = std::make_shared<Mlp>(width);
  distribute_parameters(
      *net, mesh,
      [](const std::string& name, torch::nn::Module& module,
         const DeviceMesh& on) {
        if (auto* linear = module.as<torch::nn::Linear>()) {
          make_dtensor_(
              linear->weight, on, {Replicate(), Shard(name == "up" ? 0 : 1)});
        }
      });
  const auto x = randn({batch, width}, mesh, {Shard(0), Replicate()});
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const auto y = net->forward(x);
  const auto loss = y.square().mean();
  loss.backward();
  optimizer.step();
  std::vector<std::vector<int64_t>> shapes;
  for (const at::Tensor& t : {x, y, loss}) {
    shapes.push_back(to_local(t).sizes().vec());
  }
  for (const at::Tensor& p : net->parameters()) {
    EXPECT_EQ(placements(p.grad()), placements(p));
    EXPECT_TRUE(at::isfinite(to_local(p.detach())).all().item<bool>());
    shapes.push_back(to_local(p).sizes().vec());
    shapes.push_back(to_local(p.grad()).sizes().vec());
  }
  EXPECT_TRUE(std::isfinite(full_tensor(loss).item<double>()));
  return shapes;
}

TEST(SimulatedTensors, TrainWithTheShapesOfRealRanks) {
  for (const auto& [width, batch] : {std::pair{8, 4}, std::pair{7, 5}}) {
    std::vector<std::vector<std::vector<int64_t>>> real(4);
    run_ranks(4, [&, w = width, b = batch] {
      real[static_cast<size_t>(rank())] = train({2, 2}, w, b);
    });
    for (int r = 0; r < 4; ++r) {
      run_simulated({.rank = r, .size = 4}, [&, w = width, b = batch] {
        EXPECT_EQ(train({2, 2}, w, b), real[static_cast<size_t>(r)]);
      });
    }
  }
}

TEST(SimulatedTensors, TrainOn65536Ranks) {
  for (const int64_t r : {0, 17, 32896, 65535}) {
    run_simulated({.rank = r, .size = 65536}, [&] {
      CommLog log;
      const auto shapes = train({256, 256}, 128, 256);
      EXPECT_EQ(shapes[0], (std::vector<int64_t>{1, 128}));
      // up.weight, its gradient: 256 rows over 256 ranks of tp.
      EXPECT_EQ(shapes[3], (std::vector<int64_t>{1, 128}));
      EXPECT_EQ(shapes[4], (std::vector<int64_t>{1, 128}));
      // down.weight: 256 columns over 256 ranks.
      EXPECT_EQ(shapes[7], (std::vector<int64_t>{128, 1}));
      EXPECT_GT(log.count(), 0);
    });
  }
}

TEST(SimulatedTensors, RunChecksThatAskTheOthers) {
  run_simulated({.rank = 5, .size = 8}, [] {
    const auto mesh = mesh_of({2, 4});
    const auto t = from_local(
        counting({2, 3}), mesh, {Replicate(), Shard(0)}, {.run_check = true});
    EXPECT_EQ(t.sizes(), at::IntArrayRef({8, 3}));
    const auto same = t + 0;
    EXPECT_TRUE(at::equal(t, same));
    EXPECT_EQ(t.sum().item<double>(), 4 * 15);
    CommLog log;
    redistribute(t, {Replicate(), Replicate()});
    EXPECT_EQ(log.largest_over(init().communicator()).size(), 1U);
  });
}

TEST(SimulatedTensors, AsynchronousMovesArrive) {
  run_simulated({.rank = 5, .size = 8}, [] {
    const auto mesh = mesh_of({8});
    const auto t = ones({16, 8}, mesh, {Shard(0)}, f32());
    const auto moved = redistribute(t, {Shard(1)}, {.async = true});
    EXPECT_TRUE(at::equal(to_local(moved), at::ones({16, 1})));
  });
}

TEST(SimulatedTensors, DoWhatExplainSays) {
  run_simulated({.rank = 40000, .size = 65536}, [] {
    const auto mesh = mesh_of({256, 256}, {"dp", "tp"});
    const auto t = zeros({1024, 512}, mesh, {Shard(0), Shard(1)});
    const Placements target{Replicate(), Shard(0)};
    const std::string told = explain("redistribute", t, target);
    CommLog log;
    redistribute(t, target);
    ASSERT_GT(log.count(), 0);
    for (const CommLogEntry& entry : log.entries()) {
      EXPECT_NE(told.find(entry.line()), std::string::npos)
          << entry.line() << " is missing in " << told;
    }
  });
}

TEST(SimulatedTensors, ShardedTensorsMoveBetweenTilings) {
  run_simulated({.rank = 2, .size = 4}, [] {
    const auto rows = testing::chunks(0, {0, 1, 2, 3});
    const auto columns = testing::chunks(1, {3, 2, 1, 0});
    auto t = sharded_tensor::ones(rows, {10, 8});
    EXPECT_EQ(t.local_tensor().sizes(), at::IntArrayRef({3, 8}));
    t.reshard(columns);
    EXPECT_EQ(t.local_tensor().sizes(), at::IntArrayRef({10, 2}));
    // The rows 6, 7 and 8 were here before.
    EXPECT_TRUE(at::equal(t.local_tensor().narrow(0, 6, 3), at::ones({3, 2})));
  });
}

TEST(SimulatedTensors, RanksOutsideAMeshHoldNothing) {
  run_simulated({.rank = 7, .size = 8}, [] {
    const auto mesh = mesh_of({2, 2});
    EXPECT_FALSE(mesh.coordinate().has_value());
    const auto t = ones({4, 4}, mesh, {Shard(0), Shard(1)}, f64());
    EXPECT_EQ(to_local(t + t).numel(), 0);
    const auto everywhere = mesh_of({8});
    const auto moved = redistribute(t, everywhere, {Shard(0)});
    EXPECT_EQ(to_local(moved).sizes(), at::IntArrayRef({0, 4}));
  });
}

}  // namespace
}  // namespace tessera
