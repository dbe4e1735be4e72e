// Parallel styles: a GPT that knows nothing of ranks trains on a mesh with the
// losses of one device, and with the communication that its styles stand for.
#include <harness/sharded_test.h>

#include <map>

#include "../../examples/gpt.h"

namespace tessera {
namespace {

using testing::close;
using testing::distinct;
using gpt::Gpt;
using GptSizes = gpt::Sizes;
using testing::i64;
using testing::mesh_of;

constexpr int64_t kBatch = 4;

void set_values(torch::nn::Module& module) {
  const torch::NoGradGuard guard;
  double shift = 0.01;
  for (const at::Tensor& p : module.parameters()) {
    p.copy_(distinct(p.sizes(), at::kDouble).mul(0.2).add(shift));
    shift += 0.01;
  }
}

Gpt new_gpt(const GptSizes& sizes) {
  Gpt gpt(sizes);
  gpt->to(testing::device(), at::kDouble);
  set_values(*gpt);
  return gpt;
}

at::Tensor indices(const GptSizes& sizes, int64_t step) {
  return at::arange(kBatch * sizes.length, i64())
      .mul(7)
      .add(step)
      .remainder(sizes.vocabulary)
      .view({kBatch, sizes.length});
}
at::Tensor targets(const GptSizes& sizes, int64_t step) {
  return indices(sizes, 5 * step + 3);
}

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& wanted) {
  return torch::nn::functional::cross_entropy(
      logits.flatten(0, 1), wanted.flatten());
}

ParallelPlan tensor_parallel() {
  return {
      {"blocks.*.attention.[qkv]", ColwiseParallel()},
      {"blocks.*.attention.o", RowwiseParallel()},
      {"blocks.*.mlp.up", ColwiseParallel()},
      {"blocks.*.mlp.down", RowwiseParallel()}};
}

ParallelPlan with_vocabulary(ParallelPlan plan, bool gathered) {
  plan.push_back({"tokens", RowwiseParallel()});
  plan.push_back(
      {"head", gathered ? ColwiseParallel{.output_layouts = Replicate()}
                        : ColwiseParallel()});
  return plan;
}

ParallelPlan sequence_parallel() {
  return {
      {"blocks.*.norm?", SequenceParallel()},
      {"norm", SequenceParallel()},
      {"blocks.*.attention.[qkv]", ColwiseParallel()},
      {"blocks.*.attention.o", RowwiseParallel{.output_layouts = Shard(1)}},
      {"blocks.*.mlp.up", ColwiseParallel()},
      {"blocks.*.mlp.down", RowwiseParallel{.output_layouts = Shard(1)}}};
}

using Losses = std::vector<double>;

Losses train_plain(const GptSizes& sizes, int steps) {
  Gpt gpt = new_gpt(sizes);
  torch::optim::AdamW optimizer(gpt->parameters(), 1e-2);
  Losses losses;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss =
        loss_of(gpt(indices(sizes, step)), targets(sizes, step));
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

struct Case {
  const char* name;
  std::vector<int64_t> mesh;
  std::vector<std::string> dims;
  ParallelPlan plan;
  GptSizes sizes = {};
};

Losses train_parallel(const Case& c, int steps) {
  const DeviceMesh mesh = mesh_of(c.mesh, c.dims);
  Gpt gpt = new_gpt(c.sizes);
  parallelize_module(gpt, mesh, c.plan);
  torch::optim::AdamW optimizer(gpt->parameters(), 1e-2);
  Placements batch(c.mesh.size(), Replicate());
  if (c.dims[0] == "dp") {
    batch[0] = Shard(0);
  }
  Losses losses;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = loss_of(
        gpt(distribute_tensor(indices(c.sizes, step), mesh, batch)),
        distribute_tensor(targets(c.sizes, step), mesh, batch));
    loss.backward();
    optimizer.step();
    losses.push_back(full_tensor(loss.detach()).item<double>());
  }
  return losses;
}

void expect_equal_losses(const Case& c, int steps = 50) {
  SCOPED_TRACE(c.name);
  const Losses plain = train_plain(c.sizes, steps);
  int64_t ranks = 1;
  for (const int64_t size : c.mesh) {
    ranks *= size;
  }
  run_ranks(ranks, [&] {
    const Losses parallel = train_parallel(c, steps);
    for (int i = 0; i < steps; ++i) {
      ASSERT_NEAR(
          parallel[static_cast<size_t>(i)], plain[static_cast<size_t>(i)],
          1e-10)
          << "step " << i << ", rank " << rank();
    }
  });
}

TEST(ParallelizeModule, TensorParallelLossesAreThoseOfOneDevice) {
  expect_equal_losses({"tp 2", {2}, {"tp"}, tensor_parallel()});
  expect_equal_losses({"tp 4", {4}, {"tp"}, tensor_parallel()});
  expect_equal_losses(
      {"vocabulary cut",
       {2},
       {"tp"},
       with_vocabulary(tensor_parallel(), true)});
}

TEST(ParallelizeModule, SequenceParallelLossesAreThoseOfOneDevice) {
  expect_equal_losses({"sp 2", {2}, {"tp"}, sequence_parallel()});
  expect_equal_losses({"sp 4", {4}, {"tp"}, sequence_parallel()});
}

TEST(ParallelizeModule, DataParallelLossesAreThoseOfOneDevice) {
  expect_equal_losses({"dp 2", {2, 1}, {"dp", "tp"}, {}});
  expect_equal_losses({"dp 2 x tp 2", {2, 2}, {"dp", "tp"}, tensor_parallel()});
}

TEST(ParallelizeModule, LossOverACutVocabularyIsThatOfOneDevice) {
  expect_equal_losses(
      {"logits cut", {2}, {"tp"}, with_vocabulary(tensor_parallel(), false)});
  GptSizes uneven;
  uneven.vocabulary = 13;
  expect_equal_losses(
      {"13 words on 4 ranks",
       {4},
       {"tp"},
       with_vocabulary(tensor_parallel(), false),
       uneven});
}

TEST(ParallelizeModule, HeadsThatRanksDoNotDivideAreRight) {
  GptSizes uneven;
  uneven.heads = 3;
  uneven.width = 12;
  expect_equal_losses(
      {"3 heads on 2 ranks", {2}, {"tp"}, tensor_parallel(), uneven}, 10);
}

}  // namespace
}  // namespace tessera
