// Sharded tensors from nothing: cases of the original's test_sharded_tensor.py,
// by their names there.
#include <sharded_tensor/family_test.h>

namespace tessera::sharded_tensor {
namespace {

using namespace tessera::testing;

std::vector<int64_t> sizes_of(const ShardedTensor& t, size_t dim) {
  std::vector<int64_t> sizes;
  for (const ShardMetadata& shard : t.metadata().shards_metadata) {
    sizes.push_back(shard.shard_sizes[dim]);
  }
  return sizes;
}
std::vector<int64_t> offsets_of(const ShardedTensor& t, size_t dim) {
  std::vector<int64_t> offsets;
  for (const ShardMetadata& shard : t.metadata().shards_metadata) {
    offsets.push_back(shard.shard_offsets[dim]);
  }
  return offsets;
}
using Ints = std::vector<int64_t>;

// A square grid with `side` cells a side, rank i on cell i.
class SquareSpec final : public ShardingSpec {
 public:
  explicit SquareSpec(int64_t side) : side_(side) {}
  ShardedTensorMetadata build_metadata(
      const Ints& sizes, const TensorProperties& properties) const override {
    ShardedTensorMetadata metadata{{}, sizes, properties};
    const int64_t n = sizes[0] / side_;
    for (int64_t i = 0; i < side_ * side_; ++i) {
      metadata.shards_metadata.push_back(
          box_of({i / side_ * n, i % side_ * n}, {n, n}, i));
    }
    return metadata;
  }
  ShardingSpecPtr clone() const override {
    return std::make_shared<SquareSpec>(*this);
  }
  bool equals(const ShardingSpec& other) const override {
    const auto* same = dynamic_cast<const SquareSpec*>(&other);
    return same != nullptr && same->side_ == side_;
  }
  std::string name() const override { return "SquareSpec"; }

 private:
  int64_t side_;
};

// A spec whose shard() is its own.
class RefusingSpec final : public ShardingSpec {
 public:
  ShardedTensorMetadata build_metadata(
      const Ints& sizes, const TensorProperties& properties) const override {
    return chunks(0, {0, 1, 2, 3}).build_metadata(sizes, properties);
  }
  ShardedTensor shard(
      const at::Tensor&, int64_t, const ProcessGroup&) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "this spec cuts nothing");
  }
  ShardingSpecPtr clone() const override {
    return std::make_shared<RefusingSpec>(*this);
  }
  std::string name() const override { return "RefusingSpec"; }
};

TEST(TestCustomShardingSpec, test_custom_sharding_spec_tensor_ctor) {
  run_ranks(4, [] {
    const auto t = ones(SquareSpec(2), {6, 6});
    ASSERT_EQ(t.local_shards().size(), 1);
    EXPECT_TRUE(shards_are(t, at::ones({6, 6}, f32())));
    EXPECT_EQ(
        t.local_shards()[0].metadata.shard_offsets,
        (Ints{rank() / 2 * 3, rank() % 2 * 3}));
    EXPECT_TRUE(t.sharding_spec() == SquareSpec(2));
  });
}

TEST(TestCustomShardingSpec, test_custom_sharding_spec_shard_tensor) {
  run_ranks(4, [] {
    EXPECT_THROWN(
        c10::NotImplementedError, "this spec cuts nothing",
        shard_tensor(at::ones({4, 4}, f32()), RefusingSpec()));
    // The base's shard() serves a user's spec.
    const at::Tensor whole = counting({6, 6});
    EXPECT_TRUE(shards_are(shard_tensor(whole, SquareSpec(2), 2), whole));
  });
}

