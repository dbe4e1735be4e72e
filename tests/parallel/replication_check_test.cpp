// Plain tensors that differ between ranks where they are taken for copies: seen
// by whoever holds a ReplicationCheck, with the call, the tensor and the ranks.
#include <algorithm>

#include <harness/sharded_test.h>

namespace tessera {
namespace {

using testing::close;
using testing::device;
using testing::distinct;
using testing::error_of;
using testing::f64;
using testing::i64;
using testing::mesh_of;

// Each rank's own, and the same on all.
at::Tensor own(at::IntArrayRef shape) {
  return distinct(shape).add(static_cast<double>(rank()));
}

void expect_found(
    const std::string& error, const std::vector<std::string>& texts) {
  EXPECT_NE(error.find("taken to be equal on all ranks"), error.npos) << error;
  EXPECT_NE(error.find("rank 1 against rank 0"), error.npos) << error;
  for (const std::string& text : texts) {
    EXPECT_NE(error.find(text), error.npos) << error;
  }
}

TEST(ReplicationCheck, FindsPlainArgumentsThatDiffer) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    const at::Tensor x = distribute_tensor(distinct({4, 3}), mesh, {Shard(0)});
    const ImplicitReplication replication;
    const ReplicationCheck check;
    for (int round = 0; round < 2; ++round) {  // decided, then known
      expect_found(
          error_of([&] {
            at::add(x, own({4, 3}));
          }),
          {"aten::add.Tensor on mesh(2)", "argument 'other'"});
      EXPECT_TRUE(close(at::add(x, distinct({4, 3})), distinct({4, 3}).mul(2)));
    }
    expect_found(  // an operator that ATen expresses by others
        error_of([&] {
          at::linear(x, own({5, 3}));
        }),
        {"aten::linear", "argument 'weight'"});
    expect_found(
        error_of([&] {
          at::cat({x, own({1, 3})}, 0);
        }),
        {"aten::cat"});
  });
}

int64_t comparisons_in(const CommLog& log) {
  return std::ranges::count(
      log.entries(), std::string("replication check"), &CommLogEntry::cause);
}

// Smoothed labels and a LossParallel have kernels of their own.
TEST(ReplicationCheck, FindsTargetsOfCrossEntropyThatDiffer) {
  run_ranks(2, [] {
    at::Tensor x =
        distribute_tensor(distinct({3, 4}), mesh_of({2}), {Shard(1)});
    x.requires_grad_();
    const at::Tensor target = at::tensor({0, 3, 1}, i64());
    const ImplicitReplication replication;
    const ReplicationCheck check;
    const auto expect_compared = [&](double smoothing) {
      const auto loss = [&](const at::Tensor& labels) {
        return at::cross_entropy_loss(x, labels, {}, 1, -100, smoothing);
      };
      expect_found(
          error_of([&] { loss(target.sub(rank()).abs()); }),
          {"aten::cross_entropy_loss on mesh(2)", "argument 'target'"});
      const CommLog log;
      loss(target);
      EXPECT_EQ(comparisons_in(log), 1);
    };
    expect_compared(0);
    expect_compared(0.1);
    const LossParallel parallel;
    expect_compared(0);
    expect_compared(0.1);
  });
}

TEST(ReplicationCheck, FindsValuesWithoutDimsAndCopies) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    at::Tensor x = distribute_tensor(distinct({4, 3}), mesh, {Shard(0)});
    const at::Tensor rate =
        at::full({}, 0.5 + static_cast<double>(rank()), f64());
    static_cast<void>(x.mul(at::full({}, 0.5, f64())));  // a known call
    const ReplicationCheck check;
    expect_found(error_of([&] { x.mul(rate); }), {"aten::mul.Tensor"});
    expect_found(
        error_of([&] {
          x.copy_(own({4, 3}));
        }),
        {"aten::copy_", "argument 'src'"});
    EXPECT_TRUE(close(x, distinct({4, 3})));  // nothing was written
    x.mul_(at::full({}, 0.5, f64())).copy_(distinct({4, 3}));
    EXPECT_TRUE(close(x, distinct({4, 3})));
    EXPECT_TRUE(close(x * 2, distinct({4, 3}) * 2));  // a number is no tensor
  });
}

