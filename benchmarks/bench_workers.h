// What the benchmarks measure on our side, on the ranks of this process; the
// programs of bench*.cpp run it beside PyTorch and print it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "examples/demo/demo.h"

namespace tessera::cli {

struct BenchOptions {
  int ranks = 4;
  int64_t mebibytes = 16;  // of the whole tensor
  int repeats = 10;        // of each transition in a round
};

/// One transition in one round, in seconds: the slowest rank, median over the
/// repeats; and a plain memcpy of the bytes that all ranks end up with.
struct BenchTransition {
  std::string name;  // "S0->R"
  double seconds = 0;
  double memcpy_seconds = 0;
};

/// What one call costs the host when nothing has to be waited for.
struct BenchHost {
  double unchanged_seconds = 0;  // a redistribute that changes nothing
  double cut_seconds = 0;        // R -> S(0) of 64 elements, plan cached
  double plain_cut_seconds = 0;  // narrow().clone() of a plain tensor
};

struct BenchRound {
  std::vector<BenchTransition> transitions;
  BenchHost host;
};

/// Every side of a collective counts as large as its larger one: of 16 MiB in
/// all, an all_gather on 4 ranks takes 4 from each. The small size is one f32
/// per run: 4 bytes from or to each rank.
struct CommBenchOptions {
  int64_t mebibytes = 16;
  int repeats = 5;       // of each collective in a round
  int small_calls = 50;  // in one go, at the small size
};

/// The seconds of one call: the slowest rank, median over the repeats.
struct CommTime {
  std::string collective;  // "all_gather"
  bool large = false;
  double seconds = 0;
};

struct DispatchBenchOptions {
  int batches = 200;  // of each operator in a round: one plain, one sharded
  int calls = 20;     // in a batch
  bool cuda = false;
};

/// One operator on sharded tensors beside the same on their plain shards, two
/// ranks: medians over the batches of all ranks, in seconds of one call.
struct DispatchCost {
  std::string name;
  /// How many calls of operators reach sharded tensors, composite ones, those
  /// inside them and backward's included.
  int64_t dispatched = 0;
  bool communicates = false;  // then there are no figures
  double plain_seconds = 0;
  double extra_seconds = 0;
};

struct MissBenchOptions {
  int samples = 100;   // new shapes per row
  int lengths = 1000;  // different sequence lengths in a row
};

/// What the first call with a new shape takes beyond the plain call, on one
/// simulated rank; medians.
struct MissCost {
  std::string name;
  int64_t mesh_dims = 0;
  bool communicates = false;  // then there are no figures
  double plain_seconds = 0;
  double extra_seconds = 0;
};

/// Misses, and the extra of a step on sequences of ever new length: medians of
/// the first and of the last tenth.
struct MissRound {
  std::vector<MissCost> misses;
  bool lengths_communicate = false;
  double first_seconds = 0;
  double last_seconds = 0;
};

/// The sizes of the demo's GPT (examples/gpt.h), f32, and how it is trained:
/// `tp` ranks share every layer, `dp` groups of them every batch.
struct TrainBenchOptions {
  int64_t batch = kDemoSizes.batch;
  int64_t vocabulary = 0;  // that of the demo's text
  int64_t length = kDemoSizes.length;
  int64_t width = kDemoSizes.width;
  int64_t heads = kDemoSizes.heads;
  int64_t hidden = kDemoSizes.hidden;
  int64_t layers = kDemoSizes.layers;
  int dp = 1;
  int tp = 2;
  int warm_up = 10;  // steps before the clock runs; their losses are compared
  int steps = 50;    // in a round

  int ranks() const { return dp * tp; }
  double tokens() const { return static_cast<double>(batch * length); }
};

/// What one round gave: the losses of the first steps, equal on all ranks, and
/// the seconds of a step on the slowest rank.
struct TrainTime {
  std::vector<double> losses;
  double step_seconds = 0;
};

/// CPU seconds of one step, plain and on a mesh of one rank.
struct StepPair {
  double plain = 0;
  double sharded = 0;
};

BenchRound bench_redistribute(const BenchOptions& options);
/// Measures as the ranks that this process hosts; the times where rank 0 is
/// among them, else nothing.
std::vector<CommTime> bench_comm(const CommBenchOptions& options);
std::vector<DispatchCost> bench_dispatch(const DispatchBenchOptions& options);
MissRound bench_misses(const MissBenchOptions& options);
/// As bench_comm: what was measured where rank 0 is among the ranks of this
/// process, else nothing.
std::optional<TrainTime> bench_train(const TrainBenchOptions& options);
/// Steps of the same model without a mesh and on one of one rank, in turns,
/// after `warm_up` of each whose losses must agree.
std::vector<StepPair> bench_step(const TrainBenchOptions& options);

}  // namespace tessera::cli
