// The demo's GPT, its start and its plan, and how a trained one writes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <tessera/comm/device_mesh.h>
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
  at::ScalarType dtype = at::kDouble;
  int steps = 0;
  std::vector<at::Tensor> start;  // the values of the parameters
};

/// Returns a model with the values that all runs start from.
Gpt new_model(const Task& task);

Task make_task(const DemoOptions& options);

/// Returns the plan of Megatron: by outputs, then by inputs, so that attention
/// and MLP each add up once; and the vocabulary cut at both ends.
ParallelPlan tensor_parallel();

/// Where a model's inputs belong.
struct Place {
  std::optional<DeviceMesh> mesh;  // nothing: they stay plain

  at::Tensor operator()(
      const at::Tensor& tensor, const Placement& along_dp) const;
};

/// Returns the values of a tensor, plain or on a mesh.
at::Tensor whole(const at::Tensor& tensor);

/// Lets a model go on with the prompt to the end of the line, with the same
/// random numbers for every model. Attention looks back only, so what stands
/// after the last character of a window does not count.
std::string write_line(Gpt& model, const Task& task, const Place& place);

}  // namespace tessera::cli
