// fully_shard on meshes of several dims: beside tensor parallelism, with copies
// of shards, and both; every row of what accumulation does, exactly.
#include <harness/counting_allocator.h>

#include "block_net.h"

namespace tessera {
namespace {

using testing::BlockNet;
using testing::CountingAllocator;
using testing::expect_equal_gradients;
using testing::mesh_of;
using testing::net_indices;
using testing::net_loss;
using testing::plain_net_loss;
using testing::WithCounts;
using Keep = FullyShard::Accumulate::Keep;

constexpr int64_t kGroups = 3;  // besides the root
constexpr int64_t kPasses = 3;

struct MeshCase {
  std::vector<int64_t> sizes;
  std::vector<std::string> dims;

  int64_t size(const std::string& dim) const {
    const auto found = std::find(dims.begin(), dims.end(), dim);
    return found == dims.end()
               ? 1
               : sizes[static_cast<size_t>(found - dims.begin())];
  }
  int ranks() const {
    return static_cast<int>(size("rep") * size("dp") * size("tp"));
  }
  bool has_copies() const { return size("rep") > 1; }
};

const MeshCase kTensorParallel{{2, 2}, {"dp", "tp"}};
const MeshCase kHybrid{{2, 2}, {"rep", "dp"}};
const MeshCase kAll{{2, 2, 2}, {"rep", "dp", "tp"}};
const MeshCase kAllUneven{{2, 3, 1}, {"rep", "dp", "tp"}};

// What a rank gathers, without what tensor parallelism cuts, in elements.
int64_t block_numel(const MeshCase& c) {
  const int64_t tp = c.size("tp");
  return (16 * 64 + 64 + 64 * 16) / tp + 16;
}
constexpr int64_t kRootNumel = 50 * 16 + 16 * 50 + 50;

FullyShard shard(BlockNet& net, const MeshCase& c, const DeviceMesh& mesh) {
  if (std::find(c.dims.begin(), c.dims.end(), "tp") != c.dims.end()) {
    parallelize_module(
        net, mesh,
        {{"blocks.*.up", ColwiseParallel()},
         {"blocks.*.down", RowwiseParallel()}});
  }
  FullyShardOptions options{.mesh_dim = "dp", .groups = {"blocks.*"}};
  if (c.has_copies()) {
    options.replicate_dim = "rep";
  }
  return fully_shard(net, mesh, options);
}

at::Tensor loss_on(
    BlockNet& net, const MeshCase& c, const DeviceMesh& mesh, int64_t step) {
  Placements batch;
  for (const std::string& dim : c.dims) {
    batch.push_back(dim == "tp" ? Placement(Replicate()) : Shard(0));
  }
  return net_loss(
      net.forward(distribute_tensor(net_indices(step), mesh, batch)));
}

// What moves along one mesh dim.
struct Traffic {
  int64_t gathers = 0;
  int64_t gather_bytes = 0;
  int64_t reductions = 0;
  int64_t reduction_bytes = 0;
  int64_t sums = 0;
  int64_t sum_bytes = 0;
  friend bool operator==(const Traffic&, const Traffic&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Traffic& t) {
    return out << t.gathers << " gathers, " << t.gather_bytes << " bytes, "
               << t.reductions << " reductions, " << t.reduction_bytes
               << " bytes, " << t.sums << " sums, " << t.sum_bytes << " bytes";
  }
};

Traffic traffic_of_groups(const CommLog& log) {
  Traffic traffic;
  for (const CommLogEntry& entry : log.entries()) {
    if (entry.text.find("tensor") == std::string::npos) {
      continue;  // of no list of tensors
    }
    if (entry.kind == "all_gather") {
      ++traffic.gathers;
      traffic.gather_bytes += entry.bytes;
    } else if (entry.kind == "reduce_scatter") {
      ++traffic.reductions;
      traffic.reduction_bytes += entry.bytes;
    } else if (entry.kind == "all_reduce") {
      ++traffic.sums;
      traffic.sum_bytes += entry.bytes;
    }
  }
  return traffic;
}

// A step of m passes by the table, in f64. What copies are summed of is what
// this rank keeps of each group.
Traffic expected_traffic(
    const MeshCase& c, Keep keep, const FullyShardReport& report) {
  const bool weights = keep == Keep::kUnreducedAndWeights;
  const int64_t forwards = weights ? 1 : kPasses;
  const int64_t backwards = weights ? 0 : kPasses;
  const int64_t reductions = keep == Keep::kShards ? kPasses : 1;
  const auto moved = [](int64_t numel, int64_t ranks) {
    return (numel - numel / ranks) * 8;
  };
  const int64_t block = moved(block_numel(c), c.size("dp"));
  const int64_t all = kGroups * block + moved(kRootNumel, c.size("dp"));
  Traffic traffic{
      .gathers = forwards * (kGroups + 1) + backwards * (kGroups - 1),
      .gather_bytes = forwards * all + backwards * (kGroups - 1) * block,
      .reductions = reductions * (kGroups + 1),
      .reduction_bytes = reductions * all};
  if (c.has_copies()) {
    traffic.sums = kGroups + 1;
    for (const auto& group : report.groups) {
      traffic.sum_bytes += 2 * moved(group.shard_bytes / 8, c.size("rep"));
    }
  }
  return traffic;
}

void expect_row_of_the_table(const MeshCase& c, Keep keep) {
  BlockNet plain;
  for (int64_t i = 0; i < kPasses; ++i) {
    plain_net_loss(plain, i).backward();
  }
  run_ranks(c.ranks(), [&] {
    const auto mesh = mesh_of(c.sizes, c.dims);
    BlockNet net;
    auto sharded = shard(net, c, mesh);
    const CommLog log;
    {
      const FullyShard::Accumulate accumulate(sharded, keep);
      for (int64_t i = 0; i + 1 < kPasses; ++i) {
        loss_on(net, c, mesh, i).backward();
      }
    }
    loss_on(net, c, mesh, kPasses - 1).backward();
    const Traffic got = traffic_of_groups(log);
    EXPECT_EQ(got, expected_traffic(c, keep, sharded.report()));
    EXPECT_EQ(sharded.report().gathers, got.gathers);
    EXPECT_EQ(sharded.report().reductions, got.reductions);
    EXPECT_EQ(sharded.report().gathered_bytes, 0);
    expect_equal_gradients(net, plain);
  });
}

TEST(FullyShardMeshes, RowsOfTheTableBesideTensorParallelism) {
  for (const Keep keep :
       {Keep::kShards, Keep::kUnreduced, Keep::kUnreducedAndWeights}) {
    expect_row_of_the_table(kTensorParallel, keep);
  }
}

TEST(FullyShardMeshes, RowsOfTheTableWithCopies) {
  for (const Keep keep :
       {Keep::kShards, Keep::kUnreduced, Keep::kUnreducedAndWeights}) {
    expect_row_of_the_table(kHybrid, keep);
  }
}

TEST(FullyShardManyRanks, RowsOfTheTableOnThreeMeshDims) {
  for (const Keep keep :
       {Keep::kShards, Keep::kUnreduced, Keep::kUnreducedAndWeights}) {
    expect_row_of_the_table(kAll, keep);
    expect_row_of_the_table(kAllUneven, keep);
  }
}

// 20 steps of training, parameters and all.
void expect_trains_as_plain(const MeshCase& c) {
  const auto train = [](BlockNet& net, const auto& loss) {
    torch::optim::AdamW optimizer(net.parameters(), 1e-2);
    std::vector<double> losses;
    for (int64_t step = 0; step < 20; ++step) {
      optimizer.zero_grad();
      const at::Tensor value = loss(net, step);
      value.backward();
      optimizer.step();
      losses.push_back(testing::plain(value.detach()).template item<double>());
    }
    return losses;
  };
  BlockNet plain;
  const auto wanted = train(plain, plain_net_loss);
  run_ranks(c.ranks(), [&] {
    const auto mesh = mesh_of(c.sizes, c.dims);
    BlockNet net;
    const auto sharded = shard(net, c, mesh);
    const auto losses = train(net, [&](BlockNet& of, int64_t step) {
      return loss_on(of, c, mesh, step);
    });
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], wanted[i], 1e-12 * std::abs(wanted[i])) << i;
    }
    for (size_t p = 0; p < net.parameters().size(); ++p) {
      EXPECT_TRUE(
          testing::close(net.parameters()[p], plain.parameters()[p], 1e-12))
          << p;
    }
  });
}

