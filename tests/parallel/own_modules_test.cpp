// Modules as users have them: own parameters and a hand-written forward(), and
// LibTorch's ready-made layers, each against the same module on one device.
#include <functional>

#include "gpt_training.h"

namespace tessera {
namespace {

using testing::close;
using testing::distinct;
using testing::f64;
using testing::i64;
using testing::mesh_of;

template <class M>
M filled(M module) {
  module->to(testing::device(), at::kDouble);
  const torch::NoGradGuard guard;
  double shift = 0.01;
  for (const at::Tensor& p : module->parameters()) {
    p.copy_(distinct(p.sizes()).mul(0.3).add(shift));
    shift += 0.02;
  }
  return module;
}

// The same on a mesh.
template <class M>
M parallel(const M& module, const DeviceMesh& mesh, const ParallelPlan& plan) {
  M result = filled(module);
  parallelize_module(result, mesh, plan);
  return result;
}

// Values, gradients of parameters and of the input, on one device and on a
// mesh.
template <class M>
void expect_equal(
    const std::function<M()>& make, const at::Tensor& input,
    const ParallelPlan& plan, int ranks,
    const std::function<at::Tensor(M&, const at::Tensor&)>& call,
    const std::string& result = "") {
  M plain = filled(make());
  const at::Tensor a = input.clone();
  a.requires_grad_(a.is_floating_point());
  const at::Tensor want = call(plain, a);
  (want * want).sum().backward();
  run_ranks(ranks, [&] {
    const auto mesh = mesh_of({ranks}, {"tp"});
    M module = parallel(make(), mesh, plan);
    at::Tensor x = distribute_tensor(input, mesh, {Replicate()});
    x.requires_grad_(x.is_floating_point());
    const at::Tensor got = call(module, x);
    if (!result.empty()) {
      EXPECT_EQ(to_string(placements(got)), result);
    }
    EXPECT_TRUE(close(got, want));
    (got * got).sum().backward();
    if (x.is_floating_point()) {
      EXPECT_TRUE(close(x.grad(), a.grad()));
    }
    const auto mine = module->named_parameters();
    for (const auto& p : plain->named_parameters()) {
      ASSERT_TRUE(is_dtensor(mine[p.key()])) << p.key();
      EXPECT_TRUE(close(mine[p.key()].grad(), p.value().grad())) << p.key();
      EXPECT_EQ(placements(mine[p.key()].grad()), placements(mine[p.key()]))
          << p.key();
    }
  });
}

template <class M>
at::Tensor forward(M& module, const at::Tensor& x) {
  return module->forward(x);
}

/// Written before anyone thought of ranks.
struct GateImpl : torch::nn::Module {
  GateImpl() {
    enter = register_parameter("enter", torch::zeros({6, 10}));
    gate = register_parameter("gate", torch::zeros({6, 10}));
    leave = register_parameter("leave", torch::zeros({10, 6}));
    gain = register_parameter("gain", torch::zeros({6}));
    seen = register_buffer("seen", torch::zeros({1}, torch::kLong));
  }
  at::Tensor forward(const at::Tensor& x) {
    seen += 1;
    const at::Tensor inner =
        torch::silu(x.matmul(gate)) * torch::matmul(x, enter);
    return x + inner.matmul(leave) * gain;
  }
  at::Tensor enter, gate, leave, gain, seen;
};
TORCH_MODULE(Gate);

ParallelPlan gate_plan() {
  return {
      {"enter", ParameterParallel{.placement = Shard(1)}},
      {"gate", ParameterParallel{.placement = Shard(1)}},
      {"leave", ParameterParallel{
                    .placement = Shard(0),
                    .input_layouts = Shard(-1),
                    .output_layouts = Replicate()}}};
}

TEST(OwnModules, NeedNoChange) {
  for (const int ranks : {2, 4}) {
    expect_equal<Gate>(
        [] { return Gate(); }, distinct({3, 5, 6}), gate_plan(), ranks,
        forward<Gate>, "R");
  }
}

TEST(OwnModules, CommunicateOnceEachWay) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    Gate module = parallel(Gate(), mesh, gate_plan());
    const auto x = distribute_tensor(distinct({3, 5, 6}), mesh, {Replicate()});
    const CommLog log;
    const at::Tensor y = module(x);
    EXPECT_EQ(log.count(), 1) << log;
    EXPECT_EQ(log.entries()[0].cause, "leave, ParameterParallel");
    EXPECT_TRUE(is_dtensor(module->seen));
  });
}

