#include <tessera/tensor/xla.h>

#include <gtest/gtest.h>
#include <tessera/tensor/dtensor.h>
#include <tessera/tensor/factories.h>

namespace tessera {
namespace {

TEST(SpecXlaTexts, AreThoseOfTheLayout) {
  run_ranks(4, [] {
    const DeviceMesh mesh = init_device_mesh(at::kCPU, {2, 2}, {"x", "y"});
    const at::Tensor tensor = zeros({4, 6}, mesh, {Shard(1), Shard(0)});
    EXPECT_EQ(to_hlo_sharding(spec(tensor)), "{devices=[2,2]<=[2,2]T(1,0)}");
    EXPECT_EQ(
        to_shardy(spec(tensor)),
        "sdy.mesh @mesh = <[\"x\"=2, \"y\"=2]>\n"
        "#sdy.sharding<@mesh, [{\"y\"}, {\"x\"}]>");
  });
}

}  // namespace
}  // namespace tessera