TEST(TestCreateTensorFromParams, test_empty) {
  run_ranks(1, [] {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kLong, at::kBool}) {
      for (const bool grad : {false, true}) {
        if (grad && !c10::isFloatingType(dtype)) {
          continue;
        }
        const auto t = empty(
            chunks(0, {0}), {5, 4}, {.dtype = dtype, .requires_grad = grad});
        const at::Tensor local = t.local_tensor();
        EXPECT_EQ(local.scalar_type(), dtype);
        EXPECT_EQ(local.requires_grad(), grad);
        EXPECT_EQ(local.device().str(), device_text());
        EXPECT_EQ(local.layout(), at::kStrided);
        EXPECT_EQ(local.sizes(), (Ints{5, 4}));
        EXPECT_TRUE(local.is_leaf());
      }
    }
  });
}

TEST(TestLocalTensor, test_local_tensor) {
  run_ranks(4, [] {
    const auto t = rand(chunks(0, {0, 1, 2, 3}), {24, 12});
    EXPECT_EQ(t.local_tensor().sizes(), (Ints{6, 12}));
    EXPECT_TRUE(t.local_tensor().is_same(t.local_shards()[0].tensor));
  });
}

TEST(TestLocalTensor, test_local_tensor_error) {
  run_ranks(4, [] {
    const auto t = rand(chunks(0, {0, 0, 1, 1}), {24, 12});
    EXPECT_THROWN(
        c10::NotImplementedError, "exactly one local shard", t.local_tensor());
  });
}

void check_metadata(const ShardingSpec& spec, const Ints& sizes) {
  const auto t =
      zeros(spec, sizes, {.dtype = at::kDouble, .requires_grad = true});
  EXPECT_EQ(t.size(), sizes);
  EXPECT_EQ(t.dtype(), at::kDouble);
  EXPECT_EQ(t.layout(), at::kStrided);
  EXPECT_TRUE(t.requires_grad());
  EXPECT_TRUE(t.is_contiguous());
  EXPECT_TRUE(t.is_floating_point());
  EXPECT_FALSE(t.is_pinned());
  EXPECT_EQ(t.numel(), c10::multiply_integers(sizes));
  for (const Shard& shard : t.local_shards()) {
    EXPECT_TRUE(shard.tensor.requires_grad());
    EXPECT_TRUE(shard.tensor.is_leaf());
  }
  const TensorProperties& properties = t.metadata().tensor_properties;
  EXPECT_EQ(properties.dtype, at::kDouble);
  EXPECT_EQ(properties.memory_format, c10::MemoryFormat::Contiguous);
  EXPECT_EQ(empty(spec, sizes).dtype(), at::kFloat);
  EXPECT_NE(to_string(t).find("ShardedTensor("), std::string::npos);
  const ShardedTensor handle = t;
  EXPECT_EQ(handle.hash(), t.hash());
}

TEST(TestShardedTensorChunked, test_sharded_tensor_metadata) {
  run_ranks(4, [] { check_metadata(chunks(0, {0, 1, 2, 3}), {10, 20}); });
}

TEST(TestShardedTensorEnumerable, test_sharded_tensor_metadata) {
  run_ranks(4, [] { check_metadata(grid(5, {0, 1, 2, 3}), {10, 10}); });
}

TEST(TestShardedTensorChunked, test_complete_world_size) {
  run_ranks(4, [] {
    for (const int64_t dim : {0, -2}) {
      const auto t =
          empty(chunks(dim, {0, 1, 2, 3}), {10, 20}, {.init_remote = true});
      EXPECT_EQ(sizes_of(t, 0), (Ints{3, 3, 3, 1}));
      EXPECT_EQ(offsets_of(t, 0), (Ints{0, 3, 6, 9}));
      EXPECT_EQ(sizes_of(t, 1), (Ints{20, 20, 20, 20}));
      for (int64_t r = 0; r < 4; ++r) {
        EXPECT_EQ(
            to_string(*t.metadata().shards_metadata[r].placement),
            "rank:" + std::to_string(r) + "/" + device_text());
      }
      ASSERT_EQ(t.local_shards().size(), 1);
      EXPECT_EQ(t.local_tensor().sizes(), (Ints{rank() == 3 ? 1 : 3, 20}));
      t.local_tensor().fill_(static_cast<double>(rank()));
      init().communicator().barrier();
      const auto remote = t.remote_shards();
      EXPECT_EQ(remote.size(), 3);
      for (const auto& [r, shards] : remote) {
        ASSERT_EQ(shards.size(), 1);
        EXPECT_NE(r, rank());
        EXPECT_EQ(shards[0].fetch().sizes(), (Ints{r == 3 ? 1 : 3, 20}));
        EXPECT_TRUE(at::all(shards[0].fetch() == r).item<bool>());
      }
      init().communicator().barrier();  // before anyone drops its tensor
    }
  });
}

