// The demo's GPT, its start and its plan, a step of its training, and how a
// trained one writes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <tessera/checkpoint/state_dict.h>
#include <tessera/comm/device_mesh.h>
#include <tessera/parallel/data_parallel.h>
#include <tessera/parallel/loss_scaler.h>
#include <tessera/parallel/parallelize_module.h>
#include "examples/gpt.h"

#include "demo.h"
#include "demo_corpus.h"

namespace tessera::cli {

using gpt::Gpt;

inline constexpr const char* kDemoPrompt = "The keeper ";

/// What both runs share.
struct Task {
  Corpus corpus = Corpus::shipped();
  at::ScalarType dtype = at::kDouble;  // of the parameters
  bool autocast = false;               // to bf16
  int steps = 0;
  std::vector<at::Tensor> start;  // the values of the parameters
};

/// Returns a model with the values that all runs start from.
Gpt new_model(const Task& task);

Task make_task(const DemoOptions& options);

/// Returns the plan of Megatron: by outputs, then by inputs, so that attention
/// and MLP each add up once; and the vocabulary cut at both ends.
ParallelPlan tensor_parallel();

/// Makes a model compute the activations of each block again in the backward
/// pass.
void recompute_blocks(Gpt& model);

/// Where a model's inputs belong.
struct Place {
  std::optional<DeviceMesh> mesh = {};  // nothing: they stay plain
  bool has_cut_logits = false;  // along their classes, by tensor_parallel()

  at::Tensor operator()(
      const at::Tensor& tensor, const Placement& along_dp) const;
};

/// Returns the values of a tensor, plain or on a mesh.
at::Tensor whole(const at::Tensor& tensor);

/// What a run trains, and how far its scale has come.
struct Training {
  explicit Training(const Gpt& made);
  at::Tensor loss(const Batch& batch, const Task& task, const Place& place);
  /// Makes step number `step`; `parallel` where gradients are to be summed.
  void step(
      int step, const at::Tensor& loss, const Task& task,
      DataParallel* parallel);
  /// Returns what a checkpoint keeps; loading it continues.
  checkpoint::StateDict state(const Task& task);

  Gpt model;
  torch::optim::AdamW optimizer;
  LossScaler scaler = LossScaler({.interval = 200});
};

/// Lets a model go on with the prompt to the end of the line, with the same
/// random numbers for every model. Attention looks back only, so what stands
/// after the last character of a window does not count.
std::string write_line(Gpt& model, const Task& task, const Place& place);

}  // namespace tessera::cli
