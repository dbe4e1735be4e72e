// activation_checkpoint(): values, gradients, how often fn runs, what it
// communicates and holds.
#include <harness/counting_allocator.h>

#include "gpt_training.h"
#include "recomputed.h"

namespace tessera {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

TEST(ActivationCheckpoint, PlainValuesAndGradients) {
  const auto x = distinct({4, 8}).requires_grad_();
  const auto w = distinct({8, 8}).requires_grad_();
  const auto fn = [&](const Tensors& in) {
    return Tensors{torch::dropout(torch::gelu(in[0].mm(w)), 0.3, true).tanh()};
  };
  const auto run = [&](const CheckpointFn& program) {
    torch::manual_seed(3);
    return run_once(program, {x}, {w});
  };
  const auto want = run(fn);
  const auto got =
      run([&](const Tensors& in) { return activation_checkpoint(fn, in); });
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(same(got[i], want[i])) << i;
  }
}

TEST(ActivationCheckpoint, ShardedValuesAndGradients) {
  run_ranks(3, [] {
    const auto mesh = mesh_of({3});
    const auto index = distribute_tensor(
        at::arange(5, i64()).remainder(4), mesh, {Replicate()});
    for (const Placement& p : {Shard(0), Shard(1), Replicate()}) {
      const auto x = leaf(distinct({5, 8}), mesh, {p});
      const auto w = leaf(distinct({8, 8}), mesh, {Shard(0)});
      const auto fn = [&](const Tensors& in) {
        const auto h = torch::dropout(torch::gelu(in[0].mm(w)), 0.3, true);
        const auto y = torch::softmax(redistribute(h, {Shard(1)}), 1);
        return Tensors{y.index_select(1, in[1]), h.std(0)};
      };
      expect_recomputed(fn, {x, index}, {w});
      expect_recomputed(fn, {x, index}, {w}, {.keep_moved = false});
    }
  });
}

TEST(ActivationCheckpoint, BatchNorm) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    for (const Placement& p : {Shard(0), Shard(1)}) {
      const auto x = leaf(distinct({6, 4}), mesh, {p});
      const auto w = leaf(distinct({4}), mesh, {Replicate()});
      const auto mean = zeros({4}, mesh, {Replicate()}, f64());
      const auto variance = ones({4}, mesh, {Replicate()}, f64());
      expect_recomputed(
          [&](const Tensors& in) {
            return Tensors{torch::batch_norm(
                               torch::sin(in[0]), w, {}, mean, variance,
                               /*training=*/true, 0.1, 1e-5, false)
                               .sin()
                               .sin()};
          },
          {x}, {w});
    }
  });
}

TEST(ActivationCheckpoint, TwoUsesNestedRegionsAndCapturedTensors) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto x = leaf(distinct({6, 8}), mesh, {Shard(0)});
    const auto w = leaf(distinct({8, 8}), mesh, {Shard(1)});
    const auto layer = [&](const at::Tensor& h) {
      return torch::dropout(torch::tanh(h.mm(w)), 0.2, true);
    };
    expect_recomputed(
        [&](const Tensors& in) {
          return Tensors{in_region(layer, in_region(layer, in[0]))};
        },
        {x}, {w});
    const auto captured = x.exp();  // a part of its gradient comes from inside
    const auto fn = [&](at::Tensor h) { return h * captured.mm(w); };
    const auto alone = torch::autograd::grad({fn(x).sum()}, {x, w}, {}, true);
    const auto got =
        torch::autograd::grad({in_region(fn, x).sum()}, {x, w}, {}, true);
    EXPECT_TRUE(close(got[0], alone[0], 1e-12));
    EXPECT_TRUE(close(got[1], alone[1], 1e-12));
  });
}

// The inner regions are twice as deep as the sequence of two layers.
TEST(ActivationCheckpoint, RegionsInRegions) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto x = leaf(distinct({4, 4}), mesh, {Shard(0)});
    const auto w = leaf(distinct({4, 4}), mesh, {Replicate()});
    std::function<at::Tensor(at::Tensor, int)> deep = [&](at::Tensor h,
                                                          int depth) {
      if (depth == 0) {
        return torch::dropout(torch::sin(h.mm(w)), 0.2, true);
      }
      const auto inner = [&, depth](at::Tensor t) {
        return deep(std::move(t), depth - 1);
      };
      return torch::tanh(in_region(inner, torch::cos(in_region(inner, h))));
    };
    std::function<at::Tensor(at::Tensor, int)> flat = [&](at::Tensor h,
                                                          int depth) {
      return depth == 0
                 ? torch::dropout(torch::sin(h.mm(w)), 0.2, true)
                 : torch::tanh(flat(
                       torch::cos(flat(std::move(h), depth - 1)), depth - 1));
    };
    const auto want = run_once(
        [&](const Tensors& in) { return Tensors{flat(in[0], 3)}; }, {x}, {w});
    const auto got = run_once(
        [&](const Tensors& in) { return Tensors{deep(in[0], 3)}; }, {x}, {w});
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_TRUE(close(got[i], want[i], 1e-12)) << i;
    }
  });
}