TEST(TestShardedTensorChunked, test_create_sharded_tensor_with_ones) {
  run_ranks(4, [] {
    const auto t = ones(chunks(0, {0, 1, 2, 3}), {10, 20});
    EXPECT_TRUE(shards_are(t, at::ones({10, 20}, f32())));
    EXPECT_EQ(t.local_tensor().device().str(), device_text());
  });
}

TEST(TestShardedTensorChunked, test_create_sharded_tensor_with_zeros) {
  run_ranks(4, [] {
    const auto t =
        zeros(chunks(0, {0, 1, 2, 3}), {10, 20}, {.dtype = at::kInt});
    EXPECT_TRUE(shards_are(t, at::zeros({10, 20}, i64()).to(at::kInt)));
  });
}

TEST(TestShardedTensorChunked, test_create_sharded_tensor_with_rand) {
  at::Tensor uniform, normal;
  run_ranks(1, [&] {
    manual_seed(7);
    uniform = rand(chunks(0, {0}), {10, 20}).local_tensor();
    normal = randn(chunks(0, {0}), {10, 20}).local_tensor();
  });
  run_ranks(4, [&] {
    for (const bool as_grid : {false, true}) {
      manual_seed(7);
      const ShardingSpecPtr spec =
          as_grid ? EnumerableShardingSpec({box_of({0, 0}, {4, 20}, 3),
                                            box_of({4, 0}, {6, 7}, 0),
                                            box_of({4, 7}, {6, 13}, 3)})
                        .clone()
                  : chunks(0, {2, 1, 0, 3}).clone();
      EXPECT_TRUE(shards_are(rand(*spec, {10, 20}), uniform));
      EXPECT_TRUE(shards_are(randn(*spec, {10, 20}), normal));
    }
    // The same numbers as a tensor with placements.
    manual_seed(7);
    EXPECT_TRUE(same(
        tessera::rand({10, 20}, mesh_of({4}), {tessera::Shard(0)}, f32()),
        uniform));
    EXPECT_ERROR(
        "floating point", rand(chunks(0, {0}), {4}, {.dtype = at::kLong}));
  });
}

TEST(TestShardedTensorChunked, test_create_sharded_tensor_with_full) {
  run_ranks(4, [] {
    const auto t =
        full(chunks(0, {0, 1, 2, 3}), {10, 20}, 7, {.dtype = at::kInt});
    EXPECT_TRUE(shards_are(t, at::full({10, 20}, 7, i64()).to(at::kInt)));
    EXPECT_EQ(full(chunks(0, {0, 1, 2, 3}), {10, 20}, 7).dtype(), at::kFloat);
  });
}

// Gathers on every rank in turn, into an output that only it has.
void check_gather(const ShardingSpec& spec, const Ints& sizes) {
  const at::Tensor whole = counting(sizes);
  const auto t = shard_tensor(whole, spec);
  EXPECT_TRUE(shards_are(t, whole));
  for (int64_t dst = 0; dst < world_size(); ++dst) {
    at::Tensor out;
    if (rank() == dst) {
      out = at::full(sizes, -1.0, f64());
    }
    t.gather(dst, out);
    if (rank() == dst) {
      EXPECT_TRUE(same(out, whole));
    }
  }
}

