// Wrong answers that another implementation of sharded tensors gave, one test
// each: uneven and empty shards. Numbers are issues of
// github.com/pytorch/pytorch unless another repository is named; "measured"
// were found by running it.
#include <upstream_regressions/expect_plain.h>

#include <functional>

namespace tessera {
namespace {

using testing::counting;
using testing::cut;
using testing::distinct;
using testing::expect_plain;
using testing::f64;
using testing::mesh_of;
using testing::same;

TEST(KnownBugs, FiveRowsOverFourRanksGatherToFive) {  // 103306
  run_ranks(4, [&] {
    const auto t = cut(distinct({5, 3}), mesh_of({4}), "S(0)");
    const auto r = redistribute(t, {Replicate()});
    EXPECT_EQ(to_local(r).sizes(), at::IntArrayRef({5, 3}));
    EXPECT_TRUE(same(r, distinct({5, 3})));
  });
}

TEST(KnownBugs, UnevenShardsOfATwoDimMeshGatherWhole) {  // 115310, 194457
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    for (const int64_t rows : {1, 2, 3, 5, 7}) {
      for (const char* text :
           {"S(0) S(0)", "S(0)[1] S(0)[0]", "S(0) S(1)", "S(1) S(0)",
            "R S(0)"}) {
        EXPECT_TRUE(same(
            full_tensor(cut(distinct({rows, 3}), mesh, text)),
            distinct({rows, 3})))
            << rows << " " << text;
      }
    }
  });
}

TEST(KnownBugs, FromLocalNoticesShardsOfDifferentSizes) {  // 110762
  EXPECT_ERROR("from_local", run_ranks(2, [&] {
                 const auto mesh = mesh_of({2});
                 from_local(
                     counting({rank() == 0 ? 3 : 2, 4}), mesh, {Shard(0)},
                     {.run_check = true});
               }));
  run_ranks(2, [&] {
    const auto t = from_local(
        distinct({5, 4}).slice(0, rank() == 0 ? 0 : 3, rank() == 0 ? 3 : 5),
        mesh_of({2}), {Shard(0)}, {.shape = {{5, 4}}});
    EXPECT_TRUE(same(full_tensor(t), distinct({5, 4})));
  });
}

TEST(KnownBugs, FromLocalRefusesSizesThatAreNoChunks) {  // 144109
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const int64_t rows = 2 + rank();  // 2, 3, 4, 5 of 14: chunks are 4, 4, 4, 2
    if (rank() != 2) {
      EXPECT_ERROR(
          "does not fit",
          from_local(
              counting({rows, 2}), mesh, {Shard(0)}, {.shape = {{14, 2}}}));
    }
    const int64_t before = rank() * (rank() + 3) / 2;
    const auto t = from_local(
        distinct({14, 2}).slice(0, before, before + rows), mesh,
        {RaggedShard(0, {2, 3, 4, 5})}, {.shape = {{14, 2}}});
    EXPECT_TRUE(same(full_tensor(t), distinct({14, 2})));
  });
}

TEST(KnownBugs, MeanOfUnevenShardsIsThatOfAllElements) {  // 162692
  for (const int64_t rows : {1, 2, 3, 5}) {
    expect_plain(
        4, {4}, distinct({rows, 3}), {"S(0)", "S(1)"},
        [](const at::Tensor& t) { return t.mean(0); });
    expect_plain(
        4, {4}, distinct({rows, 3}), {"S(0)"},
        [](const at::Tensor& t) { return t.mean(); });
  }
}

TEST(KnownBugs, AStridedShardOfFiveIsCutWhereItsPiecesEnd) {  // 168134
  run_ranks(2, [&] {
    const auto t = cut(counting({5}), mesh_of({2}), "SS(0,2)");
    // pieces 0 1 2 and 3 4, each halved: 0 1 3 and 2 4
    EXPECT_TRUE(at::equal(
        to_local(t), rank() == 0 ? at::tensor({0., 1., 3.}, f64())
                                 : at::tensor({2., 4.}, f64())));
    EXPECT_TRUE(same(t.add(1).mul(2), counting({5}).add(1).mul(2)));
    EXPECT_TRUE(same(t.sum(), counting({5}).sum()));
    EXPECT_TRUE(same(t.flip(0), counting({5}).flip(0)));
  });
}

