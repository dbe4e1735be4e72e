// Groups of moves against the definition of the placements: every cut of small
// shapes, several tensors in one call, all kinds, dtypes and ways to travel.
#include <tensor/move/group_move.h>

#include <harness/counting_allocator.h>

#include <ctime>

#include <tensor/state/strides.h>
#include "plan/cases.h"
#include "tensor/move/by_definition.h"

namespace tessera {
namespace {

using by_definition::List;
using detail::GroupItem;
using detail::GroupMoveKind;
using detail::GroupPlan;
using detail::MovingGroup;
using detail::Operands;

// How a group travels.
struct Travel {
  at::ScalarType from = at::kDouble;
  at::ScalarType wire = at::kDouble;
  at::ScalarType to = at::kDouble;
  Operands later = Operands::kStay;
  bool given_results = false;
  bool column_major = false;  // matrices, on both sides
};

const std::vector<Travel>& travels() {
  static const std::vector<Travel> all = {
      {},
      {.from = at::kFloat, .wire = at::kBFloat16, .to = at::kBFloat16},
      {.from = at::kBFloat16, .wire = at::kFloat, .to = at::kFloat},
      {.from = at::kBFloat16, .wire = at::kFloat, .to = at::kBFloat16},
      {.from = at::kFloat, .wire = at::kFloat, .to = at::kDouble},
      {.later = Operands::kMayChange},
      {.given_results = true},
      {.column_major = true},
      {.from = at::kFloat,
       .to = at::kFloat,
       .given_results = true,
       .column_major = true},
  };
  return all;
}

List strides_of(const List& shape, bool column_major) {
  return column_major && shape.size() == 2
             ? List{1, std::max<int64_t>(shape[0], 1)}
             : detail::contiguous_strides(shape);
}

SpecPtr spec_for(
    const DeviceMesh& mesh, const Placements& placements, const List& shape,
    at::ScalarType dtype, bool column_major) {
  return DTensorSpec::make(
      mesh, placements, shape, strides_of(shape, column_major), dtype);
}

at::Tensor operand_of(const DTensorSpec& spec, bool column_major) {
  const at::Tensor shard =
      by_definition::shard(spec.shape(), spec.mesh(), spec.placements())
          .to(spec.dtype());
  return column_major && shard.dim() == 2 ? shard.t().contiguous().t() : shard;
}

// One tensor of a group before it has a dtype.
struct Case {
  List shape;
  Placements from;
  Placements to;
};

std::string run_group(
    const DeviceMesh& mesh, GroupMoveKind kind, int64_t dim,
    const std::vector<Case>& cases, const Travel& travel) {
  std::vector<GroupItem> items;
  std::vector<at::Tensor> operands;
  std::vector<at::Tensor> results;
  for (const Case& one : cases) {
    items.push_back(
        {spec_for(mesh, one.from, one.shape, travel.from, travel.column_major),
         spec_for(mesh, one.to, one.shape, travel.to, travel.column_major)});
    operands.push_back(operand_of(*items.back().from, travel.column_major));
    if (travel.given_results) {
      results.push_back(
          operand_of(*items.back().to, travel.column_major).fill_(-7));
    }
  }
  const auto plan = GroupPlan::make(kind, dim, items, travel.wire);
  const auto moving = start_group(plan, operands, results, travel.later);
  if (travel.later == Operands::kMayChange) {
    for (const at::Tensor& operand : operands) {
      operand.fill_(-5);
    }
  }
  const auto tensors = wrap_group(moving);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool given =
        !travel.given_results || moving->results()[i].is_alias_of(results[i]);
    const auto wrong = by_definition::difference(tensors[i]);
    if (wrong || !given || spec(tensors[i]).dtype() != travel.to ||
        !moving->is_complete()) {
      return to_string(*items[i].from) + " -> " + to_string(*items[i].to) +
             ": " + wrong.value_or("not as asked");
    }
  }
  return "";
}

// Cuts of every tensor dim, even, strided and ragged.
Placements cuts_of(const List& shape, int64_t parts) {
  Placements cuts;
  for (size_t d = 0; d < shape.size(); ++d) {
    const auto dim = static_cast<int64_t>(d);
    cuts.push_back(Shard(dim));
    cuts.push_back(StridedShard(dim, 2));
    cuts.push_back(cases::ragged(dim, shape[d], parts));
  }
  return cuts;
}

std::vector<List> shapes() {
  std::vector<List> all;
  for (int64_t a = 0; a <= 5; ++a) {
    all.push_back({a});
    for (int64_t b = 0; b <= 4; ++b) {
      all.push_back({a, b});
    }
  }
  all.push_back({3, 2, 3});
  return all;
}

// The moves of one kind along a mesh dim. On the other mesh dims lies what
// `others` says, cut before this one cuts.
std::vector<Case> all_cases(
    const DeviceMesh& mesh, GroupMoveKind kind, int64_t dim,
    const Placements& others) {
  const auto m = static_cast<size_t>(dim);
  std::vector<Case> all;
  for (const List& shape : shapes()) {
    for (const Placement& cut : cuts_of(shape, mesh.size(dim))) {
      Placements sharded = others;
      sharded[m] = cut;
      for (size_t o = 0; o < others.size(); ++o) {
        if (o != m && others[o].is_shard() && others[o].dim() == cut.dim()) {
          sharded[o] = others[o].with_order(0);
          sharded[m] = cut.with_order(1);
        }
      }
      Placements bare = others;
      bare[m] = Replicate();
      Placements partial = others;
      partial[m] = Partial();
      try {
        Layout(shape, mesh.mesh_shape(), sharded);
        Layout(shape, mesh.mesh_shape(), bare);
      } catch (const c10::Error&) {
        continue;  // no such layout: more tensor dims than there are, lengths
      }
      if (kind == GroupMoveKind::kAllGather) {
        all.push_back({shape, sharded, bare});
      } else if (kind == GroupMoveKind::kReduceScatter) {
        all.push_back({shape, partial, sharded});
      } else {
        all.push_back({shape, partial, bare});
      }
    }
  }
  return all;
}

// All moves, in groups of 1, 2, ... 7 tensors, each group in another way.
int64_t run_all(const List& mesh_sizes, int64_t dim, const Placements& others) {
  std::atomic<int64_t> count = 0;
  run_ranks(static_cast<int>(MeshShape(mesh_sizes).size()), [&] {
    const DeviceMesh mesh = testing::mesh_of(mesh_sizes);
    size_t way = 0;
    for (const auto kind :
         {GroupMoveKind::kAllGather, GroupMoveKind::kReduceScatter,
          GroupMoveKind::kAllReduce}) {
      const auto all = all_cases(mesh, kind, dim, others);
      size_t next = 0;
      while (next < all.size()) {
        const size_t more = std::min(all.size() - next, way % 7 + 1);
        const auto begin = all.begin() + static_cast<int64_t>(next);
        const std::vector<Case> group(
            begin, begin + static_cast<int64_t>(more));
        const Travel& travel = travels()[way++ % travels().size()];
        EXPECT_EQ(run_group(mesh, kind, dim, group, travel), "");
        next += more;
        count += rank() == 0 ? static_cast<int64_t>(more) : 0;
      }
    }
  });
  return count;
}

TEST(GroupMove, IsThatOfTheDefinitionOnOneMeshDim) {
  int64_t count = 0;
  for (int64_t n = 1; n <= 4; ++n) {
    count += run_all({n}, 0, {Replicate()});
  }
  EXPECT_GT(count, 1500);
}

// Several ranks in a row hold as much, and others nothing.
TEST(GroupMove, IsThatOfTheDefinitionOnManyRanks) {
  EXPECT_GT(run_all({7}, 0, {Replicate()}), 300);
}

// Not only its memory: 200 tensors times 65,536 ranks would take seconds.
TEST(GroupPlan, IsAsLargeAsItsItemsWhateverTheNumberOfRanks) {
  run_simulated({.rank = 40'000, .size = 65'536}, [] {
    const DeviceMesh mesh = testing::mesh_of({65'536}, {"dp"});
    const List rows = {8192, 2048, 50'257, 65'536, 200'000, 3};
    for (const auto kind :
         {GroupMoveKind::kAllGather, GroupMoveKind::kReduceScatter}) {
      std::vector<GroupItem> items;
      for (int64_t i = 0; i < 200; ++i) {
        const List shape = {rows[static_cast<size_t>(i) % rows.size()], 16};
        const auto spec = [&](const Placement& p) {
          return DTensorSpec::make(mesh, {p}, shape, at::kFloat);
        };
        items.push_back(
            kind == GroupMoveKind::kAllGather
                ? GroupItem{spec(Shard(0)), spec(Replicate())}
                : GroupItem{spec(Partial()), spec(Shard(0))});
      }
      const std::clock_t begin = std::clock();
      const auto plan = GroupPlan::make(kind, 0, items, at::kFloat);
      EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC / 2);
      int64_t others = 0;
      for (size_t i = 0; i < items.size(); ++i) {
        const auto& transfer = plan->transfers()[i];
        EXPECT_LE(transfer.copies.size(), 2 * rows.size() + 4) << i;
        EXPECT_LE(transfer.own.size(), 1U) << i;
        EXPECT_TRUE(transfer.direct.empty());
        others += detail::total_numel(transfer.copies) +
                  detail::total_numel(transfer.own) -
                  items[i].from->shape()[0] * 16;
      }
      EXPECT_EQ(others, 0);  // each element once
      EXPECT_EQ(plan->counts().size(), 65'536U);
    }
  });
}

TEST(GroupMove, IsThatOfTheDefinitionBesideOtherMeshDims) {
  int64_t count = 0;
  for (const Placement& other : {Replicate(), Shard(0), Shard(1)}) {
    count += run_all({2, 2}, 0, {Replicate(), other});
    count += run_all({2, 2}, 1, {other, Replicate()});
  }
  EXPECT_GT(count, 1000);
}

std::vector<GroupItem> two_items(
    const DeviceMesh& mesh, at::ScalarType dtype = at::kFloat) {
  std::vector<GroupItem> items;
  for (const List& shape : {List{5, 3}, List{4}}) {
    items.push_back(
        {DTensorSpec::make(mesh, {Shard(0)}, shape, dtype),
         DTensorSpec::make(mesh, {Replicate()}, shape, dtype)});
  }
  return items;
}

std::vector<at::Tensor> shards_of(const std::vector<GroupItem>& items) {
  std::vector<at::Tensor> shards;
  for (const GroupItem& item : items) {
    shards.push_back(operand_of(*item.from, false));
  }
  return shards;
}

TEST(GroupMove, IsOneCallOfTheTrueSizes) {
  run_ranks(3, [] {
    const DeviceMesh mesh = testing::mesh_of({3}, {"dp"});
    const auto plan = GroupPlan::make(
        GroupMoveKind::kAllGather, 0, two_items(mesh), at::kFloat);
    const CommLog log;
    start_group(plan, shards_of(plan->items()))->wait();
    ASSERT_EQ(log.count(), 1);
    const CommLogEntry entry = log.entries()[0];
    EXPECT_EQ(entry.kind, "all_gather");
    EXPECT_EQ(entry.text, "all_gather dp: S(0) -> R, 2 tensors");
    EXPECT_EQ(entry.bytes, (19 - 19 / 3) * 4);
  });
}

TEST(GroupMove, OneUseSettlesAllResults) {
  run_ranks(2, [] {
    const DeviceMesh mesh = testing::mesh_of({2});
    const auto plan = GroupPlan::make(
        GroupMoveKind::kAllGather, 0, two_items(mesh), at::kFloat);
    const auto moving = start_group(plan, shards_of(plan->items()));
    const auto tensors = wrap_group(moving);
    EXPECT_FALSE(moving->is_complete());
    EXPECT_TRUE(detail::meta_nowait(tensors[0]).is_pending());
    EXPECT_EQ(tensors[1].sum().item<double>(), 1 + 2 + 3 + 4);
    EXPECT_TRUE(moving->is_complete());
    EXPECT_EQ(tensors[0].sum().item<double>(), 15 * 16 / 2);
    EXPECT_FALSE(detail::meta_nowait(tensors[0]).is_pending());
    moving->wait();
  });
}

TEST(GroupMove, WithoutTensorsCallsNobody) {
  run_ranks(2, [] {
    const auto plan =
        GroupPlan::make(GroupMoveKind::kReduceScatter, 0, {}, at::kFloat);
    const CommLog log;
    EXPECT_TRUE(start_group(plan, {})->is_complete());
    EXPECT_EQ(log.count(), 0);
  });
}

TEST(GroupMove, LeavesARankOutsideOfTheMeshAlone) {
  run_ranks(3, [] {
    const DeviceMesh mesh(testing::device(), at::arange(2));
    const auto plan = GroupPlan::make(
        GroupMoveKind::kAllGather, 0, two_items(mesh), at::kFloat);
    const CommLog log;
    const auto moving = start_group(plan, shards_of(plan->items()));
    moving->wait();
    EXPECT_EQ(log.count(), rank() == 2 ? 0 : 1);
    EXPECT_EQ(moving->results()[0].numel(), rank() == 2 ? 0 : 15);
  });
}

// Alone too, so that a result can be released and its shard stays.
TEST(GroupMove, ResultsHaveMemoryOfTheirOwn) {
  run_ranks(1, [] {
    const auto items = two_items(testing::mesh_of({1}));
    const auto plan =
        GroupPlan::make(GroupMoveKind::kAllGather, 0, items, at::kFloat);
    const auto shards = shards_of(items);
    const auto moving = start_group(plan, shards);
    moving->wait();
    for (size_t i = 0; i < shards.size(); ++i) {
      EXPECT_FALSE(moving->results()[i].is_alias_of(shards[i]));
      EXPECT_TRUE(at::equal(moving->results()[i], shards[i]));
    }
    EXPECT_FALSE(moving->results()[0].is_alias_of(moving->results()[1]));
  });
}

TEST(GroupMove, ThatIsDroppedFillsNoResult) {
  run_ranks(2, [] {
    const auto items = two_items(testing::mesh_of({2}));
    const auto plan =
        GroupPlan::make(GroupMoveKind::kAllGather, 0, items, at::kFloat);
    std::vector<at::Tensor> results;
    for (const GroupItem& item : items) {
      results.push_back(at::full(item.to->shape(), 7, at::kFloat));
    }
    // Packed, so that no other rank writes here.
    start_group(plan, shards_of(items), results, Operands::kMayChange).reset();
    EXPECT_TRUE(at::all(results[0] == 7).item<bool>());
    init().communicator().barrier();
  });
}

TEST(GroupMove, NeedsNoBufferWhereRanksReadEachOther) {
  if (std::getenv("TESSERA_PACK") != nullptr || testing::device() != at::kCPU) {
    GTEST_SKIP() << "ranks send buffers";
  }
  constexpr int64_t kRows = 1 << 12;
  const testing::WithCounts counts;
  run_ranks(2, [] {
    const DeviceMesh mesh = testing::mesh_of({2});
    std::vector<GroupItem> items;
    for (const auto& cut : {Shard(0), Shard(1)}) {
      items.push_back(
          {DTensorSpec::make(mesh, {cut}, {kRows, 4}, at::kFloat),
           DTensorSpec::make(mesh, {Replicate()}, {kRows, 4}, at::kFloat)});
    }
    const auto plan =
        GroupPlan::make(GroupMoveKind::kAllGather, 0, items, at::kFloat);
    const auto shards = shards_of(items);
    init().communicator().barrier();
    auto& mine = testing::CountingAllocator::of_rank();
    const int64_t before = mine.live;
    mine.peak = before;
    start_group(plan, shards)->wait();
    EXPECT_LT(mine.peak - before, 2 * kRows * 4 * 4 + 1024);
    init().communicator().barrier();
  });
}

TEST(GroupMove, OfOtherTensorsOnOneRankIsAnErrorOnAll) {
  for (const bool packed : {false, true}) {
    run_ranks(2, [&] {
      const DeviceMesh mesh = testing::mesh_of({2});
      const auto items = two_items(mesh);
      const auto plan = GroupPlan::make(
          GroupMoveKind::kAllGather, 0, items, at::kFloat,
          rank() == 0 ? "'blocks.3' {weight, bias}"
                      : "'blocks.3' {gate, bias}");
      std::string error;
      std::string again;
      const auto moving = [&]() -> std::shared_ptr<MovingGroup> {
        try {
          return start_group(
              plan, shards_of(items), {},
              packed ? Operands::kMayChange : Operands::kStay);
        } catch (const c10::Error& e) {
          error = again = e.what_without_backtrace();
          return nullptr;
        }
      }();
      if (moving != nullptr) {
        error = testing::error_of([&] { moving->wait(); });
        again = testing::error_of([&] { moving->wait(); });
      }
      EXPECT_NE(
          error.find("ranks disagree on what they communicate for ("
                     "'blocks.3' {weight, bias} f32[5, 3] f32[4] and "
                     "'blocks.3' {gate, bias} f32[5, 3] f32[4]"),
          std::string::npos)
          << error;
      EXPECT_EQ(error, again);
    });
  }
}

TEST(GroupMove, RefusesWhatIsNotOneStepAlongTheDim) {
  run_ranks(4, [] {
    const DeviceMesh mesh = testing::mesh_of({2, 2}, {"dp", "tp"});
    const auto make = [&](GroupMoveKind kind, const Placements& from,
                          const Placements& to) {
      return GroupPlan::make(
          kind, 0,
          {{DTensorSpec::make(mesh, from, {4, 4}, at::kFloat),
            DTensorSpec::make(mesh, to, {4, 4}, at::kFloat)}},
          at::kFloat);
    };
    const auto r = Replicate();
    EXPECT_ERROR(
        "one all_gather along mesh dim 0",
        make(GroupMoveKind::kAllGather, {r, Shard(0)}, {r, r}));
    EXPECT_ERROR(
        "one all_gather along mesh dim 0",
        make(GroupMoveKind::kAllGather, {Shard(0), Shard(0)}, {r, Shard(0)}));
    EXPECT_ERROR(
        "one all_gather along mesh dim 0",
        make(GroupMoveKind::kAllGather, {Shard(0), Shard(1)}, {r, r}));
    EXPECT_ERROR(
        "one reduce_scatter along mesh dim 0",
        make(GroupMoveKind::kReduceScatter, {Shard(1), r}, {Shard(0), r}));
    EXPECT_ERROR(
        "one all_reduce along mesh dim 0",
        make(GroupMoveKind::kAllReduce, {Partial(), r}, {Shard(0), r}));
    EXPECT_ERROR(
        "must be reduced alike",
        GroupPlan::make(
            GroupMoveKind::kAllReduce, 0,
            {{DTensorSpec::make(mesh, {Partial(), r}, {4}, at::kFloat),
              DTensorSpec::make(mesh, {r, r}, {4}, at::kFloat)},
             {DTensorSpec::make(
                  mesh, {Partial(ReduceOp::kMax), r}, {4}, at::kFloat),
              DTensorSpec::make(mesh, {r, r}, {4}, at::kFloat)}},
            at::kFloat));
  });
}

}  // namespace
}  // namespace tessera
