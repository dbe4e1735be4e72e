// A sharded net has the loss and the gradients of the plain one, and trains to
// the same parameters, whatever the plan.
#include <sharded_tensor/module/mlp.h>

namespace tessera {
namespace {

using namespace sharded_tensor;  // NOLINT(google-build-using-namespace)
using testing::box_of;
using testing::chunks;
using testing::close;
using testing::distinct;
using testing::expect_equal_gradients;
using testing::expect_equal_parameters;
using testing::Mlp;

struct Sizes {
  int64_t batch, in, hidden, out;
};

// One way to shard the net: how each parameter is cut, and the output.
struct Way {
  std::string name;
  std::function<ShardingPlan(const Sizes&)> plan;
  std::vector<int64_t> group = {0, 1, 2, 3};
};

// weight1, bias1, weight2, bias2: the dim that is cut, or -1 for plain.
ShardingPlan dims(
    const std::vector<int64_t>& ranks, const std::vector<int64_t>& cut,
    std::optional<int64_t> output = {}, bool local = false) {
  ShardingPlan plan;
  const std::vector<std::string> names = {
      "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"};
  for (size_t i = 0; i < names.size(); ++i) {
    if (cut[i] >= 0) {
      plan.plan.emplace(names[i], chunks(cut[i], ranks));
    }
  }
  if (output) {
    plan.output_plan.emplace("", chunks(*output, ranks));
  }
  if (local) {
    plan.return_local_tensor = {""};
  }
  return plan;
}

// Cuts an n x m tensor in both dims over a 2 x 2 grid, ceil parts first.
EnumerableShardingSpec both_dims(int64_t n, int64_t m) {
  const int64_t a = (n + 1) / 2, b = (m + 1) / 2;
  return EnumerableShardingSpec(
      {box_of({0, 0}, {a, b}, 0), box_of({0, b}, {a, m - b}, 1),
       box_of({a, 0}, {n - a, b}, 2), box_of({a, b}, {n - a, m - b}, 3)});
}

std::vector<Way> ways() {
  const std::vector<int64_t> all = {0, 1, 2, 3};
  std::vector<Way> list;
  const auto add = [&](const std::string& name, const ShardingPlan& plan,
                       std::vector<int64_t> group = {0, 1, 2, 3}) {
    list.push_back({name, [plan](const Sizes&) { return plan; }, group});
  };
  add("column then row", dims(all, {0, -1, 1, -1}));
  add("row then column", dims(all, {1, -1, 0, -1}));
  add("biases too", dims(all, {0, 0, 1, 0}));
  add("all rows, output rows", dims(all, {0, 0, 0, 0}, 0));
  add("all rows, output columns", dims(all, {0, 0, 0, 0}, 1));
  add("columns, local output rows", dims(all, {1, 0, 1, 0}, 0, true));
  add("rows, local output columns", dims(all, {0, -1, 0, -1}, -1, true));
  add("nothing but an output plan", dims(all, {-1, -1, -1, -1}, 0));
  add("one bias alone", dims(all, {-1, 0, -1, -1}, 1));
  add("permuted ranks", dims({2, 0, 3, 1}, {0, 0, 1, 0}, 0, true));
  add("three of four ranks", dims({3, 0, 1}, {0, 0, 1, 0}, 0), {0, 1, 3});
  add("a sub-group", dims({2, 3}, {0, 0, 1, 0}, 1), {2, 3});
  add("a sub-group, reversed", dims({3, 2}, {1, -1, 0, 0}, 0, true), {2, 3});
  list.push_back({"both dims", [](const Sizes& s) {
                    ShardingPlan plan;
                    plan.plan.emplace("fc1.weight", both_dims(s.hidden, s.in));
                    plan.plan.emplace("fc2.weight", both_dims(s.out, s.hidden));
                    plan.output_plan.emplace("", both_dims(s.batch, s.out));
                    return plan;
                  }});
  return list;
}

// The sum of squares, of this rank's part where the output is one.
at::Tensor loss_of(
    const at::Tensor& y, const at::Tensor& target, const ShardingPlan& plan,
    const ProcessGroup& group) {
  if (is_dtensor(y) || plan.return_local_tensor.empty()) {
    const ImplicitReplication target_is_equal;
    return (y - target).pow(2).sum();
  }
  const auto mine =
      shard_tensor(target, *plan.output_plan.at("").spec(), 0, group);
  // Chunks of size 1 come without their dim.
  return (y.view_as(mine.local_tensor()) - mine.local_tensor()).pow(2).sum();
}

double total(const at::Tensor& loss, bool local, const ProcessGroup& group) {
  at::Tensor sum = testing::plain(loss).clone();
  if (local) {
    group.communicator().all_reduce(sum);
  }
  return sum.item<double>();
}

class MlpPair {
 public:
  MlpPair(const Sizes& s, const Way& way)
      : plain_(s.in, s.hidden, s.out),
        sharded_(s.in, s.hidden, s.out),
        plan_(way.plan(s)),
        group_(way.group),
        x_(distinct({s.batch, s.in})),
        target_(distinct({s.batch, s.out}).sin()),
        net_(shard_module(sharded_, plan_, 1, group_)) {}