TEST(ActivationCheckpoint, GradOfParametersHigherOrdersAndTwoPasses) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto x = leaf(distinct({4, 8}), mesh, {Shard(0)});
    const auto w = leaf(distinct({8, 8}), mesh, {Shard(1)});
    const auto fn = [&](at::Tensor h) { return torch::tanh(h.mm(w)).pow(3); };
    const auto second = [&](const at::Tensor& y) {
      const auto g = torch::autograd::grad({y.sum()}, {x}, {}, true, true);
      return torch::autograd::grad({g[0].pow(2).sum()}, {w, x});
    };
    const auto want = second(fn(x));
    const auto got = second(in_region(fn, x));
    EXPECT_TRUE(close(got[0], want[0], 1e-12));
    EXPECT_TRUE(close(got[1], want[1], 1e-12));

    const auto y = in_region(fn, x);
    const auto first = torch::autograd::grad({y.sum()}, {w}, {}, true);
    const auto again = torch::autograd::grad({y.sum()}, {w});
    EXPECT_TRUE(same(first[0], again[0]));
    EXPECT_TRUE(
        close(first[0], torch::autograd::grad({fn(x).sum()}, {w})[0], 1e-12));
  });
}

TEST(ActivationCheckpoint, RunsAgainOnceAndStopsWhenAllIsThere) {
  const auto x = distinct({4, 4}).requires_grad_();
  int began = 0, ended = 0;
  const auto fn = [&](at::Tensor h) {
    ++began;
    h = torch::sin(torch::sin(h)) + 1;
    ++ended;
    return h;
  };
  const auto y = in_region(fn, x);
  EXPECT_EQ(began, 1);
  y.sum().backward();
  EXPECT_EQ(began, 2);
  EXPECT_EQ(ended, 1);  // nothing was saved by the last sum
  {
    const torch::NoGradGuard guard;
    in_region(fn, x);
    EXPECT_EQ(ended, 2);
  }
  in_region([](at::Tensor h) { return h * 2; }, x).sum().backward();
}

// A block with tensor parallelism communicates after its attention and after
// its MLP; nothing saved needs the second of them.
TEST(ActivationCheckpoint, CommunicatesOnceWithKeepMoved) {
  for (const bool keep : {true, false}) {
    run_ranks(2, [&] {
      const auto mesh = mesh_of({2}, {"tp"});
      const GptSizes sizes;
      Gpt model = new_gpt(sizes);
      parallelize_module(model, mesh, tensor_parallel());
      auto& block = *model->blocks[0]->as<gpt::BlockImpl>();
      const auto x =
          leaf(distinct({2, sizes.length, sizes.width}), mesh, {Replicate()});
      const auto count = [&](const CheckpointFn& program) {
        const CommLog log;
        const auto y = program({x})[0];
        const auto forward = log.count();
        y.sum().backward();
        return std::pair(forward, log.count() - forward);
      };
      const CheckpointFn fn = [&](const Tensors& in) {
        return Tensors{block.forward(in[0])};
      };
      const auto [forward, backward] = count(fn);
      EXPECT_EQ(forward, 2);
      const auto [first, rest] = count([&](const Tensors& in) {
        return activation_checkpoint(fn, in, {.keep_moved = keep});
      });
      EXPECT_EQ(first, forward);
      EXPECT_EQ(rest, backward + (keep ? 0 : 1));
      expect_recomputed(fn, {x}, block.parameters(), {.keep_moved = keep});
    });
  }
}

// Kept results are those of the first run, whatever writes into them.
TEST(ActivationCheckpoint, KeptMovesSurviveWritesAndSecondPasses) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto x = leaf(distinct({4, 4}), mesh, {Shard(0)});
    const auto fn = [](at::Tensor h) {
      auto moved = redistribute(torch::sin(h), {Replicate()});
      const auto late =
          redistribute(torch::cos(h), {Shard(1)}, {.async = true});
      moved.mul_(2);
      return torch::sin(moved).pow(2) * late;
    };
    const auto want = torch::autograd::grad({fn(x).sum()}, {x})[0];
    const auto y = in_region(fn, x);
    const CommLog log;
    for (const bool keep_graph : {true, true, false}) {
      const auto got = torch::autograd::grad({y.sum()}, {x}, {}, keep_graph)[0];
      EXPECT_TRUE(close(got, want, 1e-12));
    }
    EXPECT_EQ(log.count() % 3, 0);  // three equal passes
  });
}

