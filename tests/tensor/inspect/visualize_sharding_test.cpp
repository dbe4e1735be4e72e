#include <tessera/tensor/visualize_sharding.h>

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <tessera/tensor/dtensor.h>
#include <tessera/tensor/factories.h>

namespace tessera {
namespace {

TEST(VisualizeShardingOfTensor, IsThePictureOfItsLayoutOnEveryRank) {
  run_ranks(4, [] {
    const DeviceMesh mesh = init_device_mesh(at::kCPU, {2, 2}, {"dp", "tp"});
    const at::Tensor tensor = zeros({4, 4}, mesh, {Replicate(), Shard(1)});
    EXPECT_EQ(
        visualize_sharding(tensor, {.ascii = true}),
        "        0:2   2:4\n"
        "      +-----+-----+\n"
        "  0:4 | 0,2 | 1,3 |\n"
        "      +-----+-----+\n"
        "\n"
        "ranks in one cell hold copies");
  });
}

TEST(VisualizeShardingOfTensor, IsKnownOutsideItsMesh) {
  run_ranks(3, [] {
    const DeviceMesh mesh = init_device_mesh(at::kCPU, {2});
    const at::Tensor tensor = zeros({4}, mesh, {Shard(0)});
    EXPECT_EQ(
        visualize_sharding(tensor, {.ascii = true}),
        "    0:2   2:4\n"
        "  +-----+-----+\n"
        "  |  0  |  1  |\n"
        "  +-----+-----+");
  });
}

TEST(VisualizeShardingOfTensor, RefusesATensorThatIsNotSharded) {
  try {
    visualize_sharding(at::zeros({2}));
    FAIL() << "no error";
  } catch (const c10::TypeError& error) {
    EXPECT_NE(
        std::string(error.what_without_backtrace()).find("is not sharded"),
        std::string::npos);
  }
}

}  // namespace
}  // namespace tessera
