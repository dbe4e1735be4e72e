// Bags of rows of sharded tables.
#include <sharded_tensor/ops/ops_placements.h>

namespace tessera::testing {
namespace {

using namespace sharded_tensor;  // NOLINT

const std::vector<std::vector<int64_t>> kBagOrders = {
    {0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}};

// One rank's share of a call.
struct Input {
  at::Tensor ids;
  at::Tensor offsets = {};
  at::Tensor weights = {};
};

struct BagCase {
  std::vector<int64_t> ids;  // sizes
  int64_t rows;
  int64_t columns;
  EmbeddingBagOptions options = {};
  std::vector<int64_t> offsets = {};
  bool weighted = false;
};

Input input_of(const BagCase& c, int64_t of_rank) {
  Input input;
  input.ids = at::arange(c10::multiply_integers(c.ids), i64())
                  .mul(7)
                  .add(3 * of_rank + 1)
                  .remainder(c.rows)
                  .reshape(c.ids);
  if (c.ids.size() == 1) {
    input.offsets = at::tensor(c.offsets, at::kLong).to(device());
  }
  if (c.weighted) {
    input.weights = distinct(c.ids) + 0.1 * static_cast<double>(of_rank);
  }
  return input;
}

std::vector<Input> inputs_of(const BagCase& c) {
  std::vector<Input> inputs;
  for (int64_t r = 0; r < 4; ++r) {
    inputs.push_back(input_of(c, r));
  }
  return inputs;
}

// LibTorch's bags of one rank's input, by its own functions.
at::Tensor plain_bags(
    const at::Tensor& w, const Input& input,
    const EmbeddingBagOptions& options) {
  at::Tensor offsets = input.offsets;
  if (input.ids.dim() == 2) {
    offsets = at::arange(input.ids.size(0), i64()) * input.ids.size(1);
  }
  std::optional<at::Tensor> weights;
  if (input.weights.defined()) {
    weights = input.weights.reshape(-1);
  }
  std::optional<int64_t> padding = options.padding_idx;
  return std::get<0>(at::embedding_bag(
      w, input.ids.reshape(-1), offsets, false,
      static_cast<int64_t>(options.mode), false, weights,
      options.include_last_offset, padding));
}

// Results, gradients of the table and of the weights, and the table itself are
// those of one rank that has the whole table and every rank's ids.
void expect_bags(
    const std::vector<int64_t>& table, const ShardingSpec& spec,
    std::vector<Input> inputs, EmbeddingBagOptions options) {
  const at::Tensor w = leaf(distinct(table));
  const auto weight = cut(w, spec);
  const auto me = static_cast<size_t>(rank());
  options.offsets = inputs[me].offsets;
  at::Tensor sample_weights;
  if (inputs[me].weights.defined()) {
    sample_weights = leaf(inputs[me].weights);
    options.per_sample_weights = sample_weights;
    inputs[me].weights = leaf(inputs[me].weights);
  }
  const at::Tensor got = embedding_bag(inputs[me].ids, weight, options);
  if (options.max_norm) {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> ids;
    for (const Input& input : inputs) {
      ids.push_back(input.ids.reshape(-1));
    }
    at::Tensor whole = w.detach();
    const at::Tensor all = at::cat(ids);
    if (all.numel() > 0) {  // LibTorch's CUDA kernel fails without ids
      at::embedding_renorm_(whole, all, *options.max_norm, options.norm_type);
    }
  }
  at::Tensor loss = at::zeros({}, f64());
  for (size_t r = 0; r < inputs.size(); ++r) {
    const at::Tensor bags = plain_bags(w, inputs[r], options);
    loss = loss + (bags * distinct(bags.sizes()) * double(r + 1)).sum();
    if (r == me) {
      EXPECT_TRUE(close(got, bags));
    }
  }
  loss.backward();
  (got * distinct(got.sizes()) * double(me + 1)).sum().backward();
  EXPECT_TRUE(gradients_are(weight, w.grad()));
  EXPECT_TRUE(shards_are_close(detach(weight), w.detach()));
  if (sample_weights.defined()) {
    EXPECT_TRUE(close(sample_weights.grad(), inputs[me].weights.grad()));
  }
}

std::vector<BagCase> bag_cases() {
  std::vector<BagCase> all;
  for (const BagMode mode : {BagMode::kSum, BagMode::kMean, BagMode::kMax}) {
    all.push_back({{6, 5}, 17, 13, {.mode = mode}});
    all.push_back({{11}, 21, 11, {.mode = mode}, {0, 5, 8}});
    all.push_back(
        {{11},
         21,
         11,
         {.mode = mode, .include_last_offset = true},
         {0, 3, 3, 11}});
    all.push_back({{5, 4}, 16, 14, {.mode = mode, .padding_idx = 8}});
    all.push_back(
        {{9}, 12, 9, {.mode = mode, .padding_idx = 1}, {0, 2, 4, 4, 7}});
    all.push_back({{4, 3}, 18, 15, {.mode = mode, .max_norm = 1.1}});
    all.push_back(
        {{8},
         15,
         10,
         {.mode = mode, .max_norm = 0.6, .norm_type = 1},
         {0, 1, 6}});
  }
  all.push_back({{5, 5}, 13, 6, {.mode = BagMode::kSum}, {}, true});
  all.push_back({{7}, 13, 6, {.mode = BagMode::kSum}, {0, 4}, true});
  return all;
}

void expect_cases(int64_t dim) {
  ASSERT_EQ(bag_cases().size(), 23);
  run_ranks(4, [&] {
    for (const auto& order : kBagOrders) {
      for (const BagCase& c : bag_cases()) {
        SCOPED_TRACE(
            ::testing::PrintToString(c.ids) + " of " + std::to_string(c.rows) +
            " x " + std::to_string(c.columns) + ", mode " +
            std::to_string(static_cast<int>(c.options.mode)));
        expect_bags(
            {c.rows, c.columns}, chunks(dim, order), inputs_of(c), c.options);
      }
    }
  });
}

TEST(TestShardedEmbeddingBag, test_sharded_embedding_bag_colwise) {
  expect_cases(1);
}

TEST(TestShardedEmbeddingBag, test_sharded_embedding_bag_rowwise) {
  expect_cases(0);
}

TEST(DefectD21, TheMeanOfABagLeavesPaddingOut) {
  run_ranks(4, [] {
    const auto weight = cut(counting({4, 2}), chunks(0, {0, 1, 2, 3}));
    const at::Tensor got = embedding_bag(
        at::tensor({0, 1, 3, 0}, i64()), weight,
        {.offsets = at::tensor({0, 3}, i64()), .padding_idx = 0});
    // Rows 1 and 3 of [0 1], [2 3], [4 5], [6 7]; then none at all.
    EXPECT_TRUE(
        same(got, at::tensor({4.0, 5.0, 0.0, 0.0}).to(f64()).view({2, 2})));
  });
}

TEST(DefectD30, IdsDoNotTravelAsFloats) {
  run_ranks(2, [] {
    // 2^24 + 1 is no f32. A table of one column that wide is 64 MiB.
    const int64_t big = (int64_t{1} << 24) + 1;
    const auto weight = zeros(chunks(0, {0, 1}), {big + 1, 1});
    for (const auto& shard : weight.local_shards()) {
      const int64_t begin = shard.metadata.shard_offsets[0];
      if (begin <= big && big < begin + shard.metadata.shard_sizes[0]) {
        shard.tensor[big - begin] = 5;
      }
    }
    const at::Tensor got = embedding_bag(
        at::full({1, 1}, big, i64()), weight,
        {.mode = BagMode::kSum,
         .per_sample_weights = at::full({1, 1}, 2.0, f32())});
    EXPECT_TRUE(same(got, at::full({1, 1}, 10.0, f32())));
  });
}

TEST(DefectD30, ThereMayBeMoreBagsThanIds) {
  run_ranks(4, [] {
    for (const BagMode mode : {BagMode::kSum, BagMode::kMean, BagMode::kMax}) {
      for (const int64_t dim : {0, 1}) {
        BagCase c{{2}, 6, 5, {.mode = mode}, {0, 0, 1, 2, 2, 2}};
        expect_bags({6, 5}, chunks(dim, {0, 1, 2, 3}), inputs_of(c), c.options);
      }
    }
  });
}

TEST(EmbeddingBag, RanksMayHaveOtherNumbersOfIdsAndBags) {
  run_ranks(4, [] {
    for (const Cut& how : mesh_cuts()) {
      for (const BagMode mode :
           {BagMode::kSum, BagMode::kMean, BagMode::kMax}) {
        SCOPED_TRACE(how.name);
        const auto longs = [](std::vector<int64_t> values) {
          return at::tensor(values, at::kLong).to(device());
        };
        // No ids and an empty bag; no ids and no bags; rows; some of each.
        expect_bags(
            {6, 6}, *how.spec,
            {{at::empty({0}, i64()), longs({0})},
             {at::empty({0}, i64()), at::empty({0}, i64())},
             {longs({1, 2, 3, 5, 0, 1}).view({2, 3})},
             {longs({4, 4, 2, 0}).to(at::kInt), longs({0, 3, 4})}},
            {.mode = mode});
      }
    }
  });
}

TEST(EmbeddingBag, IdsWithoutABagJoinNoOther) {
  run_ranks(2, [] {
    const auto weight = cut(counting({4, 1}), chunks(0, {0, 1}));
    const bool none = rank() == 1;
    const at::Tensor got = embedding_bag(
        at::tensor({1, 2}, i64()), weight,
        {.mode = BagMode::kSum,
         .offsets = none ? at::empty({0}, i64()) : at::zeros({1}, i64())});
    EXPECT_TRUE(same(
        got, none ? at::empty({0, 1}, f64()) : at::full({1, 1}, 3.0, f64())));
  });
}

TEST(EmbeddingBag, NoRankNeedHaveIds) {
  run_ranks(4, [] {
    for (const BagMode mode : {BagMode::kSum, BagMode::kMean, BagMode::kMax}) {
      const BagCase c{{0}, 6, 5, {.mode = mode, .max_norm = 1}, {0, 0}};
      expect_bags({6, 5}, chunks(0, {0, 1, 2, 3}), inputs_of(c), c.options);
    }
  });
}

TEST(EmbeddingBag, AnErrorOnOneRankReachesAll) {
  run_ranks(4, [] {
    const auto weight = cut(distinct({6, 2}), chunks(0, {0, 1, 2, 3}));
    const bool odd = rank() == 2;
    const at::Tensor flat = at::zeros({4}, i64());
    const at::Tensor square = at::zeros({2, 2}, i64());
    const at::Tensor starts = at::tensor({0, 2}, i64());
    EXPECT_THROWN(
        c10::ValueError,
        "on rank 2: embedding_bag, rank 2: ids must have 1 or "
        "2 dims; got 3",
        embedding_bag(odd ? square.unsqueeze(0) : square, weight));
    EXPECT_THROWN(
        c10::ValueError, "ids of 2 dims have a bag per row and no offsets",
        embedding_bag(square, weight, {.offsets = starts}));
    EXPECT_THROWN(
        c10::ValueError, "ids of 1 dim need offsets",
        embedding_bag(flat, weight));
    EXPECT_THROWN(
        c10::ValueError, "include_last_offset goes with offsets",
        embedding_bag(square, weight, {.include_last_offset = true}));
    EXPECT_THROWN(
        c10::ValueError, "the last offset must be the number of ids, 4; got 2",
        embedding_bag(
            flat, weight, {.offsets = starts, .include_last_offset = true}));
    EXPECT_THROWN(
        c10::ValueError, "offsets must start at 0 and not decrease",
        embedding_bag(flat, weight, {.offsets = starts + 1}));
    EXPECT_THROWN(
        c10::ValueError, "up to the number of ids, 4; got 5 at 1",
        embedding_bag(flat, weight, {.offsets = at::tensor({0, 5}, i64())}));
    EXPECT_THROWN(
        c10::TypeError, "the offsets must be integers",
        embedding_bag(flat, weight, {.offsets = starts.to(at::kFloat)}));
    EXPECT_THROWN(
        c10::ValueError, "the offsets must have 1 dim; got 2",
        embedding_bag(flat, weight, {.offsets = starts.view({1, 2})}));
    const at::Tensor ones = at::ones({2, 2}, f64());
    EXPECT_THROWN(
        c10::ValueError, "per_sample_weights go with mode kSum only",
        embedding_bag(
            square, weight,
            {.mode = BagMode::kMax, .per_sample_weights = ones}));
    EXPECT_THROWN(
        c10::ValueError, "there must be one weight per id; got sizes [2]",
        embedding_bag(
            square, weight,
            {.mode = BagMode::kSum, .per_sample_weights = ones[0]}));
    EXPECT_THROWN(
        c10::TypeError, "must have the dtype of the table",
        embedding_bag(
            square, weight,
            {.mode = BagMode::kSum,
             .per_sample_weights = ones.to(at::kFloat)}));
    EXPECT_THROWN(
        c10::ValueError, "must pass the same mode",
        embedding_bag(
            square, weight, {.mode = odd ? BagMode::kSum : BagMode::kMax}));
    EXPECT_THROWN(
        c10::ValueError, "must pass the same per_sample_weights",
        embedding_bag(
            square, weight,
            {.mode = BagMode::kSum,
             .per_sample_weights = odd ? leaf(ones) : ones}));
    EXPECT_THROWN(
        c10::ValueError, "max_norm must be positive; got -1",
        embedding_bag(square, weight, {.max_norm = -1}));
  });
}

}  // namespace
}  // namespace tessera::testing
