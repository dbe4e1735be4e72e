// Rows of sharded tables, looked up by ranks that have ids of their own.
#include <sharded_tensor/ops/ops_placements.h>

namespace tessera::testing {
namespace {

using namespace sharded_tensor;  // NOLINT

const std::vector<std::vector<int64_t>> kOrders = {
    {0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}};

struct Case {
  std::vector<int64_t> ids;  // sizes
  int64_t rows;
  int64_t columns;
  EmbeddingOptions options = {};
};

// Ids that differ between ranks.
at::Tensor ids_of(
    const std::vector<int64_t>& sizes, int64_t rows, int64_t of_rank) {
  return at::arange(c10::multiply_integers(sizes), i64())
      .mul(7)
      .add(3 * of_rank + 1)
      .remainder(rows)
      .reshape(sizes);
}

int64_t row_of(std::optional<int64_t> padding, int64_t rows) {
  return !padding ? -1 : *padding < 0 ? *padding + rows : *padding;
}

// What one rank with the whole table gets, for the ids of all ranks; the
// gradient of `w` sums over them.
at::Tensor expected(
    const at::Tensor& w, const std::vector<at::Tensor>& ids,
    const EmbeddingOptions& options) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& i : ids) {
    flat.push_back(i.reshape(-1));
  }
  if (options.max_norm) {
    const at::NoGradGuard no_grad;
    at::Tensor table = w.detach();
    const at::Tensor all = at::cat(flat);
    if (all.numel() > 0) {  // LibTorch's CUDA kernel fails without ids
      at::embedding_renorm_(table, all, *options.max_norm, options.norm_type);
    }
  }
  const int64_t padding = row_of(options.padding_idx, w.size(0));
  at::Tensor mine;
  at::Tensor loss = at::zeros({}, f64());
  for (size_t r = 0; r < ids.size(); ++r) {
    const at::Tensor rows = at::embedding(w, ids[r], padding);
    loss = loss + (rows * distinct(rows.sizes()) * double(r + 1)).sum();
    mine = r == static_cast<size_t>(rank()) ? rows : mine;
  }
  loss.backward();
  return mine;
}

void expect_case(
    const Case& c, const ShardingSpec& spec,
    const std::vector<at::Tensor>& ids) {
  const at::Tensor w = leaf(distinct({c.rows, c.columns}));
  const auto weight = cut(w, spec);
  const auto before = weight.local_shards();
  const at::Tensor got =
      embedding(ids[static_cast<size_t>(rank())], weight, c.options);
  const at::Tensor want = expected(w, ids, c.options);
  EXPECT_TRUE(close(got, want));
  EXPECT_TRUE(shards_are_close(detach(weight), w.detach()));
  (got * distinct(got.sizes()) * double(rank() + 1)).sum().backward();
  EXPECT_TRUE(gradients_are(weight, w.grad()));
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(before[i].tensor.is_same(weight.local_shards()[i].tensor));
    EXPECT_TRUE(before[i].tensor.is_leaf());
  }
}

void expect_cases(const std::vector<Case>& cases, int64_t dim) {
  run_ranks(4, [&] {
    for (const auto& order : kOrders) {
      for (const Case& c : cases) {
        SCOPED_TRACE(
            ::testing::PrintToString(c.ids) + " of " + std::to_string(c.rows) +
            " x " + std::to_string(c.columns));
        std::vector<at::Tensor> ids;
        for (int64_t r = 0; r < 4; ++r) {
          ids.push_back(ids_of(c.ids, c.rows, r));
        }
        expect_case(c, chunks(dim, order), ids);
      }
    }
  });
}

std::vector<Case> cases() {
  return {
      {{5, 4}, 17, 12},
      {{6, 7, 6}, 21, 11},
      {{8, 6, 5, 4}, 23, 13},
      {{8, 6, 5, 4, 2}, 23, 16},
      {{12}, 16, 14},
      {{12}, 16, 8, {.padding_idx = 5}},
      {{5, 4}, 32, 12, {.padding_idx = 10}},
      {{6, 5, 3}, 26, 13, {.max_norm = 2.0}},
      {{4, 3}, 15, 9, {.max_norm = 0.7, .norm_type = 1.0}},
      {{5}, 12, 18, {.padding_idx = -1, .max_norm = 1.2, .norm_type = 1.0}},
      {{5, 12}, 13, 22, {.padding_idx = 3, .max_norm = 1.0}},
      {{3}, 3, 2}};
}

TEST(TestShardedEmbedding, test_sharded_embedding_colwise) {
  expect_cases(cases(), 1);
}

TEST(TestShardedEmbedding, test_sharded_embedding_rowwise) {
  expect_cases(cases(), 0);
}

TEST(DefectD20, TheLargestIdIsRenormalisedToo) {
  run_ranks(4, [] {
    // All ids are rank 0's, which masks none; all rows; and one rank's last.
    for (const int64_t count : {2, 8}) {
      std::vector<at::Tensor> ids(4, at::arange(count, i64()));
      expect_case(
          {{count}, 8, 4, {.max_norm = 0.5}}, chunks(0, {0, 1, 2, 3}), ids);
    }
  });
}