  void expect_equal_step() {
    const at::Tensor x = x_.clone().requires_grad_();
    const at::Tensor x2 = x_.clone().requires_grad_();
    const at::Tensor want = (plain_->forward(x2) - target_).pow(2).sum();
    const at::Tensor got = loss_of(net_(x), target_, plan_, group_);
    want.backward();
    got.backward();
    EXPECT_NEAR(
        total(got, !plan_.return_local_tensor.empty(), group_),
        want.item<double>(), 1e-10 * want.item<double>());
    expect_equal_gradients(*sharded_, *plain_);
    EXPECT_FALSE(is_dtensor(x.grad()));
    EXPECT_TRUE(close(x.grad(), x2.grad()));
    for (const auto& p : sharded_->named_parameters()) {
      EXPECT_EQ(is_dtensor(p.value()), is_dtensor(p.value().grad())) << p.key();
    }
  }
  template <class Optimizer, class Options>
  void expect_equal_training(const Options& options, int steps) {
    Optimizer mine(sharded_->parameters(), options);
    Optimizer other(plain_->parameters(), options);
    for (int i = 0; i < steps; ++i) {
      mine.zero_grad();
      other.zero_grad();
      expect_equal_step();
      mine.step();
      other.step();
      expect_equal_parameters(*sharded_, *plain_);
    }
  }

 private:
  Mlp plain_, sharded_;
  ShardingPlan plan_;
  ProcessGroup group_;
  at::Tensor x_, target_;
  ShardedModule<Mlp> net_;
};

template <class Body>
void with_every_way(Body body) {
  const std::vector<Sizes> sizes = {{8, 12, 16, 4}, {7, 12, 29, 5}};
  run_ranks(4, [&] {
    for (const Way& way : ways()) {
      const auto& members = way.group;
      if (std::find(members.begin(), members.end(), rank()) == members.end()) {
        continue;
      }
      for (const Sizes& s : sizes) {
        SCOPED_TRACE(
            way.name + ", hidden " + std::to_string(s.hidden) + ", rank " +
            std::to_string(rank()));
        MlpPair pair(s, way);
        body(pair);
      }
    }
  });
}

TEST(ShardedTraining, LossAndGradientsAreThoseOfThePlainNet) {
  with_every_way([](MlpPair& pair) { pair.expect_equal_step(); });
}

TEST(ShardedTraining, FiveStepsOfSgdGiveTheParametersOfThePlainNet) {
  with_every_way([](MlpPair& pair) {
    pair.expect_equal_training<torch::optim::SGD>(
        torch::optim::SGDOptions(1e-4).momentum(0.9), 5);
  });
}

TEST(ShardedTraining, FiveStepsOfAdamWGiveTheParametersOfThePlainNet) {
  with_every_way([](MlpPair& pair) {
    pair.expect_equal_training<torch::optim::AdamW>(
        torch::optim::AdamWOptions(1e-2).weight_decay(0.1), 5);
  });
}

// Ranks of the group that the specs leave out take part without data.
TEST(ShardedTraining, RanksWithoutShardsRunTheSameProgram) {
  run_ranks(4, [] {
    Mlp plain(4, 6, 4), sharded(4, 6, 4);
    const auto plan = dims({1, 2}, {0, 0, 1, -1}, 0, true);
    auto net = shard_module(sharded, plan);
    const at::Tensor x = distinct({6, 4}).requires_grad_();
    const at::Tensor x2 = distinct({6, 4}).requires_grad_();
    const at::Tensor want = plain->forward(x2);
    const at::Tensor y = net(x);
    y.pow(2).sum().backward();
    want.pow(2).sum().backward();
    const bool member = rank() == 1 || rank() == 2;
    EXPECT_EQ(spec(sharded->fc1->weight).has_shard(), member);
    if (member) {
      EXPECT_TRUE(close(y, want.narrow(0, 3 * (rank() - 1), 3)));
      expect_equal_gradients(*sharded, *plain);
      EXPECT_TRUE(close(x.grad(), x2.grad()));
    } else {
      EXPECT_EQ(y.numel(), 0);
      EXPECT_TRUE(close(x.grad(), torch::zeros({6, 4}, testing::f64())));
      EXPECT_TRUE(
          close(sharded->fc2->bias.grad(), torch::zeros({4}, testing::f64())));
    }
    torch::optim::SGD optimizer(sharded->parameters(), 0.1);
    optimizer.step();
  });
}

// Buffers are not part of a plan: all ranks keep the same ones.
TEST(ShardedTraining, BuffersThatForwardWritesStayThoseOfThePlainNet) {
  const auto make = [] {
    torch::nn::Sequential net(
        torch::nn::Linear(4, 6), torch::nn::BatchNorm1d(6),
        torch::nn::Linear(6, 4));
    testing::set_values(*net);
    return net;
  };
  run_ranks(4, [&] {
    auto plain = make(), sharded = make();
    const std::vector<int64_t> all = {0, 1, 2, 3};
    auto net = shard_module(
        sharded, {.plan = {
                      {"0.weight", chunks(0, all)},
                      {"1.weight", chunks(0, all)},
                      {"2.weight", chunks(1, all)}}});
    const at::Tensor x = distinct({8, 4});
    for (int i = 0; i < 2; ++i) {
      const at::Tensor got = net(x), want = plain->forward(x);
      EXPECT_TRUE(close(got, want));
      got.pow(2).sum().backward();
      want.pow(2).sum().backward();
    }
    expect_equal_gradients(*sharded, *plain);
    const auto mine = sharded->named_buffers();
    for (const auto& b : plain->named_buffers()) {
      EXPECT_FALSE(is_dtensor(mine[b.key()])) << b.key();
      EXPECT_TRUE(close(mine[b.key()], b.value())) << b.key();
    }
  });
}

}  // namespace
}  // namespace tessera
