// Sharded tensors of any tiling, and a net that a plan shards. Prints how many
// elements each rank holds, whether all came back, and whether the net learned.
// Run it alone, on ranks that are threads, or on processes:
//
//   build/bin/tessera run -n 4 -- build/bin/06_sharded_tensor
//   build/bin/tessera run -n 4 --engine gloo -- build/bin/06_sharded_tensor
//   mpirun -n 4 build/bin/06_sharded_tensor
#include <iostream>
#include <string>
#include <vector>

#include <tessera/sharded_tensor/create.h>
#include <tessera/sharded_tensor/shard_module.h>
#include <tessera/sharded_tensor/sharded_optimizer.h>
#include <tessera/tessera.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

namespace {

using namespace tessera::sharded_tensor;
using tessera::rank;

// Prints a line, on rank 0 only.
void print(const std::string& line) {
  std::cout << (rank() == 0 ? line + "\n" : "") << std::flush;
}

// Returns a number of each rank, in order.
std::vector<int64_t> numbers_of_ranks(int64_t mine) {
  const at::Tensor all = at::empty({tessera::world_size()}, at::kLong);
  tessera::init().communicator().all_gather(
      all, at::full({1}, mine, at::kLong));
  const auto* numbers = all.const_data_ptr<int64_t>();
  return {numbers, numbers + all.numel()};
}

RemoteDevice place(int64_t r) {
  return RemoteDevice(r % tessera::world_size(), c10::Device(at::kCPU));
}

// One chunk per rank along a dim.
ChunkShardingSpec chunks(int64_t dim) {
  std::vector<RemoteDevice> places;
  for (int64_t r = 0; r < tessera::world_size(); ++r) {
    places.push_back(place(r));
  }
  return ChunkShardingSpec(dim, places);
}

// Boxes of a 5 x 5 tensor around its centre, which no mesh could describe.
EnumerableShardingSpec pinwheel() {
  return EnumerableShardingSpec(
      {{{0, 0}, {2, 3}, place(0)},
       {{0, 3}, {3, 2}, place(1)},
       {{3, 2}, {2, 3}, place(2)},
       {{2, 0}, {3, 2}, place(3)},
       {{2, 2}, {1, 1}, place(0)}});
}

void tensors() {
  const at::Tensor matrix = at::arange(25, at::kFloat).reshape({5, 5});
  ShardedTensor t = shard_tensor(matrix, chunks(0));
  t.reshard(pinwheel());
  const std::vector<int64_t> held = numbers_of_ranks(t.shard_size());
  for (size_t r = 0; r < held.size(); ++r) {
    print(c10::str("rank ", r, " holds ", held[r], " elements"));
  }
  const std::string bytes = save(t);
  t.reshard(chunks(1));
  at::Tensor whole = rank() == 0 ? at::empty({5, 5}) : at::Tensor();
  t.gather(0, whole);
  print(rank() == 0 && at::equal(whole, matrix) ? "gathered all" : "differs");
  const at::Tensor back = restore(bytes).resharded(chunks(1)).local_tensor();
  print(at::equal(back, t.local_tensor()) ? "restored all" : "differs");
}

void training() {
  torch::nn::Sequential model(
      torch::nn::Linear(8, 32), torch::nn::ReLU(), torch::nn::Linear(32, 4));
  // Values are rank 0's; the output is cut by rows, and each rank sees its own.
  auto net = shard_module(
      model, {.plan =
                  {{"0.weight", chunks(0)},
                   {"0.bias", chunks(0)},
                   {"2.weight", chunks(1)}},
              .output_plan = {{"", chunks(0)}},
              .return_local_tensor = {""}});
  ShardedOptimizer<torch::optim::AdamW, torch::optim::AdamWOptions> optimizer(
      named_params_with_sharded_tensor(*model), {0.02});
  const at::Tensor x = at::linspace(-1, 1, 16 * 8).reshape({16, 8});
  double first = 0, last = 0;
  for (int step = 0; step < 30; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = (net(x) - 1).pow(2).sum();  // of this rank's rows
    loss.backward();
    optimizer.step();
    last = loss.item<double>();
    first = step == 0 ? last : first;
  }
  print(last < first / 10 ? "loss went down" : "loss stayed");
}

}  // namespace

int main() {
  tessera::run(tensors);
  tessera::run(training);
}
