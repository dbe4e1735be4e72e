// Compiled with what pkg-config says.
#include <ATen/ops/ones.h>
#include <tessera/comm/device_mesh.h>
#include <tessera/comm/world.h>
#include <tessera/layout/notation.h>
#include <tessera/tensor/dtensor.h>

#include <iostream>

int main() {
  tessera::run_ranks(2, [] {
    const auto mesh = tessera::init_device_mesh(at::kCPU, {2}, {"tp"});
    const at::Tensor sharded =
        tessera::distribute_tensor(at::ones({4, 3}), mesh, {tessera::Shard(0)});
    const double sum = sharded.sum().item<double>();
    if (tessera::rank() == 0) {
      std::cout << tessera::parse_layout("f32[4, 3] S(0) @ mesh(2)").layout
                << ", sum " << sum << '\n';
    }
  });
}
