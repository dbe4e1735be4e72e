// What `tessera demo` trains, and what comes of it: plain data between the
// training and the report.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera::cli {

/// The sizes of the GPT (examples/gpt.h) and of a batch. A vocabulary is that
/// of the text.
struct DemoSizes {
  int64_t batch = 16;
  int64_t length = 32;
  int64_t width = 64;
  int64_t heads = 4;
  int64_t hidden = 128;
  int64_t layers = 2;
};
inline constexpr DemoSizes kDemoSizes{};
inline constexpr int64_t kDemoTokensPerStep =
    kDemoSizes.batch * kDemoSizes.length;

/// Batches are cut along "dp", weights along "tp"; with fully_shard() weights
/// along both.
struct DemoMesh {
  int64_t dp = 2;
  int64_t tp = 2;
  int64_t ranks() const { return dp * tp; }
};

struct DemoOptions {
  DemoMesh mesh = {};
  /// Where training goes on after half of the steps, from a checkpoint.
  std::optional<DemoMesh> restart = {};
  /// The path of the checkpoint; else it is removed when it was read.
  std::string checkpoint = {};
  int steps = 900;
  /// "f64", "f32", or "bf16": parameters of f32, computed with under autocast,
  /// and a LossScaler.
  std::string dtype = "f64";
  /// The sharded run computes the activations of each block again.
  bool recompute = false;
  /// Parameters, gradients and optimizer state are cut along "dp", too.
  bool fsdp = false;
  /// The ranks are the processes of this job, else threads.
  bool processes = false;
  /// The steps on `mesh`.
  int steps_before_restart() const { return restart ? steps / 2 : steps; }
};

/// One training from the common start.
struct DemoRun {
  std::vector<double> losses;
  double seconds = 0;
  std::string text;  // what the trained model writes after the prompt
};

/// A part of a tensor dim.
struct DemoPart {
  int64_t begin = 0;
  int64_t end = 0;
};

/// A parameter of the sharded model. Every rank along "dp" holds the same; with
/// fully_shard() it is "dp" whose ranks are told apart.
struct DemoParameter {
  std::string name;
  std::string alike;  // the name that like layers share: "blocks.*.norm1.bias"
  std::vector<int64_t> shape;
  std::string placements;
  int cut_dim = -1;                  // of the tensor; -1: whole everywhere
  std::vector<DemoPart> parts = {};  // of that dim, by rank along "tp" or "dp"
  std::vector<int64_t> held = {};    // elements, likewise
};

/// Collectives of rank 0 that have one cause and are of one kind, over all
/// steps of the sharded run on the first mesh.
struct DemoTraffic {
  std::string cause;  // layers count as one: "blocks.*.mlp.down, ..."
  std::string kind;   // "all_reduce"
  std::string mesh_dims;
  bool in_backward = false;
  int64_t count = 0;
  int64_t bytes = 0;
};

/// A checkpoint of the sharded run, and where it was read.
struct DemoRestart {
  std::string mesh;
  int64_t checkpoint_bytes = 0;
  double save_seconds = 0;
  double load_seconds = 0;
};

struct DemoResult {
  DemoRun plain;
  DemoRun sharded;
  std::string mesh;
  std::string engine;
  DemoRestart restart;
  int64_t characters = 0;  // of the text
  int64_t vocabulary = 0;
  std::string prompt;
  std::vector<DemoParameter> parameters;
  std::vector<DemoTraffic> traffic;
  /// Bytes of parameters, gradients and optimizer state: of each rank of the
  /// first mesh, and of a rank that holds all of them, as in data parallelism.
  std::vector<int64_t> rank_bytes;
  int64_t replicated_bytes = 0;
};

/// Where a run stands.
struct DemoStep {
  bool sharded = false;
  bool restarted = false;
  int step = 0;
  double loss = 0;
  double seconds = 0;  // since the run began
};

/// Called on rank 0 after each step; from one thread at a time.
using DemoProgress = std::function<void(const DemoStep& step)>;

}  // namespace tessera::cli
