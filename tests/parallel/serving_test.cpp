// A Llama that answers word by word: the words are those of the model without
// ranks, the cache is written in place, and what a word sends is what the sums
// of row-parallel layers send.
#include <harness/sharded_test.h>

#include <tuple>

#include "../../examples/llama.h"

namespace tessera::testing {
namespace {

using llama::Caches;
using llama::Llama;
using llama::Sizes;

constexpr int64_t kPrompt = 7;
constexpr int64_t kWords = 9;
constexpr int64_t kRows = 4;

Llama new_llama(const Sizes& sizes) {
  Llama model(sizes);
  model->to(device(), at::kDouble);
  const torch::NoGradGuard guard;
  auto generator = at::detail::createCPUGenerator(7);
  for (const at::Tensor& p : model->parameters()) {
    if (p.dim() == 2) {
      p.copy_(at::randn(p.sizes(), generator, f64()).mul(0.3));
    }
  }
  return model;
}

at::Tensor prompts(const Sizes& sizes) {
  return at::arange(kRows * kPrompt, i64())
      .mul(11)
      .remainder(sizes.vocabulary)
      .view({kRows, kPrompt});
}

Caches plain_caches(const Sizes& sizes) {
  return llama::make_caches(
      sizes, kRows, kPrompt + kWords, [](const std::vector<int64_t>& shape) {
        return at::zeros(shape, f64());
      });
}

Caches caches_on(const DeviceMesh& mesh, const Sizes& sizes) {
  return llama::make_caches(
      sizes, kRows, kPrompt + kWords, [&](const std::vector<int64_t>& shape) {
        return zeros(shape, mesh, {Shard(0), Shard(1)}, at::kDouble);
      });
}

using Case = std::tuple<std::vector<int64_t>, int64_t, int64_t>;

// Mesh, heads, heads of keys and values.
class Serving : public ::testing::TestWithParam<Case> {
 protected:
  Sizes sizes() const {
    return {
        .width = 48,
        .heads = std::get<1>(GetParam()),
        .kv_heads = std::get<2>(GetParam()),
        .layers = 2};
  }
  DeviceMesh mesh() const {
    return mesh_of(std::get<0>(GetParam()), {"dp", "tp"});
  }
  int ranks() const {
    return static_cast<int>(c10::multiply_integers(std::get<0>(GetParam())));
  }
};

TEST_P(Serving, WordsAreThoseOfTheModelWithoutRanks) {
  run_ranks(ranks(), [&] {
    Llama plain = new_llama(sizes());
    Caches alone = plain_caches(sizes());
    const at::Tensor want = generate(plain, prompts(sizes()), alone, kWords);
    // Not one word again and again, which any model says.
    ASSERT_GT(std::get<0>(at::_unique(want)).numel(), 4) << want;

    const DeviceMesh on = mesh();
    Llama model = new_llama(sizes());
    parallelize_module(model, on, plan(sizes()));
    Caches caches = caches_on(on, sizes());
    const at::Tensor got = generate(
        model, distribute_tensor(prompts(sizes()), on, {Shard(0), Replicate()}),
        caches, kWords);
    EXPECT_EQ(caches[0].length, kPrompt + kWords - 1);
    EXPECT_TRUE(at::equal(full_tensor(got), want)) << full_tensor(got) << want;
    EXPECT_TRUE(
        at::allclose(full_tensor(caches[1].keys), alone[1].keys, 1e-10, 1e-10));
    EXPECT_TRUE(at::allclose(
        full_tensor(caches[1].values), alone[1].values, 1e-10, 1e-10));

    // Without a cache: each word from all words before it.
    const torch::NoGradGuard no_grad;
    const at::Tensor words = at::cat({prompts(sizes()), want}, 1);
    const at::Tensor logits = full_tensor(model(distribute_tensor(
        words.narrow(1, 0, words.size(1) - 1), on, {Shard(0), Replicate()})));
    EXPECT_TRUE(
        at::equal(logits.narrow(1, kPrompt - 1, kWords).argmax(-1), want));
  });
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, Serving,
    ::testing::Values(
        Case{{1, 1}, 8, 4}, Case{{1, 2}, 8, 4}, Case{{1, 4}, 8, 4},
        Case{{2, 2}, 8, 2}, Case{{4, 1}, 8, 4}, Case{{1, 3}, 12, 12}));

// 2 (A - A/n) bytes for an all_reduce of A.
int64_t all_reduce_bytes(int64_t bytes, int64_t n) {
  return 2 * (bytes - bytes / n);
}

TEST(ServingBytes, OfAWordAreThoseOfMegatronsSums) {
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{1, 2}, {1, 4}, {2, 2}}) {
    run_ranks(4, [&] {
      const DeviceMesh mesh = mesh_of(shape, {"dp", "tp"});
      if (!mesh.coordinate()) {
        return;
      }
      const Sizes sizes{.width = 48, .heads = 8, .kv_heads = 4, .layers = 3};
      Llama model = new_llama(sizes);
      parallelize_module(model, mesh, plan(sizes));
      Caches caches = caches_on(mesh, sizes);
      const at::Tensor prompt =
          distribute_tensor(prompts(sizes), mesh, {Shard(0), Replicate()});
      at::Tensor word = generate(model, prompt, caches, 1);
      const at::Tensor shard = to_local(caches[0].keys);
      for (int64_t i = 1; i < kWords; ++i) {
        const CommLog log;
        word = generate(model, word, caches, 1);

        const int64_t n = shape[1];
        const int64_t rows = kRows / shape[0];
        const auto item = static_cast<int64_t>(sizeof(double));
        // Two layers per block and the embedding; then the likeliest word: its
        // logit and its index, instead of all logits.
        const int64_t sum = all_reduce_bytes(rows * sizes.width * item, n);
        const int64_t best = all_reduce_bytes(rows * item, n);
        EXPECT_EQ(log.bytes(), (2 * sizes.layers + 1) * sum + 2 * best);
        EXPECT_EQ(log.count(), 2 * sizes.layers + 1 + 2);
        const int64_t logits = rows * sizes.vocabulary * item;
        EXPECT_LT(
            log.bytes(), (2 * sizes.layers + 1) * sum + logits - logits / n);
        for (const CommLogEntry& entry : log.entries()) {
          EXPECT_EQ(entry.kind, "all_reduce") << entry.line();
        }
      }
      // Each rank wrote into the memory that it had.
      EXPECT_EQ(
          to_local(caches[0].keys).const_data_ptr(), shard.const_data_ptr());
      EXPECT_NE(shard.select(2, kPrompt + 1).abs().sum().item<double>(), 0);
    });
  }
}

}  // namespace
}  // namespace tessera::testing