TEST(TestShardedTensorChunked, test_gather_even) {
  run_ranks(4, [] { check_gather(chunks(0, {0, 1, 2, 3}), {8, 20}); });
}
TEST(TestShardedTensorChunked, test_gather_uneven) {
  run_ranks(4, [] { check_gather(chunks(0, {0, 0, 1, 1, 2}), {10, 20}); });
}
TEST(TestShardedTensorEnumerable, test_gather_even) {
  run_ranks(4, [] { check_gather(grid(5, {0, 1, 2, 3}), {10, 10}); });
}
TEST(TestShardedTensorEnumerable, test_gather_uneven) {
  run_ranks(4, [] { check_gather(grid(5, {0, 0, 1, 3}), {10, 10}); });
}

void check_remotes(const ShardedTensor& t) {
  for (const Shard& shard : t.local_shards()) {
    shard.tensor.fill_(static_cast<double>(rank()));
  }
  init().communicator().barrier();
  size_t others = 0;
  for (const auto& [r, shards] : t.remote_shards()) {
    for (const RemoteShard& shard : shards) {
      EXPECT_EQ(*shard.metadata().placement->rank(), r);
      EXPECT_EQ(shard.fetch().sizes(), shard.metadata().shard_sizes);
      EXPECT_TRUE(at::all(shard.fetch() == r).item<bool>());
      ++others;
    }
  }
  EXPECT_EQ(
      others + t.local_shards().size(), t.metadata().shards_metadata.size());
  init().communicator().barrier();
}

TEST(TestShardedTensorChunked, test_partial_world_size) {
  run_ranks(4, [] {
    const auto t = empty(chunks(0, {2, 3}), {10, 20}, {.init_remote = true});
    EXPECT_EQ(t.local_shards().size(), rank() < 2 ? 0 : 1);
    EXPECT_EQ(sizes_of(t, 0), (Ints{5, 5}));
    EXPECT_EQ(t.device().str(), device_text());
    check_remotes(t);
  });
}

TEST(TestShardedTensorChunked, test_new_group) {
  run_ranks(4, [] {
    const auto t = empty(
        chunks(0, {2, 3}), {10, 20},
        {.process_group = {1, 2, 3}, .init_remote = true});
    EXPECT_EQ(t.local_shards().size(), rank() < 2 ? 0 : 1);
    EXPECT_EQ(t.process_group().size(), 3);
    check_remotes(t);
    if (rank() > 0) {
      const at::Tensor out =
          rank() == 1 ? at::empty({10, 20}, f32()) : at::Tensor();
      t.gather(0, out);  // group rank 0 is rank 1
      if (rank() == 1) {
        EXPECT_EQ(out[0][0].item<float>(), 2);
        EXPECT_EQ(out[9][0].item<float>(), 3);
      }
    } else {
      EXPECT_ERROR("only members", t.gather(0));
    }
  });
}

TEST(TestShardedTensorChunked, test_multiple_local_shards) {
  run_ranks(4, [] {
    const auto t = empty(
        chunks(0, {0, 1, 2, 3, 0, 1, 2, 3}), {16, 20}, {.init_remote = true});
    ASSERT_EQ(t.local_shards().size(), 2);
    EXPECT_EQ(
        t.local_shards()[0].metadata.shard_offsets, (Ints{2 * rank(), 0}));
    EXPECT_EQ(
        t.local_shards()[1].metadata.shard_offsets, (Ints{2 * rank() + 8, 0}));
    EXPECT_EQ(t.shard_size(), 2 * 2 * 20);
    EXPECT_EQ(ShardedTensor::shard_size(t.metadata().shards_metadata[0]), 40);
    EXPECT_EQ(t.remote_shards().at(rank() == 0 ? 1 : 0).size(), 2);
    check_remotes(t);
  });
}

