// One rank of 65,536 with a GPT of 1.2e9 parameters, which no rank makes whole.
#include "../gpt_training.h"

namespace tessera {
namespace {

using testing::Gpt;
using testing::mesh_of;

constexpr gpt::Sizes kGptSizes{
    .vocabulary = 50257,
    .length = 4,
    .width = 2048,
    .heads = 16,
    .hidden = 8192,
    .layers = 20};
constexpr int64_t kRank = 40'000;
constexpr int64_t kRanks = 65'536;
constexpr int64_t kFloatBytes = 4;

Gpt deferred_gpt() {
  const DeferredInit later;
  return Gpt(kGptSizes);
}

int64_t chunk(int64_t size, int64_t parts, int64_t coordinate) {
  const int64_t each = (size + parts - 1) / parts;
  return std::clamp(size - each * coordinate, int64_t{0}, each);
}

int64_t shard_bytes(const FullyShard& sharded) {
  int64_t bytes = 0;
  for (const auto& group : sharded.report().groups) {
    bytes += group.shard_bytes;
  }
  return bytes;
}

// Most ranks hold a row of some matrices and nothing of the others.
TEST(FullyShardSimulated, ShardsOfOneMeshDimAreTheirRows) {
  run_simulated({.rank = kRank, .size = kRanks}, [] {
    const auto mesh = mesh_of({kRanks}, {"dp"});
    Gpt model = deferred_gpt();
    const auto sharded = fully_shard(*model, mesh, {.groups = {"blocks.*"}});
    int64_t wanted = 0;
    int64_t all = 0;
    for (const at::Tensor& p : model->parameters()) {
      const int64_t row = p.numel() / p.size(0);
      wanted += chunk(p.size(0), kRanks, kRank) * row * kFloatBytes;
      all += p.numel();
    }
    EXPECT_GT(all, 1'000'000'000);
    EXPECT_EQ(shard_bytes(sharded), wanted);
    EXPECT_LT(wanted, 20'000);
  });
}

struct Moved {
  int64_t count = 0;
  int64_t bytes = 0;
  double seconds = 0;
};

// Of groups, by kind.
std::map<std::string, Moved> moved_in(const CommLog& log) {
  std::map<std::string, Moved> moved;
  for (const CommLogEntry& entry : log.entries()) {
    if (entry.text.find(" tensor") != std::string::npos) {
      Moved& one = moved[entry.kind];
      ++one.count;
      one.bytes += entry.bytes;
      one.seconds += predicted_time(entry);
    }
  }
  return moved;
}

// 64 copies of shards on 128 ranks of models that 8 ranks compute together.
TEST(FullyShardSimulated, AStepIsThatOfTheFormulas) {
  constexpr int64_t kCopies = 64;
  constexpr int64_t kShards = 128;
  run_simulated({.rank = kRank, .size = kRanks}, [] {
    const auto mesh = mesh_of({kCopies, kShards, 8}, {"rep", "dp", "tp"});
    Gpt model = deferred_gpt();
    parallelize_module(
        *model, mesh, testing::with_vocabulary(testing::tensor_parallel()));
    const auto sharded = fully_shard(
        *model, mesh,
        {.mesh_dim = "dp", .replicate_dim = "rep", .groups = {"blocks.*"}});

    // Elements that this rank computes with, by group, and keeps.
    std::vector<int64_t> gathered;
    int64_t kept = 0;
    const int64_t mine = (*mesh.coordinate())[1];
    for (const auto& group : sharded.report().groups) {
      gathered.push_back(0);
      for (const std::string& name : group.members) {
        const at::Tensor p = model->named_parameters()[name];
        Placements without = placements(p);
        without[1] = Replicate();
        const auto shape = Layout(p.sizes().vec(), mesh.mesh_shape(), without)
                               .local_shape(*mesh.coordinate());
        const int64_t numel = c10::multiply_integers(shape);
        gathered.back() += numel;
        kept += shape.empty() || shape[0] == 0
                    ? 0
                    : chunk(shape[0], kShards, mine) * (numel / shape[0]);
      }
      EXPECT_EQ(group.unsharded_bytes, gathered.back() * kFloatBytes)
          << group.path;
    }
    EXPECT_EQ(shard_bytes(sharded), kept * kFloatBytes);

    const int64_t length = kGptSizes.length;
    const Placements batch{Shard(0), Shard(0), Replicate()};
    const at::Tensor x = from_local(
        at::arange(length, testing::i64()).view({1, length}), mesh, batch);
    const CommLog log;
    {
      const LossParallel parallel;
      testing::loss_of(model(x), x).backward();
    }
    auto moved = moved_in(log);
    const auto groups = static_cast<int64_t>(gathered.size()) - 1;
    ASSERT_EQ(groups, 20);
    EXPECT_EQ(moved["all_gather"].count, 2 * groups);
    EXPECT_EQ(moved["reduce_scatter"].count, groups + 1);
    EXPECT_EQ(moved["all_reduce"].count, groups + 1);

    // messages x latency + bytes / bandwidth + bytes written / copies
    const MachineModel& machine = machine_model();
    int64_t bytes = 0;
    double seconds = 0;
    for (size_t g = 0; g < gathered.size(); ++g) {
      const bool twice = g > 0 && g < gathered.size() - 1;
      const int64_t whole = gathered[g];
      const int64_t travels = (whole - whole / kShards) * kFloatBytes;
      for (int i = 0; i < (twice ? 2 : 1); ++i) {
        bytes += travels;
        seconds +=
            7 * machine.link.latency +
            static_cast<double>(travels) / machine.link.bandwidth +
            static_cast<double>(whole * kFloatBytes) / machine.copy_bandwidth;
      }
    }
    EXPECT_EQ(moved["all_gather"].bytes, bytes);
    EXPECT_NEAR(moved["all_gather"].seconds, seconds, 1e-6 * seconds);
    EXPECT_EQ(sharded.report().gathered_bytes, 0);
  });
}

}  // namespace
}  // namespace tessera
