// One rank's part of `tessera bench comm`, on whatever engine started it.
#include <tessera/comm/world.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include "bench_workers.h"

namespace tessera::cli {

namespace {

using Clock = std::chrono::steady_clock;

struct Collective {
  const char* name;
  int64_t input;   // elements
  int64_t output;  // elements
  std::function<void(const Communicator&, const at::Tensor&, const at::Tensor&)>
      call;
};

// `larger` elements on the larger side; see CommBenchOptions.
std::vector<Collective> collectives(int64_t larger, int64_t ranks) {
  const int64_t part = larger / ranks;
  using C = const Communicator&;
  using T = const at::Tensor&;
  return {
      {"all_gather", part, larger, [](C c, T o, T i) { c.all_gather(o, i); }},
      {"all_to_all", larger, larger, [](C c, T o, T i) { c.all_to_all(o, i); }},
      {"all_reduce", 0, larger, [](C c, T o, T) { c.all_reduce(o); }},
      {"reduce_scatter", larger, part,
       [](C c, T o, T i) { c.reduce_scatter(o, i); }},
      {"broadcast", 0, larger, [](C c, T o, T) { c.broadcast(o, 0); }},
      {"barrier", 0, 0, [](C c, T, T) { c.barrier(); }}};
}

// Returns, per repeat, the seconds of one call on the slowest rank. Two
// repeats more than are counted come first.
std::vector<double> measure(
    const Communicator& all, const Collective& what, int repeats, int calls) {
  const at::Tensor input = at::ones({what.input});
  const at::Tensor output = at::ones({what.output});
  const at::Tensor seconds = at::empty({repeats}, at::kDouble);
  for (int i = -2; i < repeats; ++i) {
    all.barrier();
    const auto begin = Clock::now();
    for (int call = 0; call < calls; ++call) {
      what.call(all, output, input);
    }
    const std::chrono::duration<double> taken = Clock::now() - begin;
    if (i >= 0) {
      seconds.mutable_data_ptr<double>()[i] = taken.count() / calls;
    }
  }
  all.all_reduce(seconds, ReduceOp::kMax);
  const auto* first = seconds.const_data_ptr<double>();
  return {first, first + repeats};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

std::vector<CommTime> bench_comm(const CommBenchOptions& options) {
  std::vector<CommTime> times;
  run([&] {
    const at::NoGradGuard no_grad;
    const Communicator all = init().communicator();
    const auto add = [&](const Collective& what, bool large) {
      const auto seconds = measure(
          all, what, large ? options.repeats : 2 * options.repeats,
          large ? 1 : options.small_calls);
      if (rank() == 0) {
        times.push_back({what.name, large, median(seconds)});
      }
    };
    for (const Collective& what :
         collectives(options.mebibytes << 18, all.size())) {
      if (what.output > 0) {
        add(what, true);
      }
    }
    for (const Collective& what : collectives(all.size(), all.size())) {
      add(what, false);
    }
  });
  return times;
}

}  // namespace tessera::cli