TEST(TestShardedTensorChunked, test_sharding_columns) {
  run_ranks(4, [] {
    for (const int64_t dim : {1, -1}) {
      const auto t = empty(chunks(dim, {0, 1, 2, 3}), {10, 32});
      EXPECT_EQ(t.local_tensor().sizes(), (Ints{10, 8}));
      EXPECT_EQ(offsets_of(t, 1), (Ints{0, 8, 16, 24}));
    }
  });
}

TEST(TestShardedTensorChunked, test_invalid_sharding) {
  run_ranks(4, [] {
    EXPECT_THROWN(
        c10::NotImplementedError, "name",
        ChunkShardingSpec("H", places({0, 1})));
    for (const int64_t dim : {2, 3, 4, -3, -4, -5}) {
      EXPECT_THROWN(
          c10::ValueError, "dim", empty(chunks(dim, {0, 1}), {10, 20}));
    }
    EXPECT_THROWN(
        c10::ValueError, "not a member", empty(chunks(0, {5, 6}), {10, 20}));
    EXPECT_THROWN(
        c10::ValueError, "not a member",
        empty(chunks(0, {0, 3}), {10, 20}, {.process_group = {1, 2, 3}}));
    const auto spec = chunks(0, {0, 1, 2, 3});
    EXPECT_THROWN(
        c10::ValueError, "strided", empty(spec, {4}, {.layout = at::kSparse}));
    EXPECT_THROWN(
        c10::ValueError, "contiguous",
        empty(
            spec, {4, 4, 4, 4},
            {.memory_format = c10::MemoryFormat::ChannelsLast}));
    const ChunkShardingSpec named(0, {"worker0/cpu", "worker1/cpu"});
    EXPECT_THROWN(c10::Error, "WorkerNames", empty(named, {4}));
    const WorkerNames names({{"alice", 0}, {"bob", 1}});
    EXPECT_THROWN(c10::ValueError, "does not have", empty(named, {4}));
    EXPECT_THROWN(
        c10::Error, "without init_remote", empty(spec, {4}).remote_shards());
    EXPECT_THROWN(c10::ValueError, "negative", empty(spec, {4, -1}));
  });
}

TEST(TestShardedTensorChunked, test_invalid_pg_rpc_ranks) {
  run_ranks(4, [] {
    EXPECT_THROWN(
        c10::ValueError, "rank of the world", WorkerNames({{"w", 4}}));
    EXPECT_THROWN(
        c10::ValueError, "one name", WorkerNames({{"a", 0}, {"b", 0}}));
    const WorkerNames names({{"a", 0}});
    EXPECT_THROWN(c10::Error, "already", WorkerNames({{"b", 0}}));
  });
}

TEST(TestShardedTensorChunked, test_insufficient_sharding_dims) {
  run_ranks(4, [] {
    const auto t = empty(chunks(0, {0, 1, 2, 3}), {2, 20});
    EXPECT_EQ(sizes_of(t, 0), (Ints{1, 1, 0, 0}));
    EXPECT_EQ(offsets_of(t, 0), (Ints{0, 1, 2, 2}));  // D1: inside the tensor
    ASSERT_EQ(t.local_shards().size(), 1);
    EXPECT_EQ(t.local_tensor().sizes(), (Ints{rank() < 2 ? 1 : 0, 20}));
  });
}

TEST(TestShardedTensorChunked, test_sharded_tensor_sizes) {
  run_ranks(4, [] {
    const auto spec = chunks(0, {0, 1, 2, 3});
    const auto t = empty(spec, {10, 20});
    EXPECT_EQ(t.size(), (Ints{10, 20}));
    EXPECT_EQ(t.sizes(), (Ints{10, 20}));
    EXPECT_EQ(empty(spec, {10}).size(), (Ints{10}));
    EXPECT_EQ(t.size(0), 10);
    EXPECT_EQ(t.size(-1), 20);
    EXPECT_EQ(t.dim(), 2);
    EXPECT_EQ(t.ndim(), 2);
    EXPECT_THROWN(c10::IndexError, "out of range", t.size(2));
    EXPECT_THROWN(c10::IndexError, "out of range", t.size(-3));
  });
}