TEST(FullyShardMeshes, TrainAsThePlainModelDoes) {
  expect_trains_as_plain(kTensorParallel);
  expect_trains_as_plain(kHybrid);
}

TEST(FullyShardManyRanks, TrainAsThePlainModelDoesOnThreeMeshDims) {
  expect_trains_as_plain(kAll);
}

// What passes of an Accumulate keep beyond parameters and reduced gradients.
TEST(FullyShardMeshes, MemoryBetweenPassesIsThatOfTheTable) {
  const WithCounts counts;
  const MeshCase c = kTensorParallel;
  const int64_t all = (kGroups * block_numel(c) + kRootNumel) * 8;
  for (const Keep keep :
       {Keep::kShards, Keep::kUnreduced, Keep::kUnreducedAndWeights}) {
    run_ranks(c.ranks(), [&] {
      const auto mesh = mesh_of(c.sizes, c.dims);
      BlockNet net;
      auto sharded = shard(net, c, mesh);
      loss_on(net, c, mesh, 0).backward();  // caches fill
      net.zero_grad();
      const int64_t before = CountingAllocator::of_rank().live;
      {
        const FullyShard::Accumulate accumulate(sharded, keep);
        loss_on(net, c, mesh, 0).backward();
        const int64_t held = CountingAllocator::of_rank().live - before;
        const int64_t shards = all / c.size("dp");  // gradients
        const int64_t wanted = keep == Keep::kShards      ? shards
                               : keep == Keep::kUnreduced ? all
                                                          : 2 * all;
        EXPECT_NEAR(
            static_cast<double>(held), static_cast<double>(wanted),
            0.03 * static_cast<double>(all))
            << static_cast<int>(keep);
        EXPECT_EQ(
            sharded.report().gathered_bytes,
            keep == Keep::kUnreducedAndWeights ? all : 0);
      }
      loss_on(net, c, mesh, 1).backward();
      EXPECT_EQ(sharded.report().gathered_bytes, 0);
    });
  }
}

}  // namespace
}  // namespace tessera
