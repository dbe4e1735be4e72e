// What parallel modules communicate: kinds, counts and bytes, derived by hand.
#include <map>

#include "gpt_training.h"

namespace tessera {
namespace {

using testing::Gpt;
using testing::GptSizes;
using testing::indices;
using testing::kBatch;
using testing::loss_of;
using testing::mesh_of;
using testing::new_gpt;
using testing::sequence_parallel;
using testing::targets;
using testing::tensor_parallel;
using testing::train_on;
using testing::TrainingCase;
using testing::with_vocabulary;

// Calls and bytes by kind: "all_reduce".
struct Traffic {
  int64_t count = 0;
  int64_t bytes = 0;
  friend bool operator==(const Traffic&, const Traffic&) = default;
};
using Traffics = std::map<std::string, Traffic>;
struct StepTraffic {
  Traffics forward;
  Traffics backward;
};

std::ostream& operator<<(std::ostream& out, const Traffic& t) {
  return out << t.count << " calls, " << t.bytes << " bytes";
}

bool is_leaf_gradient(const CommLogEntry& entry) {
  return entry.cause.find("gradient of a leaf") == 0;
}

// One training step; the reductions of the gradients of whole parameters, which
// a part of the sequence gives only addends of, are counted apart.
struct Counted {
  StepTraffic layers;
  Traffic leaves;
};
Counted count_step(
    const ParallelPlan& plan, const GptSizes& sizes, const DeviceMesh& mesh) {
  Gpt model = new_gpt(sizes);
  parallelize_module(model, mesh, plan);
  const Placements whole(static_cast<size_t>(mesh.ndim()), Replicate());
  const auto x = distribute_tensor(indices(sizes, 0), mesh, whole);
  const auto y = distribute_tensor(targets(sizes, 0), mesh, whole);
  const CommLog log;
  loss_of(model(x), y).backward();
  Counted counted;
  for (const CommLogEntry& entry : log.entries()) {
    Traffic& traffic = is_leaf_gradient(entry) ? counted.leaves
                       : entry.in_backward ? counted.layers.backward[entry.kind]
                                           : counted.layers.forward[entry.kind];
    ++traffic.count;
    traffic.bytes += entry.bytes;
  }
  return counted;
}

Traffics difference(const Traffics& more, const Traffics& fewer) {
  Traffics result = more;
  for (const auto& [kind, traffic] : fewer) {
    result[kind].count -= traffic.count;
    result[kind].bytes -= traffic.bytes;
  }
  std::erase_if(
      result, [](const auto& item) { return item.second.count == 0; });
  return result;
}

// What one more block, an attention and an MLP, adds to a step.
StepTraffic traffic_of_block(const ParallelPlan& plan, const DeviceMesh& mesh) {
  GptSizes one, two;
  one.layers = 1;
  two.layers = 2;
  const Counted a = count_step(plan, one, mesh);
  const Counted b = count_step(plan, two, mesh);
  return {
      difference(b.layers.forward, a.layers.forward),
      difference(b.layers.backward, a.layers.backward)};
}

// What travels between the layers: [batch, length, width], f64.
int64_t activation_bytes() {
  const GptSizes sizes;
  return kBatch * sizes.length * sizes.width * 8;
}

// An all_reduce is a reduce_scatter and an all_gather, and each moves all but
// this rank's part: see CommLogEntry::bytes.
int64_t scatter_bytes(int64_t ranks) {
  return activation_bytes() - activation_bytes() / ranks;
}

TEST(TensorParallel, ReducesOnceEachWayPerAttentionAndPerMlp) {
  for (const int ranks : {2, 4}) {
    run_ranks(ranks, [&] {
      const auto mesh = mesh_of({ranks}, {"tp"});
      const StepTraffic block = traffic_of_block(tensor_parallel(), mesh);
      const Traffics expected{
          {"all_reduce", {2, 2 * 2 * scatter_bytes(ranks)}}};
      EXPECT_EQ(block.forward, expected);
      EXPECT_EQ(block.backward, expected);
    });
  }
}

TEST(TensorParallel, CommunicatesNothingOutsideOfItsBlocks) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    GptSizes sizes;
    sizes.layers = 1;
    const Counted step = count_step(tensor_parallel(), sizes, mesh);
    EXPECT_EQ(step.layers.forward.at("all_reduce").count, 2);
    EXPECT_EQ(step.layers.backward.at("all_reduce").count, 2);
    EXPECT_EQ(step.layers.forward.size(), 1u);
    EXPECT_EQ(step.layers.backward.size(), 1u);
    EXPECT_EQ(step.leaves.count, 0);
  });
}