TEST(TestShardedTensorChunked, test_cleanup) {
  run_ranks(4, [] {
    {
      const auto spec = chunks(0, {0, 1, 2, 3});
      const auto a = empty(spec, {10, 20}, {.init_remote = true});
      const auto b = empty(spec, {10, 20}, {.init_remote = true});
      init().communicator().barrier();
      EXPECT_EQ(remote_tensor_count(), 8);
      init().communicator().barrier();
    }
    init().communicator().barrier();
    EXPECT_EQ(remote_tensor_count(), 0);
  });
}

TEST(DefectD10, AnErrorBeforeRemoteAccessReachesAll) {
  run_ranks(4, [] {
    const auto make = [](int64_t dim) {
      return zeros(chunks(dim, {0, 1, 2, 3}), {8, 4}, {.init_remote = true});
    };
    EXPECT_THROWN(c10::ValueError, "on rank 2: ", make(rank() == 2 ? 5 : 0));
    EXPECT_EQ(make(0).remote_shards().size(), 3);
    init().communicator().barrier();
  });
}

TEST(TestShardedTensorChunked, ADroppedRemoteShardIsAnError) {
  run_ranks(2, [] {
    std::optional<ShardedTensor> t =
        empty(chunks(0, {0, 1}), {4}, {.init_remote = true});
    const RemoteShard other = t->remote_shards().at(1 - rank())[0];
    init().communicator().barrier();
    t.reset();
    init().communicator().barrier();
    EXPECT_ERROR("has dropped", other.fetch());
  });
}

TEST(TestShardedTensorEnumerable, test_grid_sharding) {
  run_ranks(4, [] {
    const auto t =
        empty(grid(5, {0, 1, 2, 3}), {10, 10}, {.init_remote = true});
    EXPECT_EQ(t.local_tensor().sizes(), (Ints{5, 5}));
    EXPECT_EQ(
        t.local_shards()[0].metadata.shard_offsets,
        (Ints{rank() / 2 * 5, rank() % 2 * 5}));
    check_remotes(t);
  });
}

TEST(TestShardedTensorEnumerable, test_create_sharded_tensor_with_ones) {
  run_ranks(4, [] {
    EXPECT_TRUE(shards_are(
        ones(grid(5, {0, 1, 2, 3}), {10, 10}), at::ones({10, 10}, f32())));
  });
}

TEST(TestShardedTensorEnumerable, test_uneven_shards) {
  run_ranks(4, [] {
    const EnumerableShardingSpec spec(
        {box_of({0, 0}, {2, 4}, 0), box_of({0, 4}, {4, 2}, 1),
         box_of({2, 0}, {4, 4}, 2), box_of({4, 4}, {2, 2}, 3)});
    const at::Tensor whole = counting({6, 6});
    const auto t = shard_tensor(whole, spec, 3);
    EXPECT_TRUE(shards_are(t, whole));
    EXPECT_TRUE(same(whole_value(t), whole));
  });
}

TEST(TestShardedTensorEnumerable, test_partial_world_size) {
  run_ranks(4, [] {
    const auto t = empty(
        EnumerableShardingSpec(
            {box_of({0, 0}, {5, 5}, 0), box_of({5, 0}, {5, 5}, 1)}),
        {10, 5}, {.init_remote = true});
    EXPECT_EQ(t.local_shards().size(), rank() < 2 ? 1 : 0);
    check_remotes(t);
  });
}

TEST(TestShardedTensorEnumerable, test_new_group) {
  run_ranks(4, [] {
    const auto t = empty(
        EnumerableShardingSpec(
            {box_of({0, 0}, {5, 5}, 1), box_of({5, 0}, {5, 5}, 3)}),
        {10, 5}, {.process_group = {1, 2, 3}, .init_remote = true});
    EXPECT_EQ(t.local_shards().size(), rank() % 2);
    check_remotes(t);
  });
}

