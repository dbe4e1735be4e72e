// Uses the installed layers from the outside: a layout, ranks, a sharded
// tensor.
#include <iostream>

#include <ATen/ATen.h>
#include <tessera/tessera.h>

int main() {
  const auto last = tessera::local_shape(
      {10}, tessera::MeshShape({4}), {tessera::Shard(0)}, {3});
  if (last[0] != 1) {
    return 1;
  }
  tessera::run_ranks(4, [] {
    const auto mesh = tessera::init_device_mesh(at::kCPU, {4});
    const at::Tensor whole = at::arange(10);
    const at::Tensor sharded =
        tessera::distribute_tensor(whole, mesh, {tessera::Shard(0)});
    const at::Tensor sum = tessera::full_tensor(sharded + sharded);
    TORCH_CHECK(at::equal(sum, whole + whole), "the sum is wrong: ", sum);
  });
  std::cout << tessera::parse_layout("f32[10] S(0) @ mesh(4)").layout << '\n'
            << "consumer: ok\n";
}