// An operator whose result is kept does not run again, nor what it moves.
TEST(ActivationCheckpoint, KeepsResultsOfOperators) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto x = leaf(distinct({4, 6}), mesh, {Shard(1)});
    const auto w = leaf(distinct({6, 4}), mesh, {Shard(0)});
    const auto fn = [&](at::Tensor h) {
      return torch::sin(torch::sin(h.mm(w)));  // sums up the products
    };
    const auto want = torch::autograd::grad({fn(x).sum()}, {x, w});
    const auto collectives = [&](const std::vector<std::string>& keep) {
      const auto y = in_region(fn, x, {.keep_moved = false, .keep = keep});
      const CommLog log;
      const auto got = torch::autograd::grad({y.sum()}, {x, w}, {}, true);
      const auto count = log.count();
      const auto again = torch::autograd::grad({y.sum()}, {x, w});
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_TRUE(close(got[i], want[i], 1e-12));
        EXPECT_TRUE(close(again[i], want[i], 1e-12));
      }
      return count;
    };
    EXPECT_EQ(collectives({"aten::s[ij]n"}), collectives({}) - 1);
    EXPECT_EQ(collectives({"aten::mm", "aten::add*"}), collectives({}));
    EXPECT_ERROR(
        "no operator is called \"aten::sine\"",
        in_region(fn, x, {.keep = {"aten::sine"}}));
    const auto writes = [&](at::Tensor h) {
      auto s = torch::sin(torch::dropout(h.mm(w), 0.5, true));
      s.mul_(2);  // what was kept is no more
      return torch::sin(s).sin();
    };
    for (const bool keep_moved : {true, false}) {
      expect_recomputed(
          [&](const Tensors& in) { return Tensors{writes(in[0])}; }, {x}, {w},
          {.keep_moved = keep_moved, .keep = {"aten::*"}});
    }
  });
}

TEST(ActivationCheckpoint, KeepsResultsOfOperatorsOnPlainTensors) {
  const auto x = distinct({4, 6}).requires_grad_();
  const auto w = distinct({6, 6}).requires_grad_();
  expect_recomputed(
      [&](const Tensors& in) {
        const auto h = torch::softmax(in[0].mm(w), 1);
        return Tensors{torch::layer_norm(h.mm(w), {6}).tanh().tanh()};
      },
      {x}, {w}, {.keep = {"aten::mm", "aten::*softmax*", "aten::native_*"}});
}

// k regions of m layers: the inputs of regions and one region's activations.
TEST(ActivationCheckpoint, HoldsInputsAndOneRegion) {
  if (device() != at::kCPU) {
    GTEST_SKIP() << "counts the memory of the CPU";
  }
  constexpr int64_t kRegions = 6, kLayers = 4, kBytes = int64_t{256} * 64 * 8;
  const WithCounts counts;
  run_ranks(1, [&] {
    const auto mesh = mesh_of({1});
    const auto x = leaf(distinct({256, 64}), mesh, {Shard(0)});
    const auto region = [](at::Tensor h) {
      for (int64_t i = 0; i < kLayers; ++i) {
        h = torch::sin(h);  // saves its input
      }
      return h;
    };
    const auto peak_of = [&](bool checkpointed) {
      auto& count = CountingAllocator::of_rank();
      x.mutable_grad() = at::Tensor();
      const int64_t before = count.live;
      count.peak = before;
      at::Tensor h = x;
      for (int64_t i = 0; i < kRegions; ++i) {
        h = checkpointed ? in_region(region, h) : region(h);
      }
      h.sum().backward();
      return static_cast<double>(count.peak - before) / kBytes;
    };
    const double plain_peak = peak_of(false);
    const double peak = peak_of(true);
    EXPECT_GT(plain_peak, kRegions * kLayers - 1);
    // Inputs but the first, which is a leaf; activations of one region; a
    // gradient that comes, one that goes and one for the formula between; 5 KB
    // of LibTorch's generator per region.
    EXPECT_LT(peak, (kRegions - 1) + kLayers + 3.3);
    std::cout << "peak in activations: plain " << plain_peak
              << ", checkpointed " << peak << "\n";
    EXPECT_LT(peak_of(true), peak + 0.1);  // nothing stays
  });
}

}  // namespace
}  // namespace tessera
