// In which order groups are gathered and reduced, and what ends their use; what
// is said where a program goes wrong without an error.
#include <ATen/autocast_mode.h>

#include "block_net.h"

namespace tessera {
namespace {

using testing::BlockNet;
using testing::counts_of;
using testing::expect_equal_gradients;
using testing::mesh_of;
using testing::net_loss_on;
using testing::plain_net_loss;

const FullyShardOptions kEachBlock = {.groups = {"blocks.*"}};

// The warnings of one thread while this lives.
class Warnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    messages_.push_back(warning.msg());
  }
  int64_t with(const std::string& text) const {
    return std::count_if(
        messages_.begin(), messages_.end(), [&](const std::string& message) {
          return message.find(text) != std::string::npos;
        });
  }

 private:
  std::vector<std::string> messages_;
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

// "g" for a gather of a group, "r" for a reduction, as they began.
std::string order_in(const CommLog& log) {
  std::string order;
  for (const CommLogEntry& entry : log.entries()) {
    order += entry.kind == "all_gather"       ? "g"
             : entry.kind == "reduce_scatter" ? "r"
                                              : "";
  }
  return order;
}

// Autograd runs young nodes first: one node for all forwards would have every
// reduction of a pass come last.
TEST(FullyShardOrder, ForwardsThatPileUpAreReducedGroupByGroup) {
  BlockNet plain;
  for (int64_t i = 0; i < 3; ++i) {
    plain_net_loss(plain, i).backward();
  }
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    const auto sharded = fully_shard(net, mesh, kEachBlock);
    for (int step = 0; step < 2; ++step) {  // the second gathers ahead
      net_loss_on(net, mesh).backward();
      net.zero_grad();
    }
    const int64_t peak = sharded.report().peak_gathered_bytes;
    std::vector<at::Tensor> losses;
    for (int64_t i = 0; i < 3; ++i) {
      losses.push_back(net_loss_on(net, mesh, i));
    }
    for (size_t i = 3; i-- > 0;) {
      const CommLog log;
      losses[i].backward();
      const std::string order = order_in(log);
      // Of the last block before the first one is gathered.
      EXPECT_LT(order.find('r'), order.rfind('g')) << order;
      EXPECT_EQ(std::count(order.begin(), order.end(), 'r'), 4) << order;
    }
    // As for one, but that a pass which another one follows guesses wrong what
    // comes first, and gathers ahead while the right group arrives.
    const int64_t arriving = testing::packs() ? 2128 * 8 / 2 : 0;
    EXPECT_LE(sharded.report().peak_gathered_bytes, peak + arriving);
    expect_equal_gradients(net, plain);
  });
}

// A group inside of another one: both are used in turns, and neither ends the
// other.
TEST(FullyShardOrder, NestedGroupsKeepTheirParents) {
  BlockNet plain;
  plain_net_loss(plain).backward();
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    const auto sharded =
        fully_shard(net, mesh, {.groups = {"blocks.*", "blocks.1.up"}});
    for (int step = 0; step < 2; ++step) {
      net.zero_grad();
      const CommLog log;
      const at::Tensor loss = net_loss_on(net, mesh);
      EXPECT_EQ(counts_of(log).gathers, 5) << step;
      loss.backward();
      EXPECT_EQ(counts_of(log).gathers, 8) << step;  // blocks.2 stays
      EXPECT_EQ(counts_of(log).reductions, 5) << step;
      expect_equal_gradients(net, plain);
    }
  });
}

// Experts are groups that a program uses in changing orders: wrong guesses of
// what comes next cost gathers, and never a value.
TEST(FullyShardOrder, ChangingOrdersOfUseGiveRightGradients) {
  const std::vector<std::vector<size_t>> orders = {
      {0, 1, 2}, {2, 0}, {1, 1, 2}, {0, 2, 1, 0}};
  const auto loss_of = [](BlockNet& net, const at::Tensor& indices,
                          const std::vector<size_t>& order) {
    at::Tensor x = net.tokens(indices);
    for (const size_t i : order) {
      x = net.block(i).forward(x);
    }
    return testing::net_loss(net.head(x));
  };
  BlockNet plain;
  for (const auto& order : orders) {
    loss_of(plain, testing::net_indices(0), order).backward();
  }
  for (const int64_t prefetch : {0, 1, 3}) {
    run_ranks(2, [&] {
      const auto mesh = mesh_of({2}, {"dp"});
      BlockNet net;
      const auto sharded = fully_shard(
          net, mesh, {.groups = {"blocks.*"}, .prefetch = prefetch});
      for (const auto& order : orders) {
        loss_of(
            net, distribute_tensor(testing::net_indices(0), mesh, {Shard(0)}),
            order)
            .backward();
        EXPECT_EQ(sharded.report().gathered_bytes, 0);
      }
      expect_equal_gradients(net, plain);
    });
  }
}

