// The whole model on one rank, for files that other programs read.
#include <harness/counting_allocator.h>

#include <map>

#include "block_net.h"

namespace tessera {
namespace {

using testing::BlockNet;
using testing::CountingAllocator;
using testing::mesh_of;
using testing::WithCounts;

using Tensors = std::map<std::string, at::Tensor>;

Tensors named(const torch::nn::Module& module) {
  Tensors tensors;
  for (const auto& item : module.named_parameters()) {
    tensors[item.key()] = item.value().detach();
  }
  for (const auto& item : module.named_buffers()) {
    tensors[item.key()] = item.value();
  }
  return tensors;
}

Tensors exported_from(const torch::nn::Module& net) {
  Tensors exported;
  const checkpoint::StateDict whole =
      checkpoint::full_state_dict(checkpoint::state_dict(net));
  if (rank() == 0) {
    for (const auto& [name, value] : whole) {
      exported[name] = value.to_tensor();
    }
  }
  EXPECT_EQ(whole.empty(), rank() != 0);
  return exported;
}

void expect_equal(const Tensors& got, const Tensors& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (const auto& [name, tensor] : wanted) {
    ASSERT_TRUE(got.contains(name)) << name;
    EXPECT_FALSE(is_dtensor(got.at(name))) << name;
    EXPECT_TRUE(at::equal(got.at(name), tensor)) << name;
  }
}

// fully_shard alone, uneven; below tensor parallelism; with copies; and a
// module of which nothing is sharded.
TEST(FullStateDict, HasTheValuesOfThePlainModel) {
  const auto make = [] {
    auto net = std::make_shared<BlockNet>();
    net->register_buffer("seen", testing::distinct({4}));
    return net;
  };
  const Tensors wanted = named(*make());
  run_ranks(3, [&] {
    auto net = make();
    const auto sharded =
        fully_shard(*net, mesh_of({3}, {"dp"}), {.groups = {"blocks.*"}});
    const Tensors got = exported_from(*net);
    if (rank() == 0) {
      expect_equal(got, wanted);
    }
  });
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2}, {"dp", "tp"});
    const ParallelPlan plan = {
        {"blocks.*.up", ColwiseParallel()},
        {"blocks.*.down", RowwiseParallel()}};
    auto both = make();
    parallelize_module(*both, mesh, plan);
    auto styles = make();
    parallelize_module(*styles, mesh, plan);
    const auto sharded = fully_shard(*both, mesh, {.groups = {"blocks.*"}});
    auto copies = make();
    const auto hybrid = fully_shard(
        *copies, mesh, {.replicate_dim = "tp", .groups = {"blocks.*"}});
    auto plain = make();
    for (const auto& net : {both, styles, copies, plain}) {
      const Tensors got = exported_from(*net);
      if (rank() == 0) {
        expect_equal(got, wanted);
      }
    }
  });
}

// A rank outside of the mesh may be the one, and any rank.
TEST(FullStateDict, GoesToAnyRankOfTheWorld) {
  const Tensors wanted = named(BlockNet());
  run_ranks(3, [&] {
    const DeviceMesh mesh(
        testing::device(), at::tensor({0, 1}, at::kLong), {"dp"});
    BlockNet net;
    const auto sharded = fully_shard(net, mesh);
    for (int64_t there = 0; there < 3; ++there) {
      const auto whole =
          checkpoint::full_state_dict(checkpoint::state_dict(net), there);
      ASSERT_EQ(whole.empty(), rank() != there);
      Tensors got;
      for (const auto& [name, value] : whole) {
        got[name] = value.to_tensor();
      }
      if (rank() == there) {
        expect_equal(got, wanted);
      }
    }
  });
}

TEST(FullStateDict, HasTheStateOfAnOptimizerToo) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    const auto sharded = fully_shard(net, mesh, {.groups = {"blocks.*"}});
    torch::optim::AdamW optimizer(net.parameters(), 1e-2);
    testing::net_loss_on(net, mesh).backward();
    optimizer.step();
    const auto& state = static_cast<const torch::optim::AdamWParamState&>(
        *optimizer.state().at(net.head->weight.unsafeGetTensorImpl()));
    const at::Tensor wanted = full_tensor(state.exp_avg());
    const auto whole =
        checkpoint::full_state_dict(checkpoint::state_dict(net, optimizer));
    if (rank() == 0) {
      const auto& entries = whole.at("optimizer").to_dict().at("state");
      const auto& its = entries.to_dict().at("head.weight").to_dict();
      EXPECT_TRUE(at::equal(its.at("exp_avg").to_tensor(), wanted));
      EXPECT_EQ(its.at("step").to_tensor().item<double>(), 1);
    }
  });
}

TEST(FullStateDict, TiedWeightsStayOneTensor) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    net.block(2).register_parameter("tied", net.block(0).up->weight);
    const auto sharded = fully_shard(net, mesh, {.groups = {"blocks.*"}});
    const Tensors got = exported_from(net);
    if (rank() == 0) {
      EXPECT_TRUE(
          got.at("blocks.2.tied").is_same(got.at("blocks.0.up.weight")));
    }
  });
}

// The others: their shards, and what a transfer of one of them takes.
TEST(FullStateDict, NoSecondRankHoldsTheModel) {
  const WithCounts counts;
  run_ranks(4, [] {
    const auto mesh = mesh_of({4}, {"dp"});
    const testing::BlockNetSizes sizes{
        .width = 128, .hidden = 512, .blocks = 4};
    constexpr int64_t kLargest = 128 * 512 * 4;
    BlockNet net(at::kFloat, sizes);
    const auto sharded = fully_shard(net, mesh, {.groups = {"blocks.*"}});
    int64_t all = 0;
    for (const at::Tensor& p : net.parameters()) {
      all += p.numel() * 4;
    }
    auto& mine = CountingAllocator::of_rank();
    init().communicator().barrier();
    const int64_t before = mine.live;
    mine.peak = before;
    const Tensors got = exported_from(net);
    const int64_t beyond = mine.peak - before;
    if (rank() == 0) {
      EXPECT_LT(beyond, all + kLargest + 200'000);
      EXPECT_GE(beyond, all);
    } else {
      EXPECT_LT(beyond, kLargest / 4 + 100'000) << "of " << all;
    }
    init().communicator().barrier();
  });
}

TEST(FullStateDict, RefusesWhatItCannotDo) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    const auto sharded = fully_shard(net, mesh);
    const auto state = checkpoint::state_dict(net);
    EXPECT_ERROR(
        "the rank must be 0 to 1; got 2",
        checkpoint::full_state_dict(state, 2));
    EXPECT_ERROR("rank", checkpoint::full_state_dict(state, rank()));
    const at::Tensor sums = from_local(at::ones({2}), mesh, {Partial()});
    EXPECT_ERROR(
        "partial values mean nothing",
        checkpoint::full_state_dict({{"sums", sums}}));
    const at::Tensor t = ones({4}, mesh, {Shard(0)});
    EXPECT_ERROR(
        "names and layouts of tensors",
        checkpoint::full_state_dict({{rank() == 0 ? "weight" : "gate", t}}));
  });
}

}  // namespace
}  // namespace tessera
