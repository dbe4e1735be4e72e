// Ranks outside of a mesh run the same training program, and every tensor that
// they make has the spec that it has on the members: styles, data parallelism,
// loss parallelism and decompositions change specs on all ranks alike.
#include <harness/spec_trace.h>

#include "gpt_training.h"

namespace tessera {
namespace {

using testing::expect_specs_of_members;
using testing::Gpt;
using testing::indices;
using testing::loss_of;
using testing::new_gpt;
using testing::sequence_parallel;
using testing::SpecTrace;
using testing::targets;
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
        Gpt model = new_gpt(c.sizes);
        parallelize_module(model, mesh, c.plan);
        std::optional<DataParallel> parallel;
        if (c.data_parallel) {
          parallel.emplace(*model, mesh);
        }
        torch::optim::AdamW optimizer(model->parameters(), 1e-2);
        for (int step = 0; step < 2; ++step) {
          optimizer.zero_grad();
          std::optional<LossParallel> guard;
          if (c.loss_parallel) {
            guard.emplace();
          }
          const at::Tensor loss = loss_of(
              model(distribute_tensor(indices(c.sizes, step), mesh, c.batch())),
              distribute_tensor(targets(c.sizes, step), mesh, c.batch()));
          loss.backward();
          if (parallel) {
            parallel->reduce_gradients();
          }
          note_gradients(*model, trace);
          optimizer.step();
        }
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