// Shards that come while others are gathered ahead: what arrives is dropped.
TEST(FullyShardOrder, NewShardsWhileOthersAreOnTheirWay) {
  BlockNet plain(at::kFloat);
  plain_net_loss(plain).backward();
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net(at::kDouble);
    auto sharded = fully_shard(net, mesh, kEachBlock);
    net_loss_on(net, mesh).backward();
    net.zero_grad();
    sharded.unshard();
    EXPECT_GT(sharded.report().gathered_bytes, 0);
    net.to(at::kFloat);
    net_loss_on(net, mesh).backward();
    EXPECT_EQ(sharded.report().gathered_bytes, 0);
    expect_equal_gradients(net, plain, 1e-4);
  });
}

TEST(FullyShardOrder, AnAccumulateThatNoPassFollowsIsReported) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"dp"});
    const Warnings warnings;
    {
      auto net = std::make_unique<BlockNet>();
      auto sharded = fully_shard(*net, mesh, kEachBlock);
      {
        const FullyShard::Accumulate accumulate(
            sharded, FullyShard::Accumulate::Keep::kUnreduced);
        net_loss_on(*net, mesh).backward();
      }
      EXPECT_TRUE(sharded.report().groups[1].is_accumulating);
      EXPECT_NE(
          to_string(sharded.report()).find("gradients not reduced yet"),
          std::string::npos);
      init().communicator().barrier();
      net.reset();
      init().communicator().barrier();
      // Rank threads share a process: whoever asks first frees all models.
      static_cast<void>(testing::error_of([&] { sharded.report(); }));
    }
    init().communicator().barrier();
    const at::Tensor all = at::full({1}, warnings.with("never reduced"));
    init().communicator().all_reduce(all);
    EXPECT_EQ(all.item<int64_t>(), 2);
  });
}

// Autograd would keep what autocast makes of gathered parameters.
TEST(FullyShardOrder, AutocastWithoutADtypeWarnsAndIsRight) {
  const auto cast_loss = [](BlockNet& net, const at::Tensor& indices) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    const at::Tensor logits = net.forward(indices);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    return testing::net_loss(logits.to(at::kFloat));
  };
  run_ranks(2, [&] {
    BlockNet plain(at::kFloat);
    cast_loss(plain, testing::net_indices(0)).backward();
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net(at::kFloat);
    const auto sharded = fully_shard(net, mesh, kEachBlock);
    cast_loss(net, distribute_tensor(testing::net_indices(0), mesh, {Shard(0)}))
        .backward();
    for (size_t p = 0; p < net.parameters().size(); ++p) {
      const at::Tensor wanted = plain.parameters()[p].grad();
      EXPECT_LT(
          (full_tensor(net.parameters()[p].grad()) - wanted)
              .norm()
              .item<double>(),
          3e-2 * wanted.norm().item<double>())
          << p;
    }
  });
}

// A frozen parameter of integers is gathered as it is.
TEST(FullyShardOrder, IntegersKeepTheirDtype) {
  struct Table : torch::nn::Module {
    Table() {
      rows = register_parameter(
          "rows", at::arange(6, at::kLong), /*requires_grad=*/false);
      scale = register_parameter("scale", at::full({6}, 2.0, at::kFloat));
    }
    at::Tensor rows, scale;
  };
  run_ranks(2, [] {
    EXPECT_THROW(Table().rows.set_requires_grad(true), c10::Error);
    const auto mesh = mesh_of({2}, {"dp"});
    Table table;
    const auto sharded =
        fully_shard(table, mesh, {.mp_policy = {.param_dtype = at::kBFloat16}});
    const at::Tensor x =
        distribute_tensor(at::arange(6, at::kLong), mesh, {Shard(0)});
    const at::Tensor y = (x * table.rows) * table.scale;
    EXPECT_EQ((x * table.rows).scalar_type(), at::kLong);
    EXPECT_TRUE(at::equal(
        full_tensor(y).to(at::kLong),
        at::arange(6, at::kLong).square().mul(2)));
    y.sum().backward();
    EXPECT_FALSE(table.rows.grad().defined());
    EXPECT_TRUE(at::equal(
        full_tensor(table.scale.grad()).to(at::kLong),
        at::arange(6, at::kLong).square()));
  });
}

}  // namespace
}  // namespace tessera