TEST(DefectD26, RenormalisingWritesTheShardInPlace) {
  run_ranks(4, [] {
    for (const int64_t dim : {0, 1}) {
      const auto weight =
          cut(leaf(distinct({9, 5})), chunks(dim, {3, 1, 0, 2}));
      const at::Tensor shard = weight.local_shards()[0].tensor;
      const void* memory = shard.const_data_ptr();
      embedding(at::arange(9, i64()), weight, {.max_norm = 0.3});
      EXPECT_TRUE(shard.is_same(weight.local_shards()[0].tensor));
      EXPECT_EQ(shard.const_data_ptr(), memory);
      EXPECT_TRUE(shard.is_leaf() && shard.requires_grad());
      at::Tensor whole = distinct({9, 5});
      at::embedding_renorm_(whole, at::arange(9, i64()), 0.3, 2);
      EXPECT_TRUE(shards_are_close(detach(weight), whole));
    }
  });
}

TEST(Embedding, RanksMayHaveOtherNumbersOfIds) {
  run_ranks(4, [] {
    for (const Cut& how : mesh_cuts()) {
      SCOPED_TRACE(how.name);
      const std::vector<at::Tensor> ids = {
          ids_of({3, 2}, 6, 0), ids_of({0}, 6, 1), ids_of({}, 6, 2),
          ids_of({5}, 6, 3).to(at::kInt)};
      expect_case({{}, 6, 6}, *how.spec, ids);
      expect_case(
          {{}, 6, 6, {.padding_idx = 2, .max_norm = 1}}, *how.spec, ids);
    }
  });
}

TEST(Embedding, NoRankNeedHaveIds) {
  run_ranks(4, [] {
    const std::vector<at::Tensor> ids(4, at::empty({0, 3}, i64()));
    expect_case({{}, 6, 5, {.max_norm = 1}}, chunks(0, {0, 1, 2, 3}), ids);
    expect_case({{}, 6, 5}, chunks(1, {2, 1}), ids);
  });
}

TEST(DefectD22, TablesMayBeCutByANegativeDimOrAGrid) {
  run_ranks(4, [] {
    std::vector<at::Tensor> ids;
    for (int64_t r = 0; r < 4; ++r) {
      ids.push_back(ids_of({4}, 6, r));
    }
    expect_case({{}, 6, 6}, chunks(-1, {0, 1, 2, 3}), ids);
    expect_case({{}, 6, 6}, grid(3, {0, 1, 2, 3}), ids);
    const auto weight = cut(distinct({6, 6}), pinwheel());
    EXPECT_THROWN(
        c10::NotImplementedError, "no mesh has the shards of the weight",
        embedding(ids[0], weight));
  });
}

TEST(Embedding, AnErrorOnOneRankReachesAll) {
  run_ranks(4, [] {
    const auto weight = cut(distinct({6, 2}), chunks(0, {0, 1, 2, 3}));
    const bool odd = rank() == 2;
    EXPECT_THROWN(
        c10::TypeError,
        "on rank 2: embedding, rank 2: the ids must be a tensor of integers",
        embedding(odd ? at::ones({2}) : at::zeros({2}, i64()), weight));
    EXPECT_THROWN(
        c10::ValueError,
        "on rank 2: embedding, rank 2: ids must be rows of "
        "the weight; got id 6 for 6 rows",
        embedding(at::full({2}, odd ? 6 : 5, i64()), weight));
    EXPECT_THROWN(
        c10::ValueError, "got id -1 for 6 rows",
        embedding(at::full({2}, odd ? -1 : 5, i64()), weight));
    const at::Tensor ids = at::zeros({2}, i64());
    EXPECT_THROWN(
        c10::ValueError, "padding_idx must be a row of 6; got 6",
        embedding(ids, weight, {.padding_idx = 6}));
    EXPECT_THROWN(
        c10::ValueError, "max_norm must be positive; got 0",
        embedding(ids, weight, {.max_norm = 0}));
    EXPECT_THROWN(
        c10::ValueError, "must pass the same options",
        embedding(ids, weight, {.max_norm = odd ? 1 : 2}));
    EXPECT_THROWN(
        c10::ValueError, "the weight must have 2 dims; got 1",
        embedding(ids, cut(distinct({6}), chunks(0, {0, 1}))));
    EXPECT_THROWN(
        c10::TypeError, "got undefined",
        embedding(odd ? at::Tensor() : ids, weight));
  });
}

class TableChunks : public ChunkShardingSpec {
 public:
  using ChunkShardingSpec::ChunkShardingSpec;
  ShardingSpecPtr clone() const override {
    return std::make_shared<TableChunks>(*this);
  }
};

TEST(Embedding, UsersMayBringTheirOwn) {
  const Handler own = [](const std::vector<Value>& arguments,
                         const ProcessGroup&) {
    EXPECT_EQ(std::get<c10::IValue>(arguments.back()).toDouble(), 3);
    return std::vector<Value>{std::get<c10::IValue>(arguments[0])};
  };
  custom_sharding_spec_op<TableChunks>("aten::embedding", own);
  custom_sharding_spec_op<TableChunks>("aten::embedding_bag", own);
  run_ranks(2, [] {
    const auto weight = cut(distinct({6, 2}), TableChunks(0, places({0, 1})));
    const at::Tensor ids = at::zeros({2}, i64());
    EXPECT_TRUE(embedding(ids, weight, {.norm_type = 3}).is_same(ids));
    EXPECT_TRUE(embedding_bag(ids, weight, {.norm_type = 3}).is_same(ids));
  });
}

TEST(Embedding, ALogNamesTheCall) {
  run_ranks(4, [] {
    const auto weight = cut(distinct({6, 2}), chunks(0, {0, 1, 2, 3}));
    CommLog log;
    embedding(at::zeros({2}, i64()), weight);
    ASSERT_FALSE(log.entries().empty());
    for (const auto& entry : log.entries()) {
      EXPECT_EQ(entry.cause, "embedding");
    }
  });
}

}  // namespace
}  // namespace tessera::testing