TEST(TensorParallel, NamesTheLayerAndTheStyleAsCause) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    GptSizes sizes;
    sizes.layers = 1;
    Gpt model = new_gpt(sizes);
    parallelize_module(model, mesh, tensor_parallel());
    const auto x = distribute_tensor(indices(sizes, 0), mesh, {Replicate()});
    const CommLog log;
    model(x).sum().backward();
    std::vector<std::string> causes;
    for (const CommLogEntry& entry : log.entries()) {
      causes.push_back(entry.cause);
      EXPECT_EQ(entry.mesh_dims, "tp");
    }
    EXPECT_EQ(
        causes, (std::vector<std::string>{
                    "blocks.0.attention.o, RowwiseParallel",
                    "blocks.0.mlp.down, RowwiseParallel",
                    "gradient of blocks.0.mlp.up, ColwiseParallel",
                    "gradient of blocks.0.attention.q, ColwiseParallel"}));
  });
}

TEST(SequenceParallel, GathersAndScattersOnceEachWayPerAttentionAndPerMlp) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    const StepTraffic block = traffic_of_block(sequence_parallel(), mesh);
    const Traffics expected{
        {"all_gather", {2, 2 * scatter_bytes(2)}},
        {"reduce_scatter", {2, 2 * scatter_bytes(2)}}};
    EXPECT_EQ(block.forward, expected);
    EXPECT_EQ(block.backward, expected);
  });
}

// Weight and bias of each norm are whole and see a part of the sequence.
TEST(SequenceParallel, ReducesTheGradientsOfNormsOnly) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    GptSizes one, two;
    one.layers = 1;
    two.layers = 2;
    const Traffic a = count_step(sequence_parallel(), one, mesh).leaves;
    const Traffic b = count_step(sequence_parallel(), two, mesh).leaves;
    EXPECT_EQ(b.count - a.count, 2 * (2 + 1));  // two norms, biases of o, down
    EXPECT_EQ(b.bytes - a.bytes, 2 * (2 + 1) * one.width * 8);
  });
}

TEST(DataParallel, ReducesEachGradientByteOncePerStep) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    const GptSizes sizes;
    Gpt model = new_gpt(sizes);
    parallelize_module(model, mesh, {});
    int64_t bytes = 0;
    for (const at::Tensor& p : model->parameters()) {
      bytes += p.numel() * 8;
    }
    DataParallel parallel(*model, mesh, {.bucket_bytes = 4096});
    const auto x = distribute_tensor(indices(sizes, 0), mesh, {Shard(0)});
    const auto y = distribute_tensor(targets(sizes, 0), mesh, {Shard(0)});
    const auto loss = loss_of(model(x), y);
    const CommLog log;
    loss.backward();
    parallel.reduce_gradients();
    int64_t reduced = 0;
    for (const CommLogEntry& entry : log.entries()) {
      EXPECT_EQ(entry.kind, "all_reduce");
      EXPECT_EQ(entry.cause, "DataParallel");
      reduced += entry.bytes;
    }
    EXPECT_EQ(reduced, 2 * (bytes - bytes / 2));
    EXPECT_EQ(log.count(), parallel.bucket_count());
    EXPECT_GT(log.count(), 3);
  });
}

TEST(Communication, OfTheRootModuleHasItsNameAsCause) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    torch::nn::Linear net(torch::nn::LinearOptions(4, 3).bias(false));
    net->to(at::kDouble);
    parallelize_module(
        *net, mesh, {{"", RowwiseParallel{.output_layouts = Replicate()}}});
    const auto x =
        distribute_tensor(testing::distinct({5, 4}), mesh, {Shard(1)});
    const CommLog log;
    net(x);
    ASSERT_EQ(log.count(), 1);
    EXPECT_EQ(
        log.entries()[0].cause,
        "the root module (torch::nn::LinearImpl), RowwiseParallel");
  });
}

// What calls do is known from the second step on: nothing is decided or planned
// again.
TEST(TrainingDecisions, AreMadeInTheFirstTwoSteps) {
  const std::vector<TrainingCase> cases{
      {"one rank", {1}, {"tp"}, tensor_parallel()},
      {"tensor parallel", {2}, {"tp"}, tensor_parallel()},
      {"sequence parallel", {2}, {"tp"}, sequence_parallel()},
      {.name = "two dims",
       .mesh = {2, 2},
       .dims = {"dp", "tp"},
       .plan = with_vocabulary(tensor_parallel()),
       .data_parallel = true}};
  for (const TrainingCase& c : cases) {
    run_ranks(static_cast<int>(c10::multiply_integers(c.mesh)), [&] {
      std::vector<int64_t> decided, plans;
      train_on(
          mesh_of(c.mesh, c.dims), c, 5,
          [&](const torch::nn::Module&, const at::Tensor&) {
            decided.push_back(decided_call_count());
            plans.push_back(static_cast<int64_t>(cached_plan_count()));
          });
      EXPECT_GT(decided[0], 0) << c.name;
      for (size_t step = 3; step < decided.size(); ++step) {
        EXPECT_EQ(decided[step], decided[2]) << c.name << ", step " << step;
        EXPECT_EQ(plans[step], plans[2]) << c.name << ", step " << step;
      }
    });
  }
}

}  // namespace
}  // namespace tessera
