#include <sharded_tensor/module/mlp.h>
#include <tessera/sharded_tensor/sharded_optimizer.h>
#include <tessera/sharded_tensor/state_dict.h>

namespace tessera {
namespace {

using namespace sharded_tensor;  // NOLINT(google-build-using-namespace)
using testing::chunks;
using testing::close;
using testing::distinct;
using testing::expect_equal_parameters;
using testing::kAll;
using testing::Mlp;
using testing::same;
using testing::set_values;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;
using torch::optim::SGD;
using torch::optim::SGDOptions;

// A plain parameter and a sharded tensor of several shards per rank.
struct MixedImpl : torch::nn::Module, ShardedTensorHolder {
  MixedImpl()
      : gain(register_parameter("gain", distinct({4}))),
        rows(shard_tensor(
            distinct({12, 4}).requires_grad_(),
            chunks(0, {0, 1, 2, 3, 0, 1}))) {
    register_sharded_tensor("rows", rows);
  }
  // Its loss over this rank's shards; the ranks' sum is the whole.
  at::Tensor loss() {
    at::Tensor sum = torch::zeros({}, testing::f64());
    for (const auto& shard : rows.local_shards()) {
      sum = sum + (shard.tensor * gain.detach()).pow(2).sum();
    }
    return sum;
  }
  at::Tensor gain;
  ShardedTensor rows;
};
TORCH_MODULE(Mixed);

TEST(TestShardedOptimizer, test_sharded_optim) {
  run_ranks(4, [] {
    Mixed model;
    at::Tensor whole = distinct({12, 4}).requires_grad_();
    at::Tensor gain = distinct({4}).requires_grad_();
    SGD local({gain, whole}, SGDOptions(0.1));
    ShardedOptimizer<SGD, SGDOptions> sharded(
        named_params_with_sharded_tensor(*model), SGDOptions(0.1));
    for (int step = 0; step < 3; ++step) {
      local.zero_grad();
      sharded.zero_grad();
      ((whole * gain.detach()).pow(2).sum() + gain.sum()).backward();
      (model->loss() + model->gain.sum()).backward();
      local.step();
      sharded.step();
      EXPECT_TRUE(close(model->gain, gain));
      EXPECT_TRUE(close(testing::whole_value(model->rows), whole));
    }
    EXPECT_FALSE(same(model->gain, distinct({4})));
    EXPECT_TRUE(model->rows.local_shards()[0].tensor.is_leaf());
    sharded.zero_grad(/*set_to_none=*/false);
    EXPECT_TRUE(model->gain.grad().defined());
    sharded.zero_grad();
    EXPECT_FALSE(model->gain.grad().defined());
  });
}

struct OuterImpl : torch::nn::Module, ShardedTensorHolder {
  OuterImpl()
      : inner(register_module("inner", Mixed())),
        fc(register_module("fc", torch::nn::Linear(4, 8))),
        again(inner->rows) {
    register_sharded_tensor("again", again);
    register_sharded_tensor("none", none);
  }
  Mixed inner;
  torch::nn::Linear fc;
  ShardedTensor again;
  std::optional<ShardedTensor> none;
};
TORCH_MODULE(Outer);

std::vector<std::string> names_of(const NamedParams& params) {
  std::vector<std::string> names;
  for (const auto& [name, value] : params) {
    names.push_back(name);
  }
  return names;
}

TEST(TestShardedOptimizer, test_named_params_with_sharded_tensor) {
  using Names = std::vector<std::string>;
  run_ranks(4, [] {
    Outer model;
    shard_parameter(*model->fc, "weight", chunks(0, kAll));
    // "again" and "inner.rows" are one object.
    EXPECT_EQ(
        names_of(named_params_with_sharded_tensor(*model)),
        (Names{"again", "fc.bias", "fc.weight", "inner.gain"}));
    EXPECT_EQ(
        names_of(named_params_with_sharded_tensor(*model, "net")),
        (Names{"net.again", "net.fc.bias", "net.fc.weight", "net.inner.gain"}));
    EXPECT_EQ(
        names_of(named_params_with_sharded_tensor(*model, "net", false)),
        Names{"net.again"});
    const auto params = named_params_with_sharded_tensor(*model);
    EXPECT_TRUE(std::holds_alternative<ShardedTensor>(params.at("again")));
    EXPECT_TRUE(is_dtensor(std::get<at::Tensor>(params.at("fc.weight"))));
    // Rank 0 and 1 have two shards of "again", the others one.
    EXPECT_EQ(optimizer_tensors(params).size(), rank() < 2 ? 5U : 4U);
    Mixed lone;
    lone->register_module("x", torch::nn::Linear(1, 1));
    EXPECT_EQ(
        names_of(named_params_with_sharded_tensor(*lone, "", false)),
        (Names{"gain", "rows"}));
  });
}

TEST(ShardedOptimizer, TakesTheParameterBehindAShardedTensor) {
  run_ranks(4, [] {
    torch::nn::Linear linear(4, 8);
    const auto t = shard_parameter(*linear, "weight", chunks(0, kAll));
    const auto tensors = optimizer_tensors({{"w", t}});
    ASSERT_EQ(tensors.size(), 1U);
    EXPECT_TRUE(tensors[0].is_same(linear->weight));
  });
}

// A sharded net and its optimizer, with some steps behind them.
struct TrainingRun {
  using Optimizer = ShardedOptimizer<AdamW, AdamWOptions>;
  TrainingRun()
      : net(shard_module(
            Mlp(4, 6, 4), {.plan =
                               {{"fc1.weight", chunks(0, kAll)},
                                {"fc2.weight", chunks(1, kAll)}}})),
        optimizer(
            named_params_with_sharded_tensor(*net.module()),
            AdamWOptions(0.05).amsgrad(true)) {}
  void step() {
    optimizer.zero_grad();
    net(distinct({6, 4})).pow(2).sum().backward();
    optimizer.step();
  }
  ShardedModule<Mlp> net;
  Optimizer optimizer;
};

TEST(DefectD27, OptimizerStateIsSavedAndLoaded) {
  run_ranks(4, [] {
    TrainingRun first, second;
    for (int i = 0; i < 3; ++i) {
      first.step();
    }
    std::stringstream bytes;
    testing::one_at_a_time([&] {
      torch::serialize::OutputArchive out;
      first.optimizer.save(out);
      out.save_to(bytes);
      torch::serialize::InputArchive in;
      in.load_from(bytes);
      second.optimizer.load(in);
    });
    {
      const torch::NoGradGuard no_grad;
      const auto from = first.net->named_parameters();
      for (auto& p : second.net->named_parameters()) {
        p.value().copy_(from[p.key()]);
      }
    }
    for (auto& [key, state] : second.optimizer.state()) {
      auto& adam = dynamic_cast<torch::optim::AdamWParamState&>(*state);
      EXPECT_EQ(adam.step(), 3);
    }
    // Writing the state left it as it was; both go on alike.
    first.step();
    second.step();
    expect_equal_parameters(*second.net.module(), *first.net.module());
    TrainingRun fresh;
    fresh.step();
    EXPECT_FALSE(close(fresh.net->fc1->weight, first.net->fc1->weight));
  });
}

TEST(DefectD27, LoadingNeedsShardsOfTheSameSizes) {
  run_ranks(4, [] {
    TrainingRun run;
    run.step();
    std::stringstream bytes;
    Mlp other(4, 6, 4);
    shard_parameter(*other->fc1, "weight", chunks(1, kAll));
    shard_parameter(*other->fc2, "weight", chunks(0, kAll));
    TrainingRun::Optimizer optimizer(
        named_params_with_sharded_tensor(*other), AdamWOptions(0.05));
    testing::one_at_a_time([&] {
      torch::serialize::OutputArchive out;
      run.optimizer.save(out);
      out.save_to(bytes);
      torch::serialize::InputArchive in;
      in.load_from(bytes);
      EXPECT_ERROR("the local tensor does not fit", optimizer.load(in));
    });
  });
}

TEST(DefectD27, ParameterGroupsCanBeAdded) {
  run_ranks(4, [] {
    Mlp model(4, 6, 4), plain(4, 6, 4);
    auto net = shard_module(
        model, {.plan = {
                    {"fc1.weight", chunks(0, kAll)},
                    {"fc2.weight", chunks(1, kAll)}}});
    ShardedOptimizer<SGD, SGDOptions> optimizer(
        named_params_with_sharded_tensor(*model->fc1), SGDOptions(0.01));
    optimizer.add_param_group(
        named_params_with_sharded_tensor(*model->fc2, "fc2"), SGDOptions(0.2));
    ASSERT_EQ(optimizer.param_groups().size(), 2U);
    EXPECT_EQ(optimizer.inner().param_groups()[1].options().get_lr(), 0.2);
    SGD reference(plain->fc1->parameters(), SGDOptions(0.01));
    reference.add_param_group(torch::optim::OptimizerParamGroup(
        plain->fc2->parameters(), std::make_unique<SGDOptions>(0.2)));
    const at::Tensor x = distinct({6, 4});
    net(x).sum().backward();
    plain->forward(x).sum().backward();
    optimizer.step();
    reference.step();
    expect_equal_parameters(*model, *plain);
  });
}

TEST(ShardedOptimizer, StepsWithAClosure) {
  run_ranks(2, [] {
    at::Tensor w = distinct({3}).requires_grad_();
    ShardedOptimizer<SGD, SGDOptions> optimizer({{"w", w}}, SGDOptions(0.1));
    const at::Tensor loss = optimizer.step([&] {
      optimizer.zero_grad();
      const at::Tensor sum = w.pow(2).sum();
      sum.backward();
      return sum;
    });
    EXPECT_TRUE(close(loss, distinct({3}).pow(2).sum()));
    EXPECT_TRUE(close(w, distinct({3}).mul(0.8)));
  });
}

}  // namespace
}  // namespace tessera
