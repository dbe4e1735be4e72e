// Sharded tensors of shards that exist: cases of the original's
// test_sharded_tensor.py, by their names there.
#include <sharded_tensor/tensor/family_test.h>

namespace tessera::sharded_tensor {
namespace {

using namespace tessera::testing;
using Ints = std::vector<int64_t>;

Shard shard_at(Ints offsets, Ints sizes, int64_t owner, at::TensorOptions o) {
  const at::Tensor data =
      at::full(sizes, static_cast<double>(owner + 1), o.device(device()))
          .set_requires_grad(o.requires_grad());
  return Shard(
      data, ShardMetadata(
                std::move(offsets), sizes, RemoteDevice(owner, data.device())));
}
Shard cell(int64_t owner, at::TensorOptions o = at::kFloat) {
  return shard_at({owner / 2 * 5, owner % 2 * 5}, {5, 5}, owner, o);
}
ShardedTensorMetadata grid_metadata(
    TensorProperties properties = {.dtype = at::kFloat}) {
  return grid(5, {0, 1, 2, 3}).build_metadata({10, 10}, properties);
}
// The grid of cells as each rank has one.
at::Tensor grid_value() {
  at::Tensor whole = at::empty({10, 10}, f32());
  for (int64_t r = 0; r < 4; ++r) {
    whole.narrow(0, r / 2 * 5, 5).narrow(1, r % 2 * 5, 5).fill_(r + 1);
  }
  return whole;
}

TEST(TestShardedTensorFromLocalTensor, test_init_from_local_tensor) {
  run_ranks(4, [] {
    for (const Ints& sizes : {Ints{24, 12}, Ints{21, 9}, Ints{10, 6, 12}}) {
      for (const int64_t dim : {0, 1}) {
        for (const Ints& ranks : {Ints{0, 1, 2, 3}, Ints{2, 3, 1, 0}}) {
          const auto spec = chunks(dim, ranks);
          const at::Tensor whole = counting(sizes);
          const auto want = shard_tensor(whole, spec);
          const auto t = init_from_local_tensor(
              want.local_tensor(), spec, sizes, {.init_remote = true});
          EXPECT_TRUE(t.local_tensor().is_same(want.local_tensor()));
          EXPECT_EQ(t.metadata(), want.metadata());
          EXPECT_TRUE(t.sharding_spec() == spec);
          EXPECT_EQ(t.remote_shards().size(), 3);
          EXPECT_TRUE(same(whole_value(t), whole));
        }
      }
    }
  });
}

TEST(TestShardedTensorFromLocalTensor, test_init_from_local_tensor_errors) {
  run_ranks(4, [] {
    const EnumerableShardingSpec two(
        {box_of({0, 0}, {5, 5}, 0), box_of({5, 0}, {5, 5}, 1)});
    EXPECT_THROWN(
        c10::ValueError, "check_tensor",
        init_from_local_tensor(at::ones({5, 5}, f32()), two, {10, 10}));
    EXPECT_THROWN(
        c10::ValueError, "contiguous",
        init_from_local_tensor(
            at::ones({5, 6}, f32()).t(), chunks(0, {0, 1, 2, 3}), {24, 5}));
    if (rank() == 0) {
      EXPECT_THROWN(
          c10::ValueError, "one tensor cannot be",
          init_from_local_tensor(
              at::ones({2, 2}, f32()), chunks(0, {0, 0}), {4, 2}));
    }
  });
}

TEST(TestShardedTensorFromLocalShards, test_local_shards) {
  run_ranks(4, [] {
    const at::Tensor data = at::ones({5, 5}, f32());
    const ShardMetadata metadata = box_of({0, 5}, {5, 5}, rank());
    const Shard a(data, metadata);
    const Shard b = Shard::from_tensor_and_offsets(data, {0, 5}, rank());
    EXPECT_EQ(a.metadata, b.metadata);
    EXPECT_TRUE(a.tensor.is_same(b.tensor));
    EXPECT_THROWN(
        c10::ValueError, "sizes of its metadata",
        Shard(data, box_of({0, 5}, {5, 6}, rank())));
    EXPECT_THROWN(
        c10::ValueError, "as many offsets as sizes",
        Shard::from_tensor_and_offsets(data, {0}, rank()));
    EXPECT_THROWN(
        c10::ValueError, "on the device of its placement",
        Shard(data, {{0, 5}, {5, 5}, RemoteDevice("rank:0/meta")}));
  });
}

TEST(TestShardMetadata, test_shard_metadata_init) {
  run_ranks(4, [] {
    const ShardMetadata bare({0, 0}, {5, 5});
    EXPECT_FALSE(bare.placement);
    // Without a placement nobody owns it.
    EXPECT_THROWN(
        c10::ValueError, "no placement",
        empty(EnumerableShardingSpec({bare}), {5, 5}));
    // D12: nor with a device alone.
    EXPECT_THROWN(
        c10::ValueError, "has no owner",
        empty(
            EnumerableShardingSpec({{{0, 0}, {5, 5}, RemoteDevice("cpu")}}),
            {5, 5}));
    EXPECT_EQ(
        to_string(*ShardMetadata({0}, {5}, "rank:0/cpu").placement),
        "rank:0/cpu");
  });
}

TEST(DefectD12, WithoutAGroupADeviceAloneWillDo) {
  const ShardMetadata anywhere({0, 0}, {5, 5}, RemoteDevice("cpu"));
  ShardedTensorMetadata metadata{{anywhere}, {5, 5}, {.dtype = at::kFloat}};
  const auto t = ShardedTensorBase::init_from_local_shards_and_global_metadata(
      {Shard(at::ones({5, 5}), anywhere)}, metadata);
  EXPECT_EQ(t.metadata(), metadata);
}

TEST(TestShardMetadata, test_create_shard_with_no_placement) {
  run_ranks(1, [] {
    const Shard shard(at::ones({5, 5}, f32()), {{0, 0}, {5, 5}});
    EXPECT_FALSE(shard.metadata.placement);
  });
}

TEST(TestShardedTensorFromLocalShards, test_init_from_local_shards) {
  run_ranks(4, [] {
    const auto t =
        init_from_local_shards({cell(rank())}, {10, 10}, {.init_remote = true});
    EXPECT_EQ(t.metadata(), grid_metadata());
    EXPECT_EQ(t.sharding_spec().name(), "EnumerableShardingSpec");
    EXPECT_EQ(t.remote_shards().size(), 3);
    EXPECT_TRUE(same(whole_value(t), grid_value()));
    // Rows make chunks again, in the order of their offsets.
    const auto rows = init_from_local_shards(
        {shard_at({2 * (3 - rank()), 0}, {2, 5}, rank(), at::kDouble)}, {8, 5});
    EXPECT_TRUE(rows.sharding_spec() == chunks(0, {3, 2, 1, 0}));
    EXPECT_EQ(rows.metadata().shards_metadata[0].shard_offsets, (Ints{0, 0}));
    EXPECT_EQ(rows.dtype(), at::kDouble);
    // Some ranks have nothing.
    std::vector<Shard> mine;
    if (rank() == 2) {
      mine = {
          shard_at({0, 0}, {3, 5}, 2, at::kFloat),
          shard_at({3, 0}, {1, 5}, 2, at::kFloat)};
    }
    EXPECT_EQ(
        init_from_local_shards(mine, {4, 5}).local_shards().size(),
        rank() == 2 ? 2 : 0);
  });
}

TEST(TestShardedTensorFromLocalShards, UnknownSizesAreCounted) {
  run_ranks(4, [] {
    const int64_t rows = rank() == 1 ? 0 : rank() + 1;
    const auto t = init_from_local_shards(
        {shard_at({0, 0}, {rows, 3}, rank(), at::kFloat)}, std::nullopt);
    EXPECT_EQ(t.size(), (Ints{8, 3}));
    EXPECT_EQ(t.local_shards()[0].metadata.shard_sizes[0], rows);
    EXPECT_EQ(whole_value(t)[7][0].item<float>(), 4);
    EXPECT_THROWN(
        c10::ValueError, "exactly one shard",
        init_from_local_shards({}, std::nullopt));
    EXPECT_THROWN(
        c10::ValueError, "global size",
        init_from_local_shards(
            {shard_at({0, 0}, {2, rank()}, rank(), at::kFloat)}, std::nullopt));
  });
}

TEST(
    TestShardedTensorFromLocalShards,
    test_st_base_init_from_local_shards_and_global_metadata) {
  run_ranks(1, [] {
    std::vector<Shard> shards;
    for (int64_t r = 0; r < 4; ++r) {
      shards.push_back(cell(r));
    }
    const auto t =
        ShardedTensorBase::init_from_local_shards_and_global_metadata(
            shards, grid_metadata());
    EXPECT_EQ(t.local_shards().size(), 4);
    EXPECT_EQ(t.metadata(), grid_metadata());
    // D15: all questions have answers without a group.
    EXPECT_EQ(t.size(), (Ints{10, 10}));
    EXPECT_EQ(t.dtype(), at::kFloat);
    EXPECT_EQ(t.shard_size(), 100);
    EXPECT_NE(to_string(t), "");
  });
}

TEST(
    TestCreateTensorNoProcessGroupMode,
    test_init_from_local_shards_and_global_metadata) {
  const auto rows = chunks(0, {0, 1});
  const auto metadata = rows.build_metadata({4, 3}, {});
  std::vector<Shard> shards;
  for (const ShardMetadata& m : metadata.shards_metadata) {
    shards.emplace_back(at::ones(m.shard_sizes, f32()), m);
  }
  const auto t = ShardedTensorBase::init_from_local_shards_and_global_metadata(
      shards, metadata);
  EXPECT_TRUE(t.sharding_spec() == rows);
  EXPECT_THROWN(
      c10::ValueError, "no shards",
      ShardedTensorBase::init_from_local_shards_and_global_metadata({}, {}));
  ShardedTensorMetadata gap = metadata;
  gap.shards_metadata.pop_back();
  EXPECT_THROWN(
      c10::ValueError, "check_tensor",
      ShardedTensorBase::init_from_local_shards_and_global_metadata(
          {shards[0]}, gap));
  EXPECT_EQ(ShardedTensorBase(rows, {4, 3}).metadata(), metadata);
}

TEST(TestCreateTensorNoProcessGroupMode, test_non_contiguous_local_shards) {
  const at::Tensor big = counting({4, 6}, f32());
  const auto metadata = chunks(1, {0, 1}).build_metadata({4, 6}, {});
  std::vector<Shard> shards;
  for (const ShardMetadata& m : metadata.shards_metadata) {
    shards.emplace_back(narrow_tensor(big, m), m);
  }
  const auto t = ShardedTensorBase::init_from_local_shards_and_global_metadata(
      shards, metadata);
  EXPECT_FALSE(t.local_shards()[0].tensor.is_contiguous());
  EXPECT_TRUE(t.local_shards()[1].tensor.is_alias_of(big));
}

TEST(
    TestShardedTensorFromLocalShards,
    test_init_from_local_shards_and_global_metadata) {
  run_ranks(4, [] {
    const auto t = init_from_local_shards_and_global_metadata(
        {cell(rank())}, grid_metadata(), {.init_remote = true});
    EXPECT_EQ(t.metadata(), grid_metadata());
    EXPECT_EQ(t.remote_shards().size(), 3);
    EXPECT_TRUE(same(whole_value(t), grid_value()));
  });
}

TEST(TestShardedTensorFromLocalShards, test_init_from_local_shards_new_group) {
  run_ranks(4, [] {
    if (rank() == 0) {
      return;
    }
    const auto t = init_from_local_shards(
        {shard_at({5 * (rank() - 1), 0}, {5, 5}, rank(), at::kFloat)}, {15, 5},
        {.process_group = {1, 2, 3}});
    EXPECT_TRUE(t.sharding_spec() == chunks(0, {1, 2, 3}));
    EXPECT_EQ(whole_value(t)[14][4].item<float>(), 4);
  });
}

TEST(
    TestShardedTensorFromLocalShards,
    test_init_from_local_shards_invalid_local_shards) {
  run_ranks(4, [] {
    const auto make = [](std::vector<Shard> shards, Ints sizes = {10, 10}) {
      return init_from_local_shards(std::move(shards), sizes);
    };
    EXPECT_THROWN(c10::ValueError, "no rank has a shard", make({}));
    Shard sparse = cell(rank());
    sparse.tensor = sparse.tensor.to_sparse();
    EXPECT_THROWN(c10::ValueError, "strided", make({sparse}));
    Shard transposed = cell(rank());
    transposed.tensor = transposed.tensor.t();
    EXPECT_THROWN(c10::ValueError, "contiguous", make({transposed}));
    Shard longer = cell(rank());
    longer.metadata.shard_sizes = {5, 4};
    EXPECT_THROWN(c10::ValueError, "sizes", make({longer}));
    Shard elsewhere = cell(rank());
    elsewhere.metadata.placement = RemoteDevice(rank(), c10::Device("meta"));
    EXPECT_THROWN(c10::ValueError, "its tensor is on", make({elsewhere}));
    Shard of_other = cell(rank());
    of_other.metadata.placement =
        RemoteDevice(3 - rank(), c10::Device(device_text()));
    EXPECT_THROWN(c10::ValueError, "placed on this rank", make({of_other}));
    // D10: one rank's error is everyone's, and the group goes on.
    EXPECT_THROWN(
        c10::ValueError,
        "on rank 2: ", make({rank() == 2 ? transposed : cell(rank())}));
    EXPECT_TRUE(same(whole_value(make({cell(rank())})), grid_value()));
  });
}

TEST(
    TestShardedTensorFromLocalShards,
    test_init_from_local_shards_invalid_property_cross_ranks) {
  run_ranks(4, [] {
    const bool other = rank() == 1;
    EXPECT_THROWN(
        c10::ValueError, "global size",
        init_from_local_shards({cell(rank())}, {10, other ? 12 : 10}));
    EXPECT_THROWN(
        c10::ValueError, "dtype",
        init_from_local_shards(
            {cell(rank(), other ? at::kDouble : at::kFloat)}, {10, 10}));
    EXPECT_THROWN(
        c10::ValueError, "requires_grad",
        init_from_local_shards(
            {cell(rank(), at::TensorOptions(at::kFloat).requires_grad(other))},
            {10, 10}));
  });
}

// A tensor that says it is pinned: LibTorch pins only where there is a GPU.
bool can_pin() {
  return at::hasCUDA() && device() == at::kCUDA;
}

TEST(
    TestShardedTensorFromLocalShards,
    test_init_from_local_shards_invalid_pin_memory) {
  if (!can_pin()) {
    GTEST_SKIP() << "memory is pinned for GPUs only";
  }
  run_ranks(4, [] {
    const auto make = [](bool pinned) {
      const at::Tensor data =
          at::ones({5, 5}, at::TensorOptions(at::kFloat).pinned_memory(pinned));
      return Shard::from_tensor_and_offsets(
          data, {rank() / 2 * 5, rank() % 2 * 5}, rank());
    };
    EXPECT_THROWN(
        c10::ValueError, "pin_memory",
        init_from_local_shards({make(rank() == 1)}, {10, 10}));
    EXPECT_THROWN(
        c10::ValueError, "pin_memory",
        init_from_local_shards({make(true), make(false)}, {10, 10}));
    const auto pinned = init_from_local_shards({make(true)}, {10, 10});
    EXPECT_TRUE(pinned.is_pinned());
  });
}

// A grid of cells of side 5, but for the first one.
ShardedTensor with_first_cell(int64_t side) {
  const int64_t mine = rank() == 0 ? side : 5;
  return init_from_local_shards(
      {shard_at(
          {rank() / 2 * 5, rank() % 2 * 5}, {mine, mine}, rank(), at::kFloat)},
      {10, 10});
}

TEST(
    TestShardedTensorFromLocalShards,
    test_init_from_local_shards_invalid_shards_overlap) {
  run_ranks(4, [] {
    EXPECT_THROWN(c10::ValueError, "must not overlap", with_first_cell(6));
  });
}

TEST(
    TestShardedTensorFromLocalShards,
    test_init_from_local_shards_invalid_shards_gaps) {
  run_ranks(4, [] {
    EXPECT_THROWN(c10::ValueError, "check_tensor", with_first_cell(4));
  });
}

TEST(
    TestShardedTensorFromLocalShards,
    test_init_from_local_shards_and_global_metadata_invalid_shards) {
  run_ranks(4, [] {
    const auto make = [](std::vector<Shard> shards,
                         ShardedTensorMetadata metadata = grid_metadata()) {
      return init_from_local_shards_and_global_metadata(
          std::move(shards), metadata);
    };
    const Shard good = cell(rank());
    EXPECT_THROWN(c10::Error, "give this rank 1 shards; got 0", make({}));
    EXPECT_THROWN(c10::Error, "got 2", make({good, good}));
    Shard bad = good;
    bad.tensor = at::ones({5, 4}, f32());
    EXPECT_THROWN(c10::ValueError, "sizes", make({bad}));
    bad = good;
    bad.metadata.placement = RemoteDevice(rank(), c10::Device("meta"));
    EXPECT_THROWN(c10::ValueError, "its tensor is on", make({bad}));
    EXPECT_THROWN(c10::ValueError, "dtype", make({cell(rank(), at::kDouble)}));
    bad = good;
    bad.tensor = good.tensor.t();
    EXPECT_THROWN(c10::ValueError, "contiguous", make({bad}));
    TensorProperties p{.dtype = at::kFloat};
    p.layout = at::kSparse;
    EXPECT_THROWN(c10::ValueError, "strided", make({good}, grid_metadata(p)));
    p = {.dtype = at::kFloat, .requires_grad = true};
    EXPECT_THROWN(
        c10::ValueError, "requires_grad", make({good}, grid_metadata(p)));
    p = {.dtype = at::kFloat};
    p.memory_format = c10::MemoryFormat::ChannelsLast;
    EXPECT_THROWN(
        c10::ValueError, "contiguous", make({good}, grid_metadata(p)));
    p = {.dtype = at::kFloat, .pin_memory = true};
    EXPECT_THROWN(
        c10::ValueError, "pin_memory", make({good}, grid_metadata(p)));
    // A shard that the metadata do not have.
    bad = good;
    bad.metadata.shard_offsets = {1, 1};
    EXPECT_THROWN(c10::ValueError, "no local shard is", make({bad}));
  });
}

TEST(
    TestShardedTensorSubGroupInit, test_sub_process_group_sharded_tensor_init) {
  run_ranks(4, [] {
    const std::vector<int64_t> mine = rank() % 2 == 0 ? Ints{0, 2} : Ints{1, 3};
    const ProcessGroup group(mine);
    const int64_t place = group.rank();
    const at::Tensor data =
        at::empty({4, 8}, at::TensorOptions(at::kFloat).device(at::kMeta));
    const auto t = init_from_local_shards(
        {Shard::from_tensor_and_offsets(data, {4 * place, 0}, rank())}, {8, 8},
        {.process_group = group});
    EXPECT_TRUE(t.is_meta());
    EXPECT_EQ(t.size(), (Ints{8, 8}));
    EXPECT_EQ(*t.metadata().shards_metadata[1].placement->rank(), mine[1]);
  });
}

TEST(
    TestShardedTensorSubGroupInit,
    test_sub_process_group_placement_validation) {
  run_ranks(4, [] {
    const std::vector<int64_t> mine = rank() % 2 == 0 ? Ints{0, 2} : Ints{1, 3};
    const auto t = zeros(chunks(0, mine), {8}, {.process_group = mine});
    EXPECT_EQ(t.local_tensor().sizes(), (Ints{4}));
    EXPECT_THROWN(
        c10::ValueError, "not a member",
        zeros(chunks(0, {0, 1}), {8}, {.process_group = mine}));
  });
}

}  // namespace
}  // namespace tessera::sharded_tensor