TEST(TestShardedTensorEnumerable, test_multiple_local_shards) {
  run_ranks(4, [] {
    const auto t =
        empty(grid(5, {0, 0, 1, 1}), {10, 10}, {.init_remote = true});
    EXPECT_EQ(t.local_shards().size(), rank() < 2 ? 2 : 0);
    check_remotes(t);
  });
}

TEST(TestShardedTensorEnumerable, test_with_rpc_names) {
  run_ranks(4, [] {
    const WorkerNames names(
        {{"worker0", 0}, {"worker1", 1}, {"worker2", 2}, {"worker3", 3}});
    const auto at_worker = [](int64_t r) {
      return RemoteDevice("worker" + std::to_string(r) + "/" + device_text());
    };
    const EnumerableShardingSpec spec(
        {{{0, 0}, {5, 5}, at_worker(0)},
         {{0, 5}, {5, 5}, at_worker(1)},
         {{5, 0}, {5, 5}, at_worker(2)},
         {{5, 5}, {5, 5}, at_worker(3)}});
    const auto t = ones(spec, {10, 10}, {.init_remote = true});
    ASSERT_EQ(t.local_shards().size(), 1);
    EXPECT_EQ(
        to_string(*t.local_shards()[0].metadata.placement),
        "worker" + std::to_string(rank()) + "/" + device_text());
    EXPECT_EQ(t.remote_shards().size(), 3);
    EXPECT_TRUE(same(whole_value(t), at::ones({10, 10}, f32())));
  });
}

TEST(TestShardTensor, test_shard_tensor) {
  run_ranks(4, [] {
    const at::Tensor whole = counting({12, 12});
    const auto t = shard_tensor(whole, chunks(0, {0, 1, 2, 3}));
    EXPECT_EQ(t.local_tensor().sizes(), (Ints{3, 12}));
    EXPECT_TRUE(same(t.local_tensor(), whole.narrow(0, 3 * rank(), 3)));
  });
}

TEST(TestShardTensor, test_shard_tensor_with_empty_shard) {
  run_ranks(4, [] {
    const at::Tensor whole = counting({9, 12});
    const auto t = shard_tensor(whole, chunks(0, {0, 1, 2, 3}));
    EXPECT_EQ(t.local_tensor().sizes(), (Ints{rank() == 3 ? 0 : 3, 12}));
    EXPECT_TRUE(shards_are(t, whole));
    EXPECT_EQ(t.metadata().shards_metadata.size(), 4);
    EXPECT_EQ(offsets_of(t, 0), (Ints{0, 3, 6, 9}));
  });
}

TEST(TestShardTensor, test_shard_tensor_errors) {
  run_ranks(4, [] {
    const auto spec = chunks(0, {0, 1, 2, 3});
    const at::Tensor whole = counting({12, 12});
    EXPECT_THROWN(
        c10::ValueError, "same src_rank",
        shard_tensor(whole, spec, rank() == 2 ? 1 : 0));
    EXPECT_THROWN(
        c10::ValueError, "contiguous",
        shard_tensor(rank() == 1 ? whole.t() : whole, spec));
    EXPECT_THROWN(
        c10::ValueError, "same spec",
        shard_tensor(whole, chunks(rank() == 3 ? 1 : 0, {0, 1, 2, 3})));
    EXPECT_THROWN(
        c10::ValueError, "src_rank must be a rank of the group",
        shard_tensor(whole, spec, 4));
    EXPECT_THROWN(
        c10::ValueError, "size and dtype",
        shard_tensor(rank() == 0 ? counting({8, 12}) : whole, spec));
    // An enumerable spec cuts too: D2.
    EXPECT_TRUE(shards_are(shard_tensor(whole, grid(6, {3, 2, 1, 0})), whole));
    // The group is whole after every error.
    EXPECT_TRUE(shards_are(shard_tensor(whole, spec, 3), whole));
  });
}

}  // namespace
}  // namespace tessera::sharded_tensor
