// activation_checkpoint(): what holds on the thread in the forward holds when
// fn runs again.
#include <ATen/autocast_mode.h>

#include "gpt_training.h"
#include "recomputed.h"

namespace tessera {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

// Runs forward under `guard()`, backward without, and compares the gradients
// with those of fn alone.
template <class MakeGuard>
void expect_same_under(
    const MakeGuard& guard, const std::function<at::Tensor(at::Tensor)>& fn,
    const at::Tensor& x) {
  const auto gradient = [&](bool checkpointed) {
    at::Tensor y;
    {
      [[maybe_unused]] const auto held = guard();
      y = checkpointed ? activation_checkpoint(fn, x) : fn(x);
    }
    return torch::autograd::grad({(y * y).sum().to(at::kDouble)}, {x})[0];
  };
  EXPECT_TRUE(close(gradient(true), gradient(false), 1e-12));
}

struct Autocast {
  Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) {
      at::autocast::clear_cache();
    }
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
};

TEST(ActivationCheckpointModes, AutocastHolds) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto x = leaf(distinct({4, 8}, f32()), mesh, {Shard(0)});
    const auto w = leaf(distinct({8, 8}, f32()), mesh, {Replicate()});
    at::ScalarType dtype = at::kFloat;
    expect_same_under(
        [] { return std::make_unique<Autocast>(); },
        [&](at::Tensor h) {
          const auto y = h.mm(w);
          dtype = y.scalar_type();
          EXPECT_EQ(dtype, at::kBFloat16);
          return torch::sin(y.mm(w)).sin();
        },
        x);
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  });
}

TEST(ActivationCheckpointModes, StrictModeAndMeshGuardHold) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto x = leaf(distinct({4, 4}), mesh, {Shard(0)});
    const auto fn = [](at::Tensor h) {
      h = torch::sin(h) + torch::sin(h);
      EXPECT_ERROR(
          "StrictMode forbids", h.mm(redistribute(h, {Shard(1)})).sum(1));
      const auto own = ones({4, 4}, current_mesh(), {Shard(0)});
      return torch::sin(h * own).sin();
    };
    struct Both {
      explicit Both(const DeviceMesh& m) : mesh(m) {}
      MeshGuard mesh;
      StrictMode strict;
    };
    expect_same_under([&] { return std::make_unique<Both>(mesh); }, fn, x);
  });
}

TEST(ActivationCheckpointModes, ImplicitReplicationAndLossParallelHold) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"tp"});
    const auto x = leaf(distinct({4, 6}), mesh, {Shard(1)});
    const auto t = distribute_tensor(at::arange(4, i64()), mesh, {Replicate()});
    struct Both {
      ImplicitReplication replication;
      LossParallel loss;
    };
    const auto scale = distinct({4, 6});
    CommLog log;
    expect_same_under(
        [] { return std::make_unique<Both>(); },
        [&](at::Tensor h) {
          return at::cross_entropy_loss(torch::sin(h * scale), t).sin().sin();
        },
        x);
  });
}

// A plain input of a style is this rank's part, in the backward pass too, where
// plain tensors are else LibTorch's own.
TEST(ActivationCheckpointModes, PlainInputsOfStylesStayParts) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"tp"});
    torch::nn::Linear linear(8, 8);
    linear->to(at::kDouble);
    parallelize_module(
        *linear, mesh, {{"", RowwiseParallel{.input_layouts = Shard(-1)}}});
    const auto x = distinct({3, 4}).add(static_cast<double>(rank()));
    const auto leaf_x = x.clone().requires_grad_();
    expect_same_under(
        [] { return 0; },
        [&](at::Tensor h) { return torch::sin(linear(torch::sin(h))).sin(); },
        leaf_x);
  });
}

TEST(ActivationCheckpointModes, StreamsAndGeneratorsGoBack) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto x = leaf(distinct({4, 8}), mesh, {Shard(0)});
    auto generator = at::detail::createCPUGenerator(7);
    const auto fn = [&](at::Tensor h) {
      const auto mask =
          zeros({4, 8}, device_mesh(h), {Shard(0)}).bernoulli_(0.5, generator);
      return torch::dropout(torch::sin(h * mask), 0.4, true).sin();
    };
    const auto gradient = [&](bool checkpointed) {
      manual_seed(2);
      generator = at::detail::createCPUGenerator(7);
      at::Tensor y;
      {
        const RandomStream stream("stage");
        y = checkpointed ? activation_checkpoint(fn, x) : fn(x);
      }
      const auto result = torch::autograd::grad({y.sum()}, {x})[0];
      const RandomState after = random_state();
      EXPECT_EQ(after.operations, 0U);
      EXPECT_EQ(after.streams.at("stage"), 1U);
      return result;
    };
    EXPECT_TRUE(same(gradient(true), gradient(false)));
  });
}

TEST(ActivationCheckpointModes, TheProcessesGeneratorGoesOn) {
  const auto x = distinct({64}).requires_grad_();
  const auto fn = [](at::Tensor h) {
    return torch::dropout(torch::sin(h), 0.5, true).sin();
  };
  const auto run = [&](bool checkpointed) {
    torch::manual_seed(1);
    const auto y = checkpointed ? activation_checkpoint(fn, x) : fn(x);
    const auto between = torch::rand({3});
    const auto gradient = torch::autograd::grad({y.sum()}, {x})[0];
    return at::cat(
        {gradient, between.to(at::kDouble), torch::rand({3}).to(at::kDouble)});
  };
  EXPECT_TRUE(same(run(true), run(false)));
}

TEST(ActivationCheckpointModes, ATrainingStepIsTheSame) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"tp"});
    const GptSizes sizes;
    const auto losses = [&](bool checkpointed) {
      Gpt model = new_gpt(sizes);
      parallelize_module(model, mesh, with_vocabulary(tensor_parallel()));
      torch::optim::AdamW optimizer(model->parameters(), 1e-2);
      std::vector<double> all;
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        const LossParallel guard;
        at::Tensor h = model->tokens(distribute_tensor(
                           indices(sizes, step), mesh, {Replicate()})) +
                       model->positions;
        for (const auto& module : *model->blocks) {
          auto* block = module->as<gpt::BlockImpl>();
          const auto fn = [block](at::Tensor t) { return block->forward(t); };
          h = checkpointed ? activation_checkpoint(fn, h) : fn(h);
        }
        const auto loss = loss_of(
            model->head(model->norm(h)),
            distribute_tensor(targets(sizes, step), mesh, {Replicate()}));
        loss.backward();
        optimizer.step();
        all.push_back(full_tensor(loss.detach()).item<double>());
      }
      return all;
    };
    const auto got = losses(true), want = losses(false);
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(got[i], want[i], 1e-12);
    }
  });
}

}  // namespace
}  // namespace tessera
