// A program for callgrind_test.py: cached calls of an operator on plain tensors
// and on sharded ones, each kind inside a function that callgrind can be told
// of.
#include <tessera/comm/world.h>
#include <tessera/tensor/dtensor.h>
#include <tessera/tensor/factories.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <ATen/ops/add.h>
#include <ATen/ops/linear.h>

namespace {

struct Operands {
  at::Tensor rows;
  at::Tensor x;
  at::Tensor weight;
};
using Call = void (*)(const Operands&);

void add_in_place(const Operands& t) {
  t.rows.add_(t.rows);
}

void add(const Operands& t) {
  at::add(t.rows, t.rows);
}

void linear_and_backward(const Operands& t) {
  const at::Tensor y = at::linear(t.x, t.weight);
  y.backward(y.detach());
  t.weight.mutable_grad().reset();
}

void repeat(Call call, const Operands& operands, int times) {
  for (int i = 0; i < times; ++i) {
    call(operands);
  }
}

}  // namespace

extern "C" {

__attribute__((noinline)) void count_plain(
    Call call, const Operands& operands, int calls) {
  repeat(call, operands, calls);
}

__attribute__((noinline)) void count_sharded(
    Call call, const Operands& operands, int calls) {
  repeat(call, operands, calls);
  // Keeps the two functions apart for the linker.
  std::fflush(nullptr);
}

}  // extern "C"

namespace {

constexpr int kWarmUp = 20;

Call call_of(std::string_view name) {
  return name == "add"    ? add
         : name == "add_" ? add_in_place
                          : linear_and_backward;
}

Operands parts_of(const Operands& sharded) {
  Operands parts{
      tessera::to_local(sharded.rows).clone(),
      tessera::to_local(sharded.x.detach()).clone(),
      tessera::to_local(sharded.weight.detach()).clone()};
  parts.weight.requires_grad_();
  return parts;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: dispatch_count OPERATOR CALLS\n");
    return 2;
  }
  const Call call = call_of(argv[1]);
  const int calls = std::atoi(argv[2]);
  // One rank of two without the other: none of the calls talks to it. The
  // layer is cut by its outputs.
  tessera::run_simulated({.rank = 0, .size = 2}, [&] {
    const auto mesh = tessera::init_device_mesh(at::kCPU, {2});
    const Operands sharded{
        tessera::ones({8, 8}, mesh, {tessera::Shard(0)}),
        tessera::ones({8, 8}, mesh, {tessera::Replicate()}),
        tessera::ones({8, 8}, mesh, {tessera::Shard(0)})};
    sharded.weight.requires_grad_();
    const Operands plain = parts_of(sharded);
    repeat(call, plain, kWarmUp);
    count_plain(call, plain, calls);
    repeat(call, sharded, kWarmUp);
    count_sharded(call, sharded, calls);
  });
}
