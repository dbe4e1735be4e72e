// What fully_shard refuses, and how ranks that diverge find out.
#include "block_net.h"

namespace tessera {
namespace {

using testing::BlockNet;
using testing::close;
using testing::distinct;
using testing::error_of;
using testing::f64;
using testing::mesh_of;
using testing::net_loss_on;

TEST(FullyShardErrors, BadOptions) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"dp"});
    const auto with = [&](const FullyShardOptions& options) {
      BlockNet net;
      static_cast<void>(fully_shard(net, mesh, options));
    };
    EXPECT_ERROR("blokcs", with({.groups = {"blokcs.*"}}));
    EXPECT_ERROR("named twice", with({.groups = {"blocks.*", "blocks.1"}}));
    EXPECT_ERROR("name each module once", with({.groups = {""}}));
    EXPECT_ERROR("has no dim \"tp\"", with({.mesh_dim = "tp"}));
    EXPECT_ERROR("must be two dims", with({.replicate_dim = "dp"}));
    EXPECT_ERROR(
        "prefetch must be 0 or more groups; got -1", with({.prefetch = -1}));
    EXPECT_ERROR("max_reductions must be", with({.max_reductions = -1}));
    EXPECT_ERROR(
        "needs floating dtypes",
        with({.mp_policy = {.param_dtype = at::kLong}}));
    EXPECT_ERROR(
        "no parameter has the name",
        with({.ignored_params = {"head.nothing"}}));
    const auto placed = [](const Placement& placement) {
      return FullyShardOptions{
          .placement = [=](const std::string&, const at::Tensor&) {
            return placement;
          }};
    };
    EXPECT_ERROR("a parameter must be cut", with(placed(Partial())));
    EXPECT_ERROR("a parameter must be cut", with(placed(Shard(7))));
  });
}

TEST(FullyShardErrors, ParametersThatCannotBeCut) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"dp"});
    {
      BlockNet net;
      const auto sharded = fully_shard(net, mesh);
      EXPECT_ERROR("fully sharded already", fully_shard(net, mesh));
      EXPECT_ERROR("is fully sharded", DataParallel(net, mesh));
    }
    {
      BlockNet net;
      distribute_parameters(net, mesh);
      const DataParallel parallel(net, mesh);
      EXPECT_ERROR("a DataParallel has charge", fully_shard(net, mesh));
    }
    {
      BlockNet net;
      distribute_parameters(net, mesh_of({2, 1}, {"dp", "tp"}));
      EXPECT_ERROR("on another mesh", fully_shard(net, mesh));
    }
    {
      BlockNet net;
      make_dtensor_(net.head->weight, mesh, {Shard(1)});
      EXPECT_ERROR("cut along this mesh dim already", fully_shard(net, mesh));
      EXPECT_FALSE(is_dtensor(net.tokens->weight));  // nothing was touched
    }
  });
}

TEST(FullyShardErrors, BuffersAndIgnoredParametersStayAsTheyAre) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    const at::Tensor buffer = net.register_buffer("seen", distinct({4}));
    const auto sharded = fully_shard(
        net, mesh,
        {.groups = {"blocks.*"}, .ignored_params = {"blocks.?.down.bias"}});
    EXPECT_FALSE(is_dtensor(buffer));
    EXPECT_FALSE(is_dtensor(net.block(1).down->bias));
    EXPECT_TRUE(is_dtensor(net.block(1).down->weight));
    EXPECT_EQ(sharded.report().groups[1].members.size(), 3U);
  });
}

TEST(FullyShardErrors, CreateGraphIsRefusedByName) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    const auto sharded = fully_shard(net, mesh, {.groups = {"blocks.*"}});
    EXPECT_ERROR(
        "with create_graph are not implemented",
        torch::autograd::grad(
            {net_loss_on(net, mesh)}, {net.head->bias}, {}, true, true));
  });
}

TEST(FullyShardErrors, AWriteInsideAnAccumulate) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    auto sharded = fully_shard(net, mesh, {.groups = {"blocks.*"}});
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    {
      const FullyShard::Accumulate accumulate(
          sharded, FullyShard::Accumulate::Keep::kShards);
      net_loss_on(net, mesh).backward();
      EXPECT_ERROR("while a FullyShard::Accumulate lives", optimizer.step());
    }
    net_loss_on(net, mesh).backward();
    optimizer.step();
  });
}

TEST(FullyShardErrors, PathsThatAreOfNoGroup) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    auto sharded = fully_shard(net, mesh, {.groups = {"blocks.*"}});
    EXPECT_ERROR("no group lies at or below", sharded.unshard("blokcs"));
    EXPECT_ERROR(
        "groups are \"\", \"blocks.0\", \"blocks.1\", \"blocks.2\"",
        sharded.reshard("blocks.1.up"));
  });
}

TEST(FullyShardErrors, AHandleWithoutItsModule) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"dp"});
    auto net = std::make_unique<BlockNet>();
    const auto sharded = fully_shard(*net, mesh);
    net.reset();
    EXPECT_ERROR("is gone; keep it", sharded.report());
  });
}

// One group with two members of equal shape.
struct Pair : torch::nn::Module {
  Pair() {
    a = register_parameter("a", at::full({4, 4}, 2.0, f64()));
    b = register_parameter("b", at::full({4, 4}, 3.0, f64()));
  }
  at::Tensor a, b;
};

at::Tensor product(const at::Tensor& parameter, const DeviceMesh& mesh) {
  return distribute_tensor(at::ones({2, 4}, f64()), mesh, {Shard(0)})
      .matmul(parameter);
}

// Both ranks reduce one gradient of 4 x 4; nothing but the name differs.
TEST(FullyShardErrors, RanksThatUseDifferentMembersFindOut) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    Pair pair;
    const auto sharded = fully_shard(pair, mesh);
    const at::Tensor y = product(rank() == 0 ? pair.a : pair.b, mesh);
    std::string error;
    try {
      y.backward(at::ones_like(y));
    } catch (const c10::DistBackendError& e) {
      error = e.what_without_backtrace();
    }
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, "{a}", error);
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, "{b}", error);
  });
}

TEST(FullyShardErrors, UnusedMembersCountAsZerosWhereThatIsAskedFor) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"dp"});
    Pair pair;
    const auto sharded = fully_shard(pair, mesh, {.fill_unused = true});
    const at::Tensor y = product(rank() == 0 ? pair.a : pair.b, mesh);
    y.backward(at::full_like(y, rank() == 0 ? 1.0 : 2.0));
    EXPECT_TRUE(close(pair.a.grad(), at::full({4, 4}, 1.0, f64())));
    EXPECT_TRUE(close(pair.b.grad(), at::full({4, 4}, 2.0, f64())));
  });
}

}  // namespace
}  // namespace tessera