struct NetImpl : torch::nn::Module {
  NetImpl() {
    up = register_module("up", torch::nn::Linear(6, 8));
    down = register_module("down", torch::nn::Linear(8, 2));
    to(device(), at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) { return down(torch::relu(up(x))); }
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Net);

const ParallelPlan kPlan = {
    {"up", ColwiseParallel()}, {"down", RowwiseParallel()}};

void fill_equally(torch::nn::Module& net) {
  const torch::NoGradGuard guard;
  for (const at::Tensor& p : net.parameters()) {
    p.copy_(distinct(p.sizes()));
  }
}

TEST(ReplicationCheck, FindsInputsOfParallelModulesThatDiffer) {
  run_ranks(2, [] {
    Net net;
    fill_equally(*net);
    parallelize_module(net, mesh_of({2}, {"tp"}), kPlan);
    const ReplicationCheck check;
    expect_found(
        error_of([&] {
          net(own({4, 6}));
        }),
        {"up, ColwiseParallel on mesh(tp=2)", "the input"});
    net(distinct({4, 6})).sum().backward();
    EXPECT_TRUE(net->up->weight.grad().defined());
  });
}

TEST(ReplicationCheck, FindsParametersThatDifferWhenTheyArePlaced) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2}, {"tp"});
    const ReplicationCheck check;
    Net net;
    fill_equally(*net);
    {
      const torch::NoGradGuard guard;
      net->up->bias.add_(static_cast<double>(rank()));
    }
    expect_found(
        error_of([&] { parallelize_module(net, mesh, kPlan); }),
        {"make_dtensor_ on mesh(tp=2)", "'up.bias'"});
    expect_found(
        error_of([&] {
          distribute_tensor(
              own({4}), mesh, {Shard(0)}, {.src_data_rank = std::nullopt});
        }),
        {"distribute_tensor on mesh(tp=2)", "the tensor"});
    // The first rank's value counts; what the others pass does not.
    EXPECT_TRUE(
        close(distribute_tensor(own({4}), mesh, {Shard(0)}), distinct({4})));
    Net equal;
    fill_equally(*equal);
    parallelize_module(equal, mesh, kPlan);
    EXPECT_TRUE(is_dtensor(equal->up->bias));
  });
}

TEST(ReplicationCheck, ComparesNothingWithoutIt) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    const at::Tensor x = distribute_tensor(distinct({4, 3}), mesh, {Shard(0)})
                             .set_requires_grad(true);
    const auto calls = [&] {
      const ImplicitReplication replication;
      const CommLog log;
      at::add(x, distinct({4, 3}))
          .mul(at::full({}, 2.0, f64()))
          .sum()
          .backward();
      return log.entries().size();
    };
    EXPECT_EQ(calls(), 0U);
    const ReplicationCheck check;
    // One gather for each of the two; derivatives compare nothing.
    EXPECT_EQ(calls(), 2U);
    EXPECT_EQ(calls(), 2U);
  });
}

TEST(ReplicationCheck, PassesOverRanksOutsideOfTheMesh) {
  run_ranks(3, [] {
    const DeviceMesh mesh(device(), at::arange(2, at::kLong));
    const at::Tensor x = distribute_tensor(distinct({4, 3}), mesh, {Shard(0)});
    const ImplicitReplication replication;
    const ReplicationCheck check;
    const at::Tensor other = rank() == 2 ? own({4, 3}) : distinct({4, 3});
    const at::Tensor y = at::add(x, other);
    if (rank() < 2) {
      EXPECT_TRUE(close(y, distinct({4, 3}).mul(2)));
    }
  });
}

// Complex values that are conjugated when read, negated ones, other strides.
TEST(ReplicationCheck, ComparesValuesNotMemory) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    const at::Tensor z = at::complex(distinct({4, 3}), distinct({4, 3}).neg());
    const at::Tensor x = distribute_tensor(z, mesh, {Shard(0)});
    const ImplicitReplication replication;
    const ReplicationCheck check;
    const at::Tensor lazy = rank() == 0 ? z.conj() : z.conj().resolve_conj();
    EXPECT_TRUE(close(at::add(x, lazy), at::add(z, z.conj())));
    const at::Tensor turned = rank() == 0 ? z : z.t().contiguous().t();
    EXPECT_TRUE(close(at::mul(x, turned), at::mul(z, z)));
  });
}

}  // namespace
}  // namespace tessera
