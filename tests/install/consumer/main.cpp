// Uses the installed layers from the outside: a layout, ranks, a sharded
// tensor, a parallel style that the library does not have.
#include <iostream>

#include <ATen/ATen.h>
#include <tessera/tessera.h>
#include <torch/nn/modules/linear.h>

// Cuts the rows of a Linear into `blocks`, and each block over the ranks.
struct BlockRows {
  static constexpr const char* kName = "BlockRows";
  int64_t blocks = 2;
  void apply(tessera::StyledModule& target) const {
    const auto rows = tessera::StridedShard(0, blocks);
    target.shard(
        "weight", rows, tessera::CallLayouts{.output = tessera::Replicate()});
    target.shard("bias", rows);
  }
};

void check_own_style() {
  const auto mesh = tessera::init_device_mesh(at::kCPU, {4}, {"tp"});
  torch::nn::Linear linear(3, 16);
  at::NoGradGuard no_grad;
  linear->weight.copy_(at::arange(48).view({16, 3}));
  linear->bias.copy_(at::arange(16));
  const at::Tensor x = at::arange(6.0F).view({2, 3});
  const at::Tensor want = linear(x);
  tessera::parallelize_module(linear, mesh, {{"", BlockRows{.blocks = 2}}});
  TORCH_CHECK(
      tessera::placements(linear->weight)[0] == tessera::StridedShard(0, 2));
  TORCH_CHECK(linear->weight.sizes() == at::IntArrayRef({16, 3}));
  TORCH_CHECK(at::equal(tessera::full_tensor(linear(x)), want));
}

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
    check_own_style();
  });
  std::cout << tessera::parse_layout("f32[10] S(0) @ mesh(4)").layout << '\n'
            << "consumer: ok\n";
}