TEST(KnownBugs, RowsCutByTwoMeshDimsComeBackInOrder) {  // 129206, 129229
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2}, {"dp", "tp"});
    for (const int64_t rows : {8, 7}) {
      const auto value = counting({rows, 2});
      EXPECT_TRUE(same(full_tensor(cut(value, mesh, "SS(0,2) S(0)")), value));
      const auto by_tp = cut(value, mesh, "R S(0)");
      EXPECT_TRUE(same(
          full_tensor(redistribute(by_tp, parse_placements("S(0)[1] S(0)[0]"))),
          value));
    }
  });
}

TEST(KnownBugs, ChunksOfUnevenNestedShardsCoverEachRowOnce) {
  // 161368, 150862, 121002, 188947
  for (const int64_t rows : {0, 1, 2, 3, 5, 7}) {
    std::mutex mutex;
    std::vector<int> covered(static_cast<size_t>(rows), 0);
    run_ranks(4, [&] {
      const auto t = cut(counting({rows, 2}), mesh_of({2, 2}), "S(0) S(0)");
      for (const ChunkStorageMetadata& chunk : chunk_list(t)) {
        const int64_t end = chunk.offsets[0] + chunk.sizes[0];
        ASSERT_LE(end, rows) << "inside the tensor";
        const std::lock_guard<std::mutex> lock(mutex);
        for (int64_t i = chunk.offsets[0]; i < end; ++i) {
          ++covered[static_cast<size_t>(i)];
        }
      }
    });
    EXPECT_EQ(covered, std::vector<int>(static_cast<size_t>(rows), 1));
  }
}

TEST(KnownBugs, WhatWasGatheredFromUnevenShardsCanBeViewed) {  // 173041
  run_ranks(4, [&] {
    const auto t = cut(distinct({3, 5}), mesh_of({4}), "S(1)");
    const auto r = redistribute(t, {Replicate()});
    EXPECT_TRUE(to_local(r).is_contiguous());
    EXPECT_TRUE(same(to_local(r).view({15}), distinct({15})));
  });
}

TEST(KnownBugs, ExtremesOfEmptyShardsDecideNothing) {  // measured
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> ops = {
      [](auto& t) { return t.max(); },
      [](auto& t) { return t.min(); },
      [](auto& t) { return t.amax(0); },
      [](auto& t) { return t.amin(0); },
      [](auto& t) { return std::get<0>(t.max(0)); },
      [](auto& t) { return std::get<1>(t.max(0)); },
      [](auto& t) { return std::get<1>(t.min(0)); },
      [](auto& t) { return t.argmax(0); },
      [](auto& t) { return t.argmin(); },
      [](auto& t) { return at::linalg_vector_norm(t, INFINITY, 0); },
      [](auto& t) { return at::linalg_vector_norm(t, -INFINITY, 0); },
      [](auto& t) { return at::linalg_vector_norm(t, 0, 0); },
  };
  for (const auto& op : ops) {
    // All negative: a zero from an empty shard would win a maximum.
    expect_plain(4, {4}, distinct({2, 3}).sub(5), {"S(0)", "S(1)"}, op);
    expect_plain(4, {4}, distinct({2, 3}).add(5), {"S(0)", "S(1)"}, op);
  }
}

TEST(KnownBugs, UnevenAndEmptyShardsCanBeFlattened) {  // 143372
  for (const int64_t rows : {1, 3, 5}) {
    expect_plain(
        4, {4}, distinct({rows, 3}), {"S(0)", "S(1)"},
        [](const at::Tensor& t) { return t.view(-1) * 2; });
    expect_plain(
        4, {4}, distinct({2, rows, 3}), {"S(0)", "S(1)", "S(2)"},
        [](const at::Tensor& t) { return t.flatten(1) * 2; });
  }
}

}  // namespace
}  // namespace tessera
