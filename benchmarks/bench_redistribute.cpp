// One round of `tessera bench redistribute` on rank threads.
#include <tessera/comm/world.h>
#include <tessera/tensor/dtensor.h>
#include <tessera/tensor/factories.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "bench_workers.h"

namespace tessera::cli {

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Transition {
  const char* name;
  Placement from;
  Placement to;
};

const std::vector<Transition>& transitions() {
  static const std::vector<Transition> all{
      {"S0->R", Shard(0), Replicate()},
      {"S0->S1", Shard(0), Shard(1)},
      {"P->R", Partial(), Replicate()},
      {"P->S0", Partial(), Shard(0)}};
  return all;
}

/// The seconds of one thing: per repeat and rank.
class Times {
 public:
  Times(int repeats, int ranks)
      : seconds_(
            static_cast<size_t>(repeats),
            std::vector<double>(static_cast<size_t>(ranks))) {}

  /// Repeats `body` on every rank, all beginning together; two runs more than
  /// are counted come first.
  template <class F>
  void measure(const F& body) {
    const Communicator all = init().communicator();
    for (int64_t i = -2; i < static_cast<int64_t>(seconds_.size()); ++i) {
      all.barrier();
      const auto begin = Clock::now();
      body();
      if (i >= 0) {
        seconds_[static_cast<size_t>(i)][static_cast<size_t>(rank())] =
            since(begin);
      }
    }
  }

  /// Returns the median over repeats of the slowest rank.
  double median() const {
    std::vector<double> slowest;
    for (const auto& ranks : seconds_) {
      slowest.push_back(*std::max_element(ranks.begin(), ranks.end()));
    }
    std::sort(slowest.begin(), slowest.end());
    return slowest[slowest.size() / 2];
  }

 private:
  std::vector<std::vector<double>> seconds_;
};

template <class F>
double per_call(const F& body) {
  constexpr int kCalls = 20000;
  for (int i = 0; i < kCalls / 10; ++i) {
    body();
  }
  const auto begin = Clock::now();
  for (int i = 0; i < kCalls; ++i) {
    body();
  }
  return since(begin) / kCalls;
}

// A cut of a replicated tensor needs no other rank, so one rank alone shows
// what a call costs.
BenchHost measure_host(const DeviceMesh& mesh) {
  const Placements whole{Replicate()};
  const Placements cut{Shard(0)};
  const at::Tensor t = zeros({64}, mesh, whole);
  const at::Tensor plain = at::zeros({64});
  const int64_t part = 64 / mesh.size();
  BenchHost host;
  host.unchanged_seconds = per_call([&] { redistribute(t, whole); });
  host.cut_seconds = per_call([&] { redistribute(t, cut); });
  host.plain_cut_seconds = per_call([&] { plain.narrow(0, 0, part).clone(); });
  return host;
}

}  // namespace

BenchRound bench_redistribute(const BenchOptions& options) {
  const auto rows = static_cast<int64_t>(
      std::llround(std::sqrt(static_cast<double>(options.mebibytes << 18))));
  const std::vector<Times> empty(
      transitions().size(), Times(options.repeats, options.ranks));
  std::vector<Times> moves = empty;
  std::vector<Times> copies = empty;
  BenchRound round;
  run_ranks(options.ranks, [&] {
    const at::NoGradGuard no_grad;
    const DeviceMesh mesh = init_device_mesh(at::kCPU, {options.ranks});
    for (size_t i = 0; i < transitions().size(); ++i) {
      const Transition& t = transitions()[i];
      const at::Tensor source = ones({rows, rows}, mesh, {t.from});
      const Placements to{t.to};
      at::Tensor result;
      moves[i].measure([&] { result = redistribute(source, to); });
      // The bytes that this rank ends up with, into memory that is there.
      const at::Tensor local = to_local(result);
      const at::Tensor copy = at::empty(local.sizes(), local.options());
      copies[i].measure([&] {
        std::memcpy(
            copy.mutable_data_ptr(), local.const_data_ptr(), local.nbytes());
      });
    }
    if (rank() == 0) {
      round.host = measure_host(mesh);
    }
    init().communicator().barrier();
  });
  for (size_t i = 0; i < transitions().size(); ++i) {
    round.transitions.push_back(
        {transitions()[i].name, moves[i].median(), copies[i].median()});
  }
  return round;
}

}  // namespace tessera::cli
