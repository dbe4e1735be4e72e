// A program for callgrind_test.py: cached calls of operators on plain tensors
// and on sharded ones, each kind inside a function that callgrind can be told
// of. Each operator has a process of its own, with a heap that no other has
// used; they are forked, since loading LibTorch is most of what valgrind does.
#include <tessera/comm/world.h>
#include <tessera/tensor/dtensor.h>
#include <tessera/tensor/factories.h>

#include <sys/wait.h>
#include <unistd.h>

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

void count(Call call, int calls) {
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

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: dispatch_count CALLS OPERATOR...\n");
    return 2;
  }
  for (int i = 2; i < argc; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      count(call_of(argv[i]), std::atoi(argv[1]));
      return 0;
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
      std::fprintf(stderr, "counting %s failed\n", argv[i]);
      return 1;
    }
    std::printf("%s %d\n", argv[i], static_cast<int>(child));
    std::fflush(stdout);
  }
}
