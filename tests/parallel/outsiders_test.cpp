// Ranks outside of a mesh run the same training program, and every tensor that
// they make has the spec that it has on the members: styles, data parallelism,
// loss parallelism and decompositions change specs on all ranks alike.
#include <harness/spec_trace.h>

#include "gpt_training.h"

namespace tessera {
namespace {

using testing::expect_specs_of_members;
using testing::sequence_parallel;
using testing::SpecTrace;
using testing::tensor_parallel;
using testing::TrainingCase;
using testing::with_vocabulary;

void note_gradients(const torch::nn::Module& model, SpecTrace& trace) {
  for (const auto& parameter : model.named_parameters()) {
    trace.note("parameter " + parameter.key(), parameter.value());
    trace.note("gradient of " + parameter.key(), parameter.value().grad());
  }
}

void expect_training(const TrainingCase& c) {
  SCOPED_TRACE(c.name);
  expect_specs_of_members(
      c.mesh, c.dims, [&](const DeviceMesh& mesh, SpecTrace& trace) {
        testing::train_on(
            mesh, c, 2, [&](const torch::nn::Module& model, const at::Tensor&) {
              note_gradients(model, trace);
            });
      });
}

TEST(RanksOutside, HaveTheSpecsOfTensorParallelMembers) {
  expect_training({"tp 2", {2}, {"tp"}, tensor_parallel()});
  expect_training({"tp 3", {3}, {"tp"}, with_vocabulary(tensor_parallel())});
  expect_training(
      {"logits gathered",
       {2},
       {"tp"},
       with_vocabulary(tensor_parallel(), {.output_layouts = Replicate()})});
}

TEST(RanksOutside, HaveTheSpecsOfSequenceParallelMembers) {
  expect_training({"sp 2", {2}, {"tp"}, sequence_parallel()});
  expect_training({"sp 3", {3}, {"tp"}, sequence_parallel()});
}

TEST(RanksOutside, HaveTheSpecsOfDataParallelMembers) {
  for (const bool buckets : {false, true}) {
    expect_training(
        {.name = "dp 2",
         .mesh = {2},
         .dims = {"dp"},
         .plan = {},
         .data_parallel = buckets});
    expect_training(
        {.name = "dp 2 x tp 2",
         .mesh = {2, 2},
         .dims = {"dp", "tp"},
         .plan = tensor_parallel(),
         .data_parallel = buckets});
  }
}

TEST(RanksOutside, HaveTheSpecsOfLossParallelMembers) {
  for (const bool guarded : {false, true}) {
    expect_training(
        {.name = "tp 2",
         .mesh = {2},
         .dims = {"tp"},
         .plan = with_vocabulary(tensor_parallel()),
         .loss_parallel = guarded});
    expect_training(
        {.name = "dp 2 x tp 2",
         .mesh = {2, 2},
         .dims = {"dp", "tp"},
         .plan = with_vocabulary(tensor_parallel()),
         .loss_parallel = guarded,
         .data_parallel = true});
  }
}

}  // namespace
}  // namespace tessera