TEST(ReadyMadeLayers, LinearIsCutByOutputsAndByInputs) {
  const auto make = [] { return torch::nn::Linear(5, 7); };
  for (const auto& x : {distinct({5}), distinct({3, 5}), distinct({2, 3, 5})}) {
    SCOPED_TRACE(x.dim());
    const std::string last = "S(" + std::to_string(x.dim() - 1) + ")";
    expect_equal<torch::nn::Linear>(
        make, x, {{"", ColwiseParallel()}}, 2, forward<torch::nn::Linear>,
        last);
    expect_equal<torch::nn::Linear>(
        make, x, {{"", ColwiseParallel{.output_layouts = Replicate()}}}, 3,
        forward<torch::nn::Linear>, "R");
    expect_equal<torch::nn::Linear>(
        make, x, {{"", RowwiseParallel()}}, 2, forward<torch::nn::Linear>, "R");
  }
}

TEST(ReadyMadeLayers, EmbeddingIsCutByColumnsAndByWords) {
  const auto make = [] { return torch::nn::Embedding(9, 5); };
  const at::Tensor words = at::tensor({1, 8, 3, 0, 8, 4}, i64()).view({2, 3});
  expect_equal<torch::nn::Embedding>(
      make, words, {{"", ColwiseParallel()}}, 2, forward<torch::nn::Embedding>,
      "S(2)");
  expect_equal<torch::nn::Embedding>(
      make, words, {{"", RowwiseParallel()}}, 4, forward<torch::nn::Embedding>,
      "R");
  expect_equal<torch::nn::Embedding>(
      make, words, {{"", RowwiseParallel{.output_layouts = Shard(1)}}}, 2,
      forward<torch::nn::Embedding>, "S(1)");
}

TEST(ReadyMadeLayers, NormsWorkOnPartsOfTheSequence) {
  expect_equal<torch::nn::LayerNorm>(
      [] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})); },
      distinct({2, 5, 6}), {{"", SequenceParallel()}}, 2,
      forward<torch::nn::LayerNorm>, "S(1)");
}

struct RmsNormImpl : torch::nn::Module {
  RmsNormImpl() { weight = register_parameter("weight", torch::ones({6})); }
  at::Tensor forward(const at::Tensor& x) {
    return at::rms_norm(x, {6}, weight);
  }
  at::Tensor weight;
};
TORCH_MODULE(RmsNorm);

TEST(ReadyMadeLayers, RmsNormWorksOnPartsOfTheSequence) {
  expect_equal<RmsNorm>(
      [] { return RmsNorm(); }, distinct({2, 5, 6}), {{"", SequenceParallel()}},
      2, forward<RmsNorm>, "S(1)");
}

TEST(ReadyMadeLayers, ConvolutionsAreCutByChannels) {
  const auto one = [] { return torch::nn::Conv1d(4, 6, 3); };
  expect_equal<torch::nn::Conv1d>(
      one, distinct({2, 4, 7}), {{"", ColwiseParallel()}}, 2,
      forward<torch::nn::Conv1d>, "S(1)");
  expect_equal<torch::nn::Conv1d>(
      one, distinct({2, 4, 7}), {{"", RowwiseParallel()}}, 2,
      forward<torch::nn::Conv1d>, "R");
  const auto two = [] {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 6, 3).padding(1));
  };
  expect_equal<torch::nn::Conv2d>(
      two, distinct({2, 4, 5, 5}), {{"", ColwiseParallel()}}, 3,
      forward<torch::nn::Conv2d>, "S(1)");
  expect_equal<torch::nn::Conv2d>(
      two, distinct({2, 4, 5, 5}), {{"", RowwiseParallel()}}, 2,
      forward<torch::nn::Conv2d>, "R");
}

at::Tensor attend(torch::nn::MultiheadAttention& m, const at::Tensor& x) {
  return std::get<0>(m->forward(x, x, x));
}

TEST(ReadyMadeLayers, AttentionIsCutByHeads) {
  expect_equal<torch::nn::MultiheadAttention>(
      [] { return torch::nn::MultiheadAttention(8, 4); }, distinct({5, 2, 8}),
      {{"", ColwiseParallel()}, {"out_proj", RowwiseParallel()}}, 2, attend,
      "R");
}

