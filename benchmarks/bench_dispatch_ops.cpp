// One round of `tessera bench dispatch` on rank threads.
#include <tessera/comm/comm_log.h>
#include <tessera/comm/world.h>
#include <tessera/tensor/dtensor.h>
#include <tessera/tensor/factories.h>
#include <tessera/tensor/machine_model.h>

#include <functional>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sum.h>
#include <ATen/record_function.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "bench_workers.h"
#include "interleaved.h"

namespace tessera::cli {

namespace {

constexpr int kRanks = 2;
constexpr int kSize = 16;  // small: what is measured is not the arithmetic
constexpr int kWarmUp = 50;

using Tensors = std::vector<at::Tensor>;

struct Operand {
  std::vector<int64_t> shape;
  Placement placement;
  bool requires_grad = false;
};

/// The same call for sharded tensors and for plain ones.
struct Op {
  const char* name;
  std::vector<Operand> operands;
  std::function<void(const Tensors&)> call;
};

void linear_and_backward(const Tensors& t) {
  at::linear(t[0], t[1], t[2]).backward(t[3]);
  t[1].mutable_grad().reset();
  t[2].mutable_grad().reset();
}

// Placed so that no operator has to communicate. The linear layer is split by
// its outputs and its input wants no gradient: all others meet another rank in
// forward or in backward.
std::vector<Op> ops() {
  const Operand rows{{kSize, kSize}, Shard(0)};
  const Operand whole{{kSize, kSize}, Replicate()};
  const Operand vector{{kSize}, Replicate()};
  using T = const Tensors&;
  return {
      {"add", {rows, rows}, [](T t) { at::add(t[0], t[1]); }},
      {"add_", {rows, rows}, [](T t) { t[0].add_(t[1]); }},
      {"mul by a number", {rows}, [](T t) { t[0].mul(0.5); }},
      {"mm", {rows, whole}, [](T t) { at::mm(t[0], t[1]); }},
      {"t", {rows}, [](T t) { t[0].t(); }},
      {"view",
       {rows},
       [](T t) {
         t[0].view({-1, 4, kSize / 4});
       }},
      {"softmax", {rows}, [](T t) { at::softmax(t[0], 1); }},
      {"sum", {rows}, [](T t) { at::sum(t[0], 1); }},
      {"cat",
       {rows, rows},
       [](T t) {
         at::cat({t[0], t[1]}, 1);
       }},
      {"layer_norm",
       {rows, vector, vector},
       [](T t) { at::layer_norm(t[0], {kSize}, t[1], t[2]); }},
      {"linear, backward",
       {whole,
        {{kSize, kSize}, Shard(0), true},
        {{kSize}, Shard(0), true},
        {{kSize, kSize}, Shard(1)}},
       &linear_and_backward}};
}

Tensors make_sharded(const Op& op, const DeviceMesh& mesh) {
  Tensors tensors;
  for (const Operand& operand : op.operands) {
    tensors.push_back(ones(operand.shape, mesh, {operand.placement}));
    tensors.back().requires_grad_(operand.requires_grad);
  }
  return tensors;
}

Tensors make_plain(const Tensors& sharded) {
  Tensors tensors;
  for (const at::Tensor& tensor : sharded) {
    tensors.push_back(to_local(tensor.detach()).clone());
    tensors.back().requires_grad_(tensor.requires_grad());
  }
  return tensors;
}

/// What one rank found.
struct Found {
  int64_t dispatched = 0;
  bool communicates = false;
  Interleaved batches;
};

struct Trial {
  Tensors sharded;
  Tensors plain;
  Found found;
};

/// Makes the call once, on all ranks at a time, since it may communicate.
Trial begin(const Op& op, const DeviceMesh& mesh) {
  Trial trial;
  trial.sharded = make_sharded(op, mesh);
  trial.plain = make_plain(trial.sharded);
  const CommLog log;
  const int64_t before = dispatched_call_count();
  op.call(trial.sharded);
  trial.found.dispatched = dispatched_call_count() - before;
  trial.found.communicates = log.count() != 0;
  return trial;
}

void take_times(
    const Op& op, const DispatchBenchOptions& options, Trial& trial) {
  const auto repeat = [&](const Tensors& tensors, int times) {
    for (int i = 0; i < times; ++i) {
      op.call(tensors);
    }
  };
  repeat(trial.sharded, kWarmUp);
  repeat(trial.plain, kWarmUp);
  for (int i = 0; i < options.batches; ++i) {
    trial.found.batches.add_pair(
        [&] { repeat(trial.plain, options.calls); },
        [&] { repeat(trial.sharded, options.calls); });
    if (options.cuda) {
      c10::impl::getDeviceGuardImpl(at::kCUDA)->synchronizeDevice(0);
    }
  }
}

// Ranks that are threads share a GPU's queue and LibTorch's one thread for its
// backward passes, which PyTorch's processes do not: they take turns there.
Found measure(
    const Op& op, const DeviceMesh& mesh, const DispatchBenchOptions& options) {
  Trial trial = begin(op, mesh);
  for (int turn = 0; turn < (options.cuda ? kRanks : 1); ++turn) {
    init().communicator().barrier();
    if (!trial.found.communicates && (!options.cuda || rank() == turn)) {
      take_times(op, options, trial);
    }
  }
  return std::move(trial.found);
}

DispatchCost cost_of(
    const Op& op, const std::vector<Found>& ranks, int calls_per_batch) {
  DispatchCost cost{.name = op.name, .dispatched = ranks[0].dispatched};
  Interleaved all;
  for (const Found& found : ranks) {
    cost.communicates = cost.communicates || found.communicates;
    all.append(found.batches);
  }
  if (!cost.communicates) {
    cost.plain_seconds = middle(all.plain) / calls_per_batch;
    cost.extra_seconds = middle(all.extra) / calls_per_batch;
  }
  return cost;
}

}  // namespace

std::vector<DispatchCost> bench_dispatch(const DispatchBenchOptions& options) {
  const std::vector<Op> all = ops();
  std::vector<std::vector<Found>> found(all.size(), std::vector<Found>(kRanks));
  run_ranks(kRanks, [&] {
    at::set_num_threads(1);  // as on PyTorch's side
    const DeviceMesh mesh =
        init_device_mesh(options.cuda ? at::kCUDA : at::kCPU, {kRanks});
    for (size_t i = 0; i < all.size(); ++i) {
      found[i][static_cast<size_t>(rank())] = measure(all[i], mesh, options);
    }
  });
  std::vector<DispatchCost> costs;
  for (size_t i = 0; i < all.size(); ++i) {
    costs.push_back(cost_of(all[i], found[i], options.calls));
  }
  return costs;
}

}  // namespace tessera::cli
