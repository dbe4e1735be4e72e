// The measuring of `tessera bench dispatch --misses`, on a simulated rank:
// what a first call costs does not depend on the others.
#include <tessera/comm/comm_log.h>
#include <tessera/comm/world.h>
#include <tessera/tensor/dtensor.h>
#include <tessera/tensor/factories.h>

#include <functional>

#include <ATen/Parallel.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/softmax.h>

#include "bench_workers.h"
#include "interleaved.h"

namespace tessera::cli {

namespace {

constexpr int64_t kColumns = 16;
constexpr int kWarmUp = 5;  // shapes that are not counted

using Tensors = std::vector<at::Tensor>;

/// An operator on [n, 16] and [n or 16, 16], one placement per mesh dim.
struct Miss {
  const char* name;
  Placements first;
  Placements second;
  bool second_is_square = false;
  std::function<void(const Tensors&)> call;
};

std::vector<Miss> misses() {
  using T = const Tensors&;
  const auto add = [](T t) { at::add(t[0], t[1]); };
  const auto view = [](T t) { t[0].view({-1, 4, kColumns / 4}); };
  const auto mm = [](T t) { at::mm(t[0], t[1]); };
  const Placement r = Replicate();
  const Placement s0 = Shard(0);
  const Placement s1 = Shard(1);
  return {
      {"add", {s0}, {s0}, false, add},
      {"mm", {s0}, {r}, true, mm},
      {"view", {s0}, {s0}, false, view},
      {"add", {s0, s1}, {s0, s1}, false, add},
      {"mm", {s0, r}, {r, s1}, true, mm},
      {"view", {s0, s1}, {s0, s1}, false, view},
      {"mm", {s0, s1, r}, {r, s0, s1}, true, mm},
      {"mm", {s0, s0, r, r}, {r, r, s1, s1}, true, mm},
      {"mm", {s0, s0, s1, s1, r, r}, {r, r, s0, s0, s1, s1}, true, mm}};
}

DeviceMesh mesh_of(size_t dims) {
  return init_device_mesh(at::kCPU, std::vector<int64_t>(dims, 2));
}

// Threads of an operator would wait for each other on a busy machine, for
// longer than what is measured.
void on_simulated(size_t mesh_dims, const std::function<void()>& body) {
  run_simulated({.rank = 0, .size = int64_t{1} << mesh_dims}, [&] {
    at::set_num_threads(1);
    body();
  });
}

// Times the first call with sharded operands of one shape, and the plain one.
void add_first_call(
    Interleaved& times, const Tensors& sharded,
    const std::function<void(const Tensors&)>& call) {
  Tensors plain;
  for (const at::Tensor& tensor : sharded) {
    plain.push_back(to_local(tensor).clone());
  }
  times.add_pair([&] { call(plain); }, [&] { call(sharded); });
}

MissCost measure(const Miss& miss, int samples) {
  MissCost cost{
      .name = miss.name, .mesh_dims = static_cast<int64_t>(miss.first.size())};
  on_simulated(miss.first.size(), [&] {
    const DeviceMesh mesh = mesh_of(miss.first.size());
    const CommLog log;
    Interleaved times;
    for (int i = 1; i <= kWarmUp + samples && log.count() == 0; ++i) {
      const int64_t rows = 4 * i;
      add_first_call(
          times,
          {ones({rows, kColumns}, mesh, miss.first),
           ones(
               {miss.second_is_square ? kColumns : rows, kColumns}, mesh,
               miss.second)},
          miss.call);
    }
    cost.communicates = log.count() != 0;
    if (!cost.communicates) {
      cost.plain_seconds = middle(times.plain, kWarmUp, times.plain.size());
      cost.extra_seconds = middle(times.extra, kWarmUp, times.extra.size());
    }
  });
  return cost;
}

void measure_lengths(MissRound& round, int lengths) {
  const auto step = [](const Tensors& t) {
    at::softmax(at::mm(at::add(t[0], t[0]), t[1]), 1);
  };
  on_simulated(1, [&] {
    const DeviceMesh mesh = mesh_of(1);
    const CommLog log;
    Interleaved times;
    for (int i = 0; i < kWarmUp + lengths && log.count() == 0; ++i) {
      add_first_call(
          times,
          {ones({2 + i, kColumns}, mesh, {Shard(0)}),
           ones({kColumns, kColumns}, mesh, {Replicate()})},
          step);
    }
    round.lengths_communicate = log.count() != 0;
    if (!round.lengths_communicate) {
      const size_t end = times.extra.size();
      const size_t tenth = std::max<size_t>(1, (end - kWarmUp) / 10);
      round.first_seconds = middle(times.extra, kWarmUp, kWarmUp + tenth);
      round.last_seconds = middle(times.extra, end - tenth, end);
    }
  });
}

}  // namespace

MissRound bench_misses(const MissBenchOptions& options) {
  MissRound round;
  for (const Miss& miss : misses()) {
    round.misses.push_back(measure(miss, options.samples));
  }
  measure_lengths(round, options.lengths);
  return round;
}

}  // namespace tessera::cli