TEST(ReadyMadeLayers, AttentionCommunicatesOnceEachWay) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    auto module = parallel(
        torch::nn::MultiheadAttention(8, 4), mesh,
        {{"", ColwiseParallel()}, {"out_proj", RowwiseParallel()}});
    const auto x = distribute_tensor(distinct({5, 2, 8}), mesh, {Replicate()})
                       .requires_grad_();
    const CommLog forward;
    const at::Tensor y = attend(module, x);
    EXPECT_EQ(forward.count(), 1) << forward;
    const CommLog backward;
    y.sum().backward();
    EXPECT_EQ(backward.count(), 1) << backward;
  });
}

TEST(PlainInputs, AreTakenForTheLayoutOfTheStyle) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    const at::Tensor x = distinct({2, 6, 4});
    const at::Tensor want = filled(torch::nn::Linear(4, 6))(x);
    const auto linear = [&](const ParallelStyle& style) {
      return parallel(torch::nn::Linear(4, 6), mesh, {{"", style}});
    };
    EXPECT_TRUE(close(linear(ColwiseParallel())(x), want));
    const ColwiseParallel by_sequence{.input_layouts = Shard(1)};
    EXPECT_TRUE(close(linear(by_sequence)(x.narrow(1, 3 * rank(), 3)), want));
    EXPECT_TRUE(
        close(linear(RowwiseParallel())(x.narrow(2, 2 * rank(), 2)), want));
  });
}

TEST(PlainInputs, AreRefusedWhereOtherMeshDimsExist) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2}, {"dp", "tp"});
    auto module =
        parallel(torch::nn::Linear(4, 6), mesh, {{"", ColwiseParallel()}});
    const at::Tensor x = distinct({3, 4});
    EXPECT_ERROR("the input is plain, and what it is in other dims", module(x));
    const ImplicitReplication equal;
    EXPECT_EQ(to_string(placements(module(x))), "R S(1)");
  });
}

TEST(Inputs, AreFreshInEveryPass) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    auto module = filled(torch::nn::Linear(4, 6));
    const at::Tensor weight = module->weight.detach().clone();
    parallelize_module(module, mesh, {{"", ColwiseParallel()}});
    module->bias.data().zero_();
    const torch::NoGradGuard guard;
    const at::Tensor buffer = at::zeros({2, 4}, f64());
    const at::Tensor x = from_local(buffer, mesh, {Shard(0)});
    for (const double value : {1.0, 2.0}) {
      // As a program does that receives its input in the same memory each time.
      if (testing::device() == at::kCPU) {
        std::fill_n(buffer.data_ptr<double>(), 8, value);
      } else {
        buffer.fill_(value);
      }
      EXPECT_TRUE(
          close(module(x), at::full({4, 4}, value, f64()).matmul(weight.t())));
    }
  });
}

TEST(Inputs, OnAnotherMeshAreRefused) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2}, {"dp", "tp"});
    auto module =
        parallel(torch::nn::Linear(4, 6), mesh, {{"", ColwiseParallel()}});
    const auto x = distribute_tensor(distinct({3, 4}), mesh["tp"], {Shard(0)});
    EXPECT_ERROR("ColwiseParallel: the input is on", module(x));
  });
}

struct PairImpl : torch::nn::Module {
  PairImpl() {
    first = register_module("first", torch::nn::Linear(6, 6));
    second = register_module("second", torch::nn::Linear(6, 6));
  }
  at::Tensor forward(const at::Tensor& x) {
    return second(torch::relu(first(x)));
  }
  torch::nn::Linear first = nullptr, second = nullptr;
};
TORCH_MODULE(Pair);

ParallelPlan pair_plan() {
  return {{"first", ColwiseParallel()}, {"second", RowwiseParallel()}};
}

// The layers are whole, and work on parts of the batch.
TEST(PreparedModules, TakeAndGiveTheLayoutsOfThePlan) {
  expect_equal<Pair>(
      [] { return Pair(); }, distinct({4, 6}),
      {{"first", PrepareModuleInput{Replicate(), Shard(0)}},
       {"second", PrepareModuleOutput{Shard(0), Replicate()}}},
      2, forward<Pair>, "R");
  expect_equal<Pair>(
      [] { return Pair(); }, distinct({4, 6}),
      {{"first", PrepareModuleInput{Replicate(), Shard(0)}}}, 2, forward<Pair>,
      "S(0)");
}

