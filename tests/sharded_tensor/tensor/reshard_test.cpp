// From every spec to every other.
#include <numeric>
#include <random>

#include <sharded_tensor/tensor/family_test.h>

namespace tessera::sharded_tensor {
namespace {

using namespace tessera::testing;
using Ints = std::vector<int64_t>;

// Four blades around a middle, which may belong to any rank.
EnumerableShardingSpec pinwheel(int64_t n, const Ints& ranks) {
  const int64_t a = n / 3, b = n - a;
  return EnumerableShardingSpec(
      {box_of({0, 0}, {a, b}, ranks[0]), box_of({0, b}, {b, a}, ranks[1]),
       box_of({b, a}, {a, b}, ranks[2]), box_of({a, 0}, {b, a}, ranks[3]),
       box_of({a, a}, {b - a, b - a}, ranks[4])});
}

// A grid cut at any points, cells row-major over `ranks`, which repeat.
EnumerableShardingSpec cut_grid(
    const Ints& rows, const Ints& columns, const Ints& ranks) {
  std::vector<ShardMetadata> shards;
  for (size_t i = 0; i + 1 < rows.size(); ++i) {
    for (size_t j = 0; j + 1 < columns.size(); ++j) {
      shards.push_back(box_of(
          {rows[i], columns[j]},
          {rows[i + 1] - rows[i], columns[j + 1] - columns[j]},
          ranks[shards.size() % ranks.size()]));
    }
  }
  return EnumerableShardingSpec(shards);
}

// Splits a box again and again, and deals the pieces out.
void guillotine(
    std::mt19937& random, const Box& box, int depth,
    std::vector<ShardMetadata>& shards) {
  const auto pick = [&](int64_t n) {
    return std::uniform_int_distribution<int64_t>(0, n - 1)(random);
  };
  if (depth == 0 || (depth < 3 && pick(3) == 0)) {
    shards.push_back(box_of(box.offsets, box.sizes, pick(4)));
    return;
  }
  const auto d = static_cast<size_t>(pick(2));
  const int64_t at = pick(box.sizes[d] + 1);
  Box low = box, high = box;
  low.sizes[d] = at;
  high.offsets[d] += at;
  high.sizes[d] -= at;
  guillotine(random, low, depth - 1, shards);
  guillotine(random, high, depth - 1, shards);
}

// 60 specs of a 9 x 9 tensor over 4 ranks.
std::vector<ShardingSpecPtr> sixty_specs() {
  std::vector<ShardingSpecPtr> specs;
  const auto add = [&](const ShardingSpec& spec) {
    specs.push_back(spec.clone());
  };
  // Chunks in orders that are one cycle, two, or none: 12.
  for (const int64_t dim : {0, 1, -1}) {
    for (const Ints& ranks :
         {Ints{0, 1, 2, 3}, Ints{1, 2, 3, 0}, Ints{2, 0, 1, 3},
          Ints{3, 2, 1, 0}}) {
      add(chunks(dim, ranks));
    }
  }
  // More chunks than ranks, fewer, some empty, repeated ranks: 12.
  for (const int64_t dim : {0, 1}) {
    for (const Ints& ranks :
         {Ints{0, 1, 2, 3, 0, 1, 2, 3}, Ints{0, 0, 1, 1, 2}, Ints{3, 1},
          Ints{2}, Ints{0, 1, 2, 3, 3, 2, 1}, Ints{1, 1, 3, 3}}) {
      add(chunks(dim, ranks));
    }
  }
  // Grids, regular and not: 12.
  for (const Ints& ranks :
       {Ints{0, 1, 2, 3}, Ints{3, 1, 0, 2}, Ints{0, 0, 2, 2}}) {
    add(cut_grid({0, 5, 9}, {0, 5, 9}, ranks));
    add(cut_grid({0, 2, 9}, {0, 8, 9}, ranks));
    add(cut_grid({0, 3, 3, 9}, {0, 4, 9}, ranks));
    add(cut_grid({0, 1, 2, 9}, {0, 3, 6, 9}, ranks));
  }
  // Pinwheels: 8.
  for (const Ints& ranks :
       {Ints{0, 1, 2, 3, 0}, Ints{1, 2, 3, 0, 2}, Ints{0, 0, 0, 0, 1},
        Ints{3, 3, 1, 1, 2}}) {
    add(pinwheel(9, ranks));
    auto turned = pinwheel(9, ranks).shards();
    std::rotate(turned.begin(), turned.begin() + 2, turned.end());
    add(EnumerableShardingSpec(turned));
  }
  // Anything, with empty boxes: 16.
  std::mt19937 random(20240607);
  while (specs.size() < 60) {
    std::vector<ShardMetadata> shards;
    guillotine(random, whole({9, 9}), 4, shards);
    add(EnumerableShardingSpec(shards));
  }
  return specs;
}

TEST(Reshard, EveryPairOfSixtySpecsIsExact) {
  run_ranks(4, [] {
    const auto specs = sixty_specs();
    ASSERT_EQ(specs.size(), 60);
    const at::Tensor whole = counting({9, 9}, i64()) + (int64_t{1} << 40);
    int64_t pairs = 0;
    for (const auto& from : specs) {
      const auto t = shard_tensor(whole, *from, pairs % 4);
      ASSERT_TRUE(shards_are(t, whole)) << *from;
      for (const auto& to : specs) {
        const auto moved = t.resharded(*to);
        ASSERT_TRUE(shards_are(moved, whole)) << *from << " to " << *to;
        ASSERT_TRUE(moved.sharding_spec() == *to);
        ++pairs;
      }
    }
    EXPECT_EQ(pairs, 3600);
  });
}

TEST(Reshard, GatherOfEverySpecIsExact) {
  run_ranks(4, [] {
    const at::Tensor whole = counting({9, 9}, i64()) + ((int64_t{1} << 24) + 1);
    for (const auto& spec : sixty_specs()) {
      ASSERT_TRUE(same(whole_value(shard_tensor(whole, *spec)), whole))
          << *spec;
    }
  });
}

TEST(TestReshard, test_sharded_tensor_reshard) {
  run_ranks(4, [] {
    const std::vector<Ints> orders = {
        {0, 1, 2, 3}, {2, 1, 3, 0}, {3, 2, 1, 0}, {1, 2, 0, 3}, {1, 2, 3, 0}};
    for (const Ints& sizes : {Ints{12, 24}, Ints{13, 21}, Ints{10, 5, 3}}) {
      const at::Tensor whole = counting(sizes);
      for (const int64_t from : {0, 1}) {
        for (const int64_t to : {0, 1}) {
          for (const Ints& a : orders) {
            for (const Ints& b : orders) {
              auto t = shard_tensor(whole, chunks(from, a));
              const ShardedTensor handle = t;
              const ShardedTensor& same_object = t.reshard(chunks(to, b));
              EXPECT_EQ(&same_object, &t);
              EXPECT_TRUE(shards_are(t, whole));
              EXPECT_EQ(
                  t.metadata(), shard_tensor(whole, chunks(to, b)).metadata());
              // In place: every handle sees it.
              EXPECT_EQ(handle.metadata(), t.metadata());
            }
          }
        }
      }
    }
  });
}

TEST(TestReshard, test_sharded_tensor_reshard_errors) {
  run_ranks(4, [] {
    const at::Tensor whole = counting({12, 12});
    auto t = shard_tensor(whole, chunks(0, {0, 1, 2, 3}));
    // What the original refuses works: enumerable targets, several shards.
    EXPECT_TRUE(shards_are(t.reshard(grid(6, {1, 2, 3, 0})), whole));
    EXPECT_TRUE(shards_are(t.reshard(chunks(0, {0, 0, 1, 1})), whole));
    // What cannot work is an error on all ranks, with nothing lost.
    EXPECT_THROWN(
        c10::ValueError, "not a member", t.reshard(chunks(0, {0, 7})));
    EXPECT_THROWN(c10::ValueError, "dim", t.reshard(chunks(2, {0, 1})));
    EXPECT_THROWN(
        c10::ValueError, "check_tensor", t.reshard(grid(5, {0, 1, 2, 3})));
    EXPECT_THROWN(
        c10::ValueError, "same spec",
        t.reshard(chunks(0, rank() == 1 ? Ints{0, 1} : Ints{1, 0})));
    EXPECT_THROWN(
        c10::ValueError,
        "on rank 2: ", t.reshard(chunks(rank() == 2 ? 5 : 0, {0, 1})));
    EXPECT_TRUE(shards_are(t, whole));
    EXPECT_TRUE(same(whole_value(t), whole));
  });
}

TEST(DefectD1, TwoAndFiveRowsOverFourRanks) {
  run_ranks(4, [] {
    for (const int64_t rows : {0, 1, 2, 3, 5, 6, 9}) {
      const at::Tensor whole = counting({rows, 3});
      auto t = shard_tensor(whole, chunks(0, {0, 1, 2, 3}));
      EXPECT_TRUE(shards_are(t, whole));
      EXPECT_TRUE(shards_are(t.reshard(chunks(0, {3, 0, 1, 2})), whole));
      EXPECT_TRUE(shards_are(t.reshard(chunks(1, {1, 0, 3, 2})), whole));
      EXPECT_TRUE(same(whole_value(t), whole));
      // Chunks of nothing may be written behind the end, as the original does.
      const int64_t split = (rows + 3) / 4;
      std::vector<ShardMetadata> unclamped;
      for (int64_t r = 0; r < 4; ++r) {
        unclamped.push_back(box_of(
            {split * r, 0},
            {std::max<int64_t>(0, std::min(split, rows - split * r)), 3}, r));
      }
      EXPECT_TRUE(
          shards_are(t.reshard(EnumerableShardingSpec(unclamped)), whole));
      std::vector<Shard> mine;
      for (const Shard& shard : t.local_shards()) {
        mine.push_back(shard);
      }
      EXPECT_TRUE(shards_are(init_from_local_shards(mine, {rows, 3}), whole));
    }
  });
}

TEST(DefectD3, CyclesOfThreeAndFour) {
  run_ranks(4, [] {
    const at::Tensor whole = counting({7, 5});
    Ints order = {0, 1, 2, 3};
    auto t = shard_tensor(whole, chunks(0, order));
    do {  // from each of the 24 orders to the next one, and from the first
      EXPECT_TRUE(shards_are(t.reshard(chunks(0, order)), whole));
      EXPECT_TRUE(shards_are(
          shard_tensor(whole, chunks(0, {0, 1, 2, 3}))
              .reshard(chunks(0, order)),
          whole));
    } while (std::next_permutation(order.begin(), order.end()));
  });
}

TEST(DefectD4, ANegativeDimIsTheSameDim) {
  run_ranks(4, [] {
    const at::Tensor whole = counting({8, 12});
    auto t = shard_tensor(whole, chunks(1, {0, 1, 2, 3}));
    const at::Tensor before = t.local_tensor();
    CommLog log;
    t.reshard(chunks(-1, {0, 1, 2, 3}));
    EXPECT_TRUE(shards_are(t, whole));
    EXPECT_TRUE(t.local_tensor().is_same(before));  // nothing moved
    for (const CommLogEntry& entry : log.entries()) {
      EXPECT_NE(entry.kind, "exchange");
    }
  });
}

TEST(DefectD6, SubGroupsGatherAndReshard) {
  run_ranks(5, [] {
    if (rank() % 2 == 1) {
      return;
    }
    const ProcessGroup group({4, 0, 2});
    const at::Tensor whole = counting({7, 4});
    auto t = shard_tensor(whole, chunks(0, {2, 4, 0}), 1, group);
    EXPECT_TRUE(shards_are(t, whole));
    t.reshard(chunks(1, {0, 2}));
    EXPECT_TRUE(shards_are(t, whole));
    at::Tensor out = rank() == 4 ? at::empty({7, 4}, f64()) : at::Tensor();
    t.gather(0, out);  // group rank 0 is rank 4
    if (rank() == 4) {
      EXPECT_TRUE(same(out, whole));
    }
  });
}

TEST(DefectD7, GatherKeepsEveryBit) {
  run_ranks(4, [] {
    const at::Tensor whole = counting({9, 3}, i64()) + ((int64_t{1} << 24) + 1);
    const auto t = shard_tensor(whole, chunks(0, {0, 1, 2, 3}));
    EXPECT_TRUE(same(whole_value(t), whole));
    EXPECT_TRUE(same(
        whole_value(
            shard_tensor(distinct({9, 3}) * 1e300, chunks(1, {0, 1, 2, 3}))),
        distinct({9, 3}) * 1e300));
    // Another dtype is converted at the end.
    at::Tensor out = rank() == 2 ? at::empty({9, 3}, f64()) : at::Tensor();
    t.gather(2, out, at::kDouble);
    if (rank() == 2) {
      EXPECT_TRUE(same(out, whole.to(at::kDouble)));
    }
    EXPECT_THROWN(
        c10::ValueError, "must have dtype", t.gather(2, out, at::kFloat));
  });
}

TEST(DefectD8, OnlyTheDestinationPassesAnOutput) {
  run_ranks(4, [] {
    const auto t = ones(chunks(0, {0, 1, 2, 3}), {1, 1});
    const at::Tensor out = at::zeros({1, 1}, f32());
    EXPECT_THROWN(c10::ValueError, "only the destination", t.gather(0, out));
    EXPECT_THROWN(c10::ValueError, "must pass an output", t.gather(0));
    EXPECT_THROWN(
        c10::ValueError, "must have sizes",
        t.gather(0, rank() == 0 ? at::zeros({2}, f32()) : at::Tensor()));
    EXPECT_THROWN(c10::ValueError, "dst must be a rank", t.gather(4));
    EXPECT_THROWN(c10::ValueError, "same dst", t.gather(rank(), out));
    EXPECT_TRUE(same(whole_value(t), at::ones({1, 1}, f32())));
  });
}

TEST(DefectD9, EmptyShardsTakePartInGather) {
  run_ranks(4, [] {
    const at::Tensor whole = counting({9, 2});
    EXPECT_TRUE(
        same(whole_value(shard_tensor(whole, chunks(0, {0, 1, 2, 3}))), whole));
    const at::Tensor nothing = counting({0, 2});
    EXPECT_TRUE(same(
        whole_value(shard_tensor(nothing, chunks(0, {0, 1, 2, 3}))), nothing));
  });
}

TEST(Reshard, ScalarsHaveOneOwner) {
  run_ranks(4, [] {
    const auto on = [](int64_t owner) {
      return EnumerableShardingSpec({box_of({}, {}, owner)});
    };
    const at::Tensor whole = at::full({}, 7.5, f64());
    auto t = shard_tensor(whole, on(1), 2);
    EXPECT_TRUE(shards_are(t.reshard(on(3)), whole));
    EXPECT_EQ(t.local_shards().size(), rank() == 3 ? 1 : 0);
    EXPECT_TRUE(same(whole_value(t), whole));
  });
}

// Loss = sum of weight * value, through a reshard to each spec.
TEST(Reshard, GradientsMoveBack) {
  run_ranks(4, [] {
    const auto specs = sixty_specs();
    const at::Tensor whole = distinct({9, 9}).set_requires_grad(true);
    const at::Tensor weight = counting({9, 9}) + 1;
    for (size_t i = 0; i < specs.size(); ++i) {
      const ShardingSpec& from = *specs[i];
      const ShardingSpec& to = *specs[(i * 7 + 3) % specs.size()];
      const auto leaf = shard_tensor(whole, from);
      EXPECT_TRUE(leaf.requires_grad());
      const auto moved = leaf.resharded(to);
      EXPECT_TRUE(moved.requires_grad());
      at::Tensor loss = at::zeros({}, f64());
      const auto weights = shard_tensor(weight, to);
      for (size_t s = 0; s < moved.local_shards().size(); ++s) {
        loss = loss + (moved.local_shards()[s].tensor.pow(2) *
                       weights.local_shards()[s].tensor)
                          .sum();
      }
      loss = loss + moved.graph_anchor().sum();
      loss.backward();
      const auto gradient = leaf.grad();
      ASSERT_TRUE(gradient);
      EXPECT_TRUE(shards_are(*gradient, (2 * whole * weight).detach()))
          << from << " to " << to;
    }
  });
}

TEST(Reshard, ExplainsAndLogsWhatItMoves) {
  run_ranks(4, [] {
    const auto specs = sixty_specs();
    const at::Tensor whole = counting({9, 9});
    for (size_t i = 0; i < specs.size(); ++i) {
      const auto t = shard_tensor(whole, *specs[i]);
      const ShardingSpec& to = *specs[(i * 11 + 5) % specs.size()];
      const std::string text = t.explain_reshard(to);
      CommLog log;
      static_cast<void>(t.resharded(to));
      int64_t bytes = 0;
      for (const CommLogEntry& entry : log.entries()) {
        EXPECT_EQ(entry.cause, "reshard");
        EXPECT_TRUE(entry.asked);
        bytes += entry.kind == "exchange" ? entry.bytes : 0;
      }
      EXPECT_NE(
          text.find("total: " + std::to_string(bytes) + " bytes"),
          std::string::npos)
          << text;
    }
  });
}

TEST(Reshard, RemoteShardsFollow) {
  run_ranks(4, [] {
    auto t = ones(chunks(0, {0, 1, 2, 3}), {8, 4}, {.init_remote = true});
    const auto old = t.remote_shards();
    t.reshard(chunks(1, {3, 2, 1, 0}));
    for (const auto& [r, shards] : t.remote_shards()) {
      EXPECT_EQ(shards[0].fetch().sizes(), (Ints{8, 1})) << r;
    }
    EXPECT_ERROR("cut its tensor anew", old.begin()->second[0].fetch());
    init().communicator().barrier();
  });
}

}  // namespace
}  // namespace tessera::sharded_tensor
