// Meshes of a device type that is not there: layouts and meta tensors work,
// the first tensor with data is refused before anything moves.
#include <harness/sharded_test.h>

#include <ATen/Context.h>
#include <torch/nn/modules/linear.h>

namespace tessera {
namespace {

using testing::counting;
using testing::error_of;
using testing::mesh_of;

// A device type that no machine of these tests has.
c10::DeviceType absent() {
  return at::hasCUDA() ? at::kXPU : at::kCUDA;
}

std::string name_of_absent() {
  return c10::DeviceTypeName(absent(), /*lower_case=*/true);
}

template <class F>
void expect_refused(const std::string& call, F body) {
  const std::string text = error_of(body);
  const std::string mesh = call + " on mesh(tp=2) " + name_of_absent() +
                           ", rank " + std::to_string(rank()) + ": ";
  for (const std::string& part :
       {mesh + "this LibTorch is built without " + name_of_absent(),
        std::string("there is: cpu"),
        std::string("init_device_mesh(at::kCPU, ...)")}) {
    EXPECT_NE(text.find(part), std::string::npos)
        << "\"" << part << "\" is missing in: " << text;
  }
}

TEST(MeshDevice, ThatIsNotThereIsRefusedBeforeAnythingMoves) {
  run_ranks(2, [&] {
    const auto mesh = init_device_mesh(absent(), {2}, {"tp"});
    const auto here =
        distribute_tensor(counting({5}), mesh_of({2}), {Shard(0)});
    CommLog log;
    expect_refused("factory", [&] { zeros({5, 3}, mesh, {Shard(0)}); });
    expect_refused("factory", [&] { randn({5, 3}, mesh, {Replicate()}); });
    expect_refused("factory", [&] { arange(0, 5, 1, mesh, {Shard(0)}); });
    expect_refused("distribute_tensor", [&] {
      distribute_tensor(counting({5, 3}), mesh, {Shard(1)});
    });
    expect_refused("from_local", [&] {
      from_local(counting({2, 3}), mesh, {Shard(0)});
    });
    const auto plain = counting({4});
    expect_refused(
        "make_dtensor_", [&] { make_dtensor_(plain, mesh, {Shard(0)}); });
    EXPECT_FALSE(is_dtensor(plain));
    expect_refused(
        "redistribute", [&] { redistribute(here, mesh, {Replicate()}); });
    EXPECT_EQ(log.count(), 0);
  });
}

TEST(MeshDevice, ThatIsNotThereLeavesAModuleAsItIs) {
  run_ranks(2, [&] {
    const auto mesh = init_device_mesh(absent(), {2}, {"tp"});
    torch::nn::Linear net(4, 6);
    CommLog log;
    expect_refused("parallelize_module, weight", [&] {
      parallelize_module(*net, mesh, {{"", ColwiseParallel()}});
    });
    expect_refused("make_dtensor_", [&] { distribute_parameters(*net, mesh); });
    EXPECT_FALSE(is_dtensor(net->weight));
    EXPECT_EQ(log.count(), 0);
  });
}

TEST(MeshDevice, ThatIsNotThereServesLayoutsAndMetaTensors) {
  run_ranks(3, [&] {
    const auto mesh = init_device_mesh(absent(), {3}, {"tp"});
    const auto t = zeros(
        {7, 4}, mesh, {Shard(0)},
        at::TensorOptions(at::kFloat).device(at::kMeta));
    EXPECT_TRUE(to_local(t).is_meta());
    EXPECT_EQ(to_local(t).size(0), rank() < 2 ? 3 : 1);
    const auto whole = at::empty({7, 4}, at::TensorOptions().device(at::kMeta));
    EXPECT_EQ(
        to_local(distribute_tensor(whole, mesh, {Shard(1)})).size(1),
        rank() < 2 ? 2 : 0);
  });
  run_simulated({.rank = 40000, .size = 65536}, [] {
    const auto mesh = init_device_mesh(absent(), {256, 256});
    EXPECT_EQ(mesh.local_rank(0), 156);
  });
}

}  // namespace
}  // namespace tessera
