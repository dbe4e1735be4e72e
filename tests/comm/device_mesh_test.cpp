#include <gtest/gtest.h>
#include <tessera/comm/device_mesh.h>

#include <sstream>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "comm/expect_error.h"
#include "harness/ranks.h"

namespace tessera {
namespace {

using harness::run_ranks;

using Ranks = std::vector<int64_t>;

DeviceMesh grid() {
  return init_device_mesh(at::kCPU, {2, 3}, {"dp", "tp"});
}

TEST(DeviceMeshTest, KnowsItsShapeAndThisRanksPlace) {
  run_ranks(6, [] {
    const DeviceMesh mesh = grid();
    EXPECT_EQ(mesh.ndim(), 2);
    EXPECT_EQ(mesh.size(), 6);
    EXPECT_EQ(mesh.size(1), 3);
    EXPECT_EQ(mesh.shape(), (Ranks{2, 3}));
    EXPECT_EQ(mesh.dim_names(), (std::vector<std::string>{"dp", "tp"}));
    EXPECT_EQ(mesh.device_type(), at::kCPU);
    EXPECT_TRUE(at::equal(mesh.ranks(), at::arange(6).view({2, 3})));
    EXPECT_EQ(mesh.coordinate(), (Ranks{rank() / 3, rank() % 3}));
    EXPECT_EQ(mesh.local_rank(0), rank() / 3);
    EXPECT_EQ(mesh.local_rank("tp"), rank() % 3);
    EXPECT_TRUE(mesh.world() == init());
  });
}

TEST(DeviceMeshTest, CommunicatorsFollowTheDims) {
  run_ranks(6, [] {
    const DeviceMesh mesh = grid();
    const int64_t row = rank() / 3;
    const int64_t column = rank() % 3;
    EXPECT_EQ(mesh.communicator("dp").ranks(), (Ranks{column, column + 3}));
    EXPECT_EQ(
        mesh.communicator(1).ranks(),
        (Ranks{3 * row, 3 * row + 1, 3 * row + 2}));
    EXPECT_EQ(mesh.whole().ranks(), (Ranks{0, 1, 2, 3, 4, 5}));
    const at::Tensor sum = at::full({1}, rank(), at::kLong);
    mesh.communicator("tp").all_reduce(sum);
    EXPECT_EQ(sum.item<int64_t>(), 9 * row + 3);
    mesh.communicator("dp").all_reduce(sum);
    EXPECT_EQ(sum.item<int64_t>(), 15);
    mesh.whole().barrier();
  });
}

TEST(DeviceMeshTest, CommunicatorsSpanSeveralDims) {
  run_ranks(8, [] {
    const DeviceMesh mesh = init_device_mesh(at::kCPU, {2, 2, 2});
    const int64_t me = rank();
    const std::vector<int64_t> outer = mesh.communicator_over({0, 2}).ranks();
    const int64_t middle = me / 2 % 2 * 2;
    EXPECT_EQ(
        outer,
        (std::vector<int64_t>{middle, middle + 1, middle + 4, middle + 5}));
    EXPECT_EQ(
        mesh.communicator_over({1}).ranks(), mesh.communicator(1).ranks());
    EXPECT_EQ(mesh.communicator_over({0, 1, 2}).size(), 8);
  });
}

TEST(DeviceMeshTest, AnyArrangementOfRanksWorks) {
  run_ranks(4, [] {
    const at::Tensor ranks = at::tensor({3, 1, 0, 2}, at::kInt).view({2, 2});
    const DeviceMesh mesh(at::kCPU, ranks.t(), {"a", "b"});
    EXPECT_TRUE(at::equal(mesh.ranks(), ranks.t().to(at::kLong)));
    const at::Tensor all = at::empty({2}, at::kLong);
    mesh.communicator("a").all_gather(all, at::full({1}, rank(), at::kLong));
    const bool first = rank() == 3 || rank() == 1;
    EXPECT_EQ(all[0].item<int64_t>(), first ? 3 : 0);
    EXPECT_EQ(all[1].item<int64_t>(), first ? 1 : 2);
    EXPECT_EQ(mesh.whole().ranks(), (Ranks{3, 0, 1, 2}));
  });
}

TEST(DeviceMeshTest, SlicesHoldThisRank) {
  run_ranks(8, [] {
    const DeviceMesh mesh =
        init_device_mesh(at::kCPU, {2, 2, 2}, {"pp", "dp", "tp"});
    const DeviceMesh tp = mesh["tp"];
    EXPECT_EQ(tp.ndim(), 1);
    EXPECT_EQ(tp.local_rank(), rank() % 2);
    EXPECT_EQ(
        tp.communicator().ranks(), (Ranks{rank() / 2 * 2, rank() / 2 * 2 + 1}));
    const DeviceMesh pair = mesh.slice({"pp", "tp"});
    EXPECT_EQ(pair.shape(), (Ranks{2, 2}));
    EXPECT_EQ(pair.coordinate(), (Ranks{rank() / 4, rank() % 2}));
    pair.whole().barrier();
    EXPECT_TRUE(mesh.slice({"pp", "dp", "tp"}) == mesh);
    EXPECT_FALSE(pair == tp);
  });
}

TEST(DeviceMeshTest, DimsMergeSplitAndJoin) {
  run_ranks(8, [] {
    const DeviceMesh mesh =
        init_device_mesh(at::kCPU, {2, 2, 2}, {"pp", "dp", "tp"});
    const DeviceMesh flat = mesh.flatten({"pp", "dp"});
    EXPECT_EQ(flat.dim_names(), (std::vector<std::string>{"pp_dp", "tp"}));
    EXPECT_EQ(flat.communicator("pp_dp").size(), 4);
    EXPECT_EQ(
        mesh.flatten({"dp", "tp"}, "model").dim_names(),
        (std::vector<std::string>{"pp", "model"}));
    EXPECT_TRUE(flat.unflatten("pp_dp", {2, 2}, {"pp", "dp"}) == mesh);
    EXPECT_TRUE(flat.unflatten(0, {2, 2}, {"pp", "dp"}) == mesh);
    const DeviceMesh joined = DeviceMesh::concatenate({mesh["pp"], mesh["tp"]});
    EXPECT_TRUE(joined == mesh.slice({"pp", "tp"}));
    joined.whole().barrier();
  });
}

TEST(DeviceMeshTest, EqualMeansRanksNamesDeviceAndWorld) {
  run_ranks(6, [] {
    EXPECT_TRUE(grid() == grid());
    EXPECT_EQ(grid().hash(), grid().hash());
    const DeviceMesh others[] = {
        init_device_mesh(at::kCPU, {2, 3}, {"dp", "cp"}),
        init_device_mesh(at::kCPU, {2, 3}),
        init_device_mesh(at::kCPU, {3, 2}, {"dp", "tp"}),
        init_device_mesh(at::kMeta, {2, 3}, {"dp", "tp"}),
        DeviceMesh(
            at::kCPU, at::tensor({0, 1, 2, 3, 5, 4}).view({2, 3}),
            {"dp", "tp"})};
    for (const DeviceMesh& other : others) {
      EXPECT_FALSE(grid() == other) << other;
    }
  });
}

TEST(DeviceMeshTest, MeshesOfDifferentWorldsDiffer) {
  const DeviceMesh alone = init_device_mesh(at::kCPU, {1});
  run_ranks(2, [&] { EXPECT_FALSE(alone == init_device_mesh(at::kCPU, {1})); });
}

TEST(DeviceMeshTest, AMeshNeedNotHoldThisRank) {
  run_ranks(4, [] {
    const DeviceMesh mesh(at::kCPU, at::tensor({1, 2}), {"tp"});
    const bool inside = rank() == 1 || rank() == 2;
    EXPECT_EQ(mesh.coordinate().has_value(), inside);
    if (inside) {
      return mesh.communicator().barrier();
    }
    const std::string me = "rank " + std::to_string(rank());
    expect_error<c10::ValueError>(
        [&] { mesh.communicator(); },
        {"communicator on mesh(tp=2; ranks 1 2), " + me, "not in the mesh"});
    expect_error<c10::ValueError>([&] { mesh.whole(); }, {"whole", me});
    expect_error<c10::ValueError>(
        [&] { mesh.local_rank(); }, {"local_rank", me, "not in the mesh"});
    EXPECT_FALSE(mesh["tp"].coordinate().has_value());
  });
}

TEST(DeviceMeshTest, MeshesOfOneRankWork) {
  if (rank() != 0) {
    return;  // a process of a job; its rank 0 is the mesh
  }
  const DeviceMesh mesh = init_device_mesh(at::kCPU, {1, 1}, {"dp", "tp"});
  EXPECT_EQ(mesh.coordinate(), (Ranks{0, 0}));
  mesh["dp"].communicator().barrier();
  const DeviceMesh point(at::kCPU, at::zeros({}, at::kLong));
  EXPECT_EQ(point.ndim(), 0);
  EXPECT_EQ(point.size(), 1);
  point.whole().barrier();
}

TEST(DeviceMeshTest, BadRanksAreNamedBeforeAnythingMoves) {
  run_ranks(2, [] {
    expect_error<c10::ValueError>(
        [] {
          init_device_mesh(at::kCPU, {2, 2}, {"dp", "tp"});
        },
        {"mesh(dp=2, tp=2)", "holds rank 3", "the world has 2 ranks"});
    expect_error<c10::ValueError>(
        [] {
          DeviceMesh(at::kCPU, at::tensor({0, 5}));
        },
        {"rank 5"});
    expect_error<c10::ValueError>(
        [] {
          DeviceMesh(at::kCPU, at::tensor({1, 1}));
        },
        {"once", "rank 1"});
    expect_error<c10::ValueError>(
        [] {
          DeviceMesh(at::kCPU, at::tensor({0, -1}));
        },
        {"negative", "-1"});
    expect_error<c10::TypeError>(
        [] { DeviceMesh(at::kCPU, at::zeros({2})); },
        {"integer tensor", "Float"});
    expect_error<c10::ValueError>(
        [] { DeviceMesh(at::kCPU, at::Tensor()); }, {"undefined"});
    expect_error<c10::ValueError>(
        [] { DeviceMesh(at::kCPU, at::zeros({0}, at::kLong)); },
        {"at least 1 rank"});
    expect_error<c10::ValueError>(
        [] {
          init_device_mesh(at::kCPU, {2}, {"a", "b"});
        },
        {"2 names"});
    expect_error<c10::ValueError>(
        [] {
          init_device_mesh(at::kCPU, {2, 1}, {"a", "a"});
        },
        {"differ"});
  });
}

TEST(DeviceMeshTest, XlaDevicesAreSentToTheTextsOfXla) {
  run_ranks(2, [] {
    const std::vector<std::string> parts{
        "device type xla, mesh(tp=2), rank " + std::to_string(rank()),
        "to_hlo_sharding()", "to_shardy()"};
    expect_error<c10::NotImplementedError>(
        [] { init_device_mesh(at::kXLA, {2}, {"tp"}); }, parts);
    expect_error<c10::NotImplementedError>(
        [] { DeviceMesh(at::kXLA, at::arange(2), {"tp"}); }, parts);
  });
}

TEST(DeviceMeshTest, BadDimsAreNamed) {
  run_ranks(6, [] {
    const DeviceMesh mesh = grid();
    expect_error<c10::ValueError>(
        [&] { mesh["pp"]; }, {"mesh(dp=2, tp=3)", "\"pp\"", "dp", "tp"});
    expect_error<c10::ValueError>([&] { mesh.communicator("pp"); }, {"\"pp\""});
    expect_error<c10::ValueError>([&] { mesh.local_rank("pp"); }, {"\"pp\""});
    expect_error<c10::ValueError>(
        [&] {
          mesh.slice({"tp", "dp"});
        },
        {"ascend", "mesh(dp=2, tp=3)"});
    expect_error<c10::ValueError>(
        [&] {
          mesh.slice({"tp", "tp"});
        },
        {"ascend"});
    expect_error<c10::IndexError>(
        [&] { mesh.communicator(2); }, {"2 dims", "got dim 2"});
    expect_error<c10::IndexError>([&] { mesh.local_rank(-1); }, {"dim -1"});
    expect_error<c10::ValueError>(
        [&] { mesh.communicator(); },
        {"communicator on mesh(dp=2, tp=3), rank ", "1-d mesh only"});
    expect_error<c10::ValueError>(
        [&] { mesh.local_rank(); }, {"local_rank", "1-d mesh only"});
    expect_error<c10::ValueError>(
        [&] { mesh.flatten({}); }, {"flatten", "no dims"});
    expect_error<c10::ValueError>(
        [&] {
          mesh.flatten({"tp", "dp"});
        },
        {"flatten", "neighbours"});
    expect_error<c10::ValueError>(
        [&] {
          mesh.unflatten("tp", {2, 2}, {"a", "b"});
        },
        {"unflatten"});
    expect_error<c10::ValueError>(
        [] { DeviceMesh::concatenate({}); }, {"concatenate", "no mesh"});
    expect_error<c10::ValueError>(
        [&] {
          DeviceMesh::concatenate(
              {mesh, init_device_mesh(at::kMeta, {2, 3}, {"a", "b"})});
        },
        {"concatenate", "device type"});
    expect_error<c10::ValueError>(
        [&] {
          DeviceMesh::concatenate({mesh["dp"], mesh["dp"]});
        },
        {"overlap"});
  });
}

TEST(DeviceMeshTest, ReadyGroupsBecomeDims) {
  run_ranks(4, [] {
    const World world = init();
    const DeviceMesh line = DeviceMesh::from_group(
        {world.communicator({3, 2, 1, 0})}, at::kCPU, {}, {"x"});
    EXPECT_EQ(line.coordinate(), (Ranks{3 - rank()}));
    const at::Tensor ranks = at::arange(4).view({2, 2});
    const int64_t row = rank() / 2;
    const int64_t column = rank() % 2;
    const Communicator down = world.communicator({column, column + 2});
    const Communicator across = world.communicator({2 * row, 2 * row + 1});
    const DeviceMesh mesh =
        DeviceMesh::from_group({down, across}, at::kCPU, ranks, {"a", "b"});
    EXPECT_EQ(mesh.communicator("a").ranks(), down.ranks());
    mesh.communicator("b").barrier();
    expect_error<c10::ValueError>(
        [&] {
          DeviceMesh::from_group({across, down}, at::kCPU, ranks);
        },
        {"from_group, rank ", "dim 0", "mesh(2, 2)"});
    expect_error<c10::ValueError>(
        [&] {
          DeviceMesh::from_group({down, across}, at::kCPU);
        },
        {"from_group", "more than one group", "got 2"});
    expect_error<c10::ValueError>(
        [&] { DeviceMesh::from_group({down}, at::kCPU, ranks); },
        {"from_group", "one group per mesh dim", "got 1"});
    expect_error<c10::ValueError>(
        [] { DeviceMesh::from_group({}, at::kCPU); }, {"got no group"});
    expect_error<c10::ValueError>(
        [] { DeviceMesh::from_group({Communicator()}, at::kCPU); },
        {"undefined"});
  });
}

TEST(DeviceMeshTest, PrintsItsShape) {
  std::ostringstream text;
  text << init_device_mesh(at::kCPU, {1, 1}, {"dp", "tp"}) << ", "
       << init_device_mesh(at::kCUDA, {1});
  EXPECT_EQ(text.str(), "mesh(dp=1, tp=1), mesh(1) cuda");
}

TEST(MeshGuardTest, TheInnermostMeshIsCurrentOnThisThreadOnly) {
  expect_error<c10::ValueError>(
      [] { current_mesh(); }, {"current_mesh", "MeshGuard"});
  run_ranks(2, [] {
    const MeshGuard outer(init_device_mesh(at::kCPU, {2}, {"outer"}));
    {
      const MeshGuard inner(init_device_mesh(at::kCPU, {2}, {"inner"}));
      EXPECT_EQ(current_mesh().dim_names()[0], "inner");
    }
    EXPECT_EQ(current_mesh().dim_names()[0], "outer");
  });
  EXPECT_NE(error_of([] { current_mesh(); }), "");
}

}  // namespace
}  // namespace tessera