TEST(PreparedModules, ApplyAfterTheStyleOfALayer) {
  const auto make = [] {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({6}));
  };
  expect_equal<torch::nn::LayerNorm>(
      make, distinct({2, 4, 6}),
      {{"", SequenceParallel()},
       {"", PrepareModuleOutput{Shard(1), Replicate()}}},
      2, forward<torch::nn::LayerNorm>, "R");
  expect_equal<torch::nn::Linear>(
      [] { return torch::nn::Linear(6, 6); }, distinct({2, 4, 6}),
      {{"", ColwiseParallel()}, {"", PrepareModuleOutput{Shard(2), Shard(1)}}},
      2, forward<torch::nn::Linear>, "S(1)");
}

struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    tokens = register_module("tokens", torch::nn::Embedding(9, 6));
    head = register_module(
        "head", torch::nn::Linear(torch::nn::LinearOptions(6, 9).bias(false)));
    head->weight = tokens->weight;
    head->named_parameters(false)["weight"] = tokens->weight;
  }
  at::Tensor forward(const at::Tensor& words) {
    return head(torch::tanh(tokens(words)));
  }
  torch::nn::Embedding tokens = nullptr;
  torch::nn::Linear head = nullptr;
};
TORCH_MODULE(Tied);

TEST(TiedWeights, HaveAUseAsTableAndOneAsMatrix) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    Tied plain;
    Tied module;
    for (Tied* m : {&plain, &module}) {
      (*m)->to(testing::device(), at::kDouble);
      (*m)->head->weight = (*m)->tokens->weight;
      const torch::NoGradGuard guard;
      (*m)->tokens->weight.copy_(distinct({9, 6}));
    }
    parallelize_module(
        module, mesh,
        {{"tokens", RowwiseParallel()}, {"head", ColwiseParallel()}});
    const at::Tensor words = at::tensor({1, 8, 3, 0}, i64());
    const auto y = module(distribute_tensor(words, mesh, {Replicate()}));
    EXPECT_EQ(to_string(placements(y)), "S(1)");
    const auto want = plain(words);
    EXPECT_TRUE(close(y, want));
    (y * y).sum().backward();
    (want * want).sum().backward();
    EXPECT_TRUE(
        close(module->tokens->weight.grad(), plain->tokens->weight.grad()));
  });
}

struct HandNormImpl : torch::nn::Module {
  HandNormImpl() { weight = register_parameter("weight", torch::ones({6})); }
  at::Tensor forward(const at::Tensor& x) {
    return x * torch::rsqrt(x.pow(2).mean(-1, true) + 1e-6) * weight;
  }
  at::Tensor weight;
};
TORCH_MODULE(HandNorm);

TEST(ReadyMadeLayers, NormsWrittenByHandWorkOnPartsOfTheSequence) {
  expect_equal<HandNorm>(
      [] { return HandNorm(); }, distinct({2, 5, 6}),
      {{"", SequenceParallel()}}, 2, forward<HandNorm>, "S(1)");
}

TEST(Uses, StayWhenTheDtypeChanges) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    Pair module = parallel(Pair(), mesh, pair_plan());
    module->to(at::kFloat);
    const auto x =
        distribute_tensor(distinct({4, 6}).to(at::kFloat), mesh, {Replicate()});
    const CommLog log;
    const at::Tensor y = module(x);
    EXPECT_EQ(to_string(placements(y)), "R");
    EXPECT_EQ(log.count(), 1) << log;
    EXPECT_EQ(y.scalar_type(), at::kFloat);
  });
}

TEST(Uses, HoldInInferenceMode) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    Pair module = parallel(Pair(), mesh, pair_plan());
    const c10::InferenceMode guard;
    const auto x = distribute_tensor(distinct({4, 6}), mesh, {Replicate()});
    const CommLog log;
    EXPECT_EQ(to_string(placements(module(x))), "R");
    EXPECT_EQ(log.count(), 1) << log;
    EXPECT_EQ(log.entries()[0].cause, "second, RowwiseParallel");
  });
}

TEST(Uses, StayWithTheParameterThroughTraining) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    Pair module = parallel(Pair(), mesh, pair_plan());
    torch::optim::SGD optimizer(module->parameters(), 0.1);
    const auto x = distribute_tensor(distinct({4, 6}), mesh, {Replicate()});
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      const CommLog log;
      module(x).sum().backward();
      EXPECT_EQ(log.count(), 1) << log;  // x needs no gradient
      optimizer.step();
    }
    const torch::NoGradGuard guard;
    const CommLog log;
    module(x);
    EXPECT_EQ(log.count(), 1) << log;
  });
}

}  // namespace
}  // namespace tessera
