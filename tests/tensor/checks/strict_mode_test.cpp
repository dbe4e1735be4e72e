// StrictMode: what it forbids, what it lets pass, and the count of fallbacks.
#include <c10/util/Exception.h>
#include <harness/sharded_test.h>

namespace tessera {
namespace {

using testing::counting;
using testing::error_of;
using testing::f32;
using testing::f64;
using testing::i64;
using testing::mesh_of;
using testing::same;

// Keeps the warnings of this thread.
class Warnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    texts.push_back(warning.msg());
  }
  std::vector<std::string> texts;
};

TEST(StrictMode, ForbidsImpliedCommunicationBeforeAnythingMoves) {
  run_ranks(3, [&] {
    // Rank 2 is outside the mesh and hears of it too.
    const auto mesh = mesh_of({2}, {"tp"});
    auto a = distribute_tensor(counting({5, 3}, f32()), mesh, {Shard(0)});
    auto b = distribute_tensor(counting({3, 2}, f32()), mesh, {Shard(1)});
    auto c = distribute_tensor(counting({5, 3}, f32()), mesh, {Shard(1)});
    CommLog log;
    const StrictMode strict;
    EXPECT_EQ(
        error_of([&] { return at::mm(a, b); }),
        c10::str(
            "aten::mm(f32[5, 3] S(0), f32[3, 2] S(1)) on mesh(tp=2), rank ",
            rank(),
            ": StrictMode forbids implied communication; it would cost 12 "
            "bytes per rank (mat2 all_gather tp: S(1) -> R, 12 bytes); "
            "redistribute() the "
            "arguments first, or let StrictMode({.communication = false}) "
            "allow it here"));
    EXPECT_ERROR("StrictMode forbids implied", a.copy_(c));
    EXPECT_ERROR("StrictMode forbids implied", a.sum().item<double>());
    EXPECT_EQ(log.count(), 0);
  });
}

TEST(StrictMode, LetsPassWhatMovesNothing) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto a = distribute_tensor(counting({4, 3}), mesh, {Shard(0)});
    auto r = distribute_tensor(counting({3, 3}), mesh, {Replicate()});
    const StrictMode strict({.fallbacks = true});
    CommLog log;
    EXPECT_EQ(spec(a * a + 1).placements(), Placements{Shard(0)});
    EXPECT_TRUE(same(at::mm(r, r), counting({3, 3}).mm(counting({3, 3}))));
    a.copy_(counting({4, 3}));
    a.mul_(2);
    EXPECT_TRUE(a.detach().is_same_size(a));
    log.clear();
    EXPECT_EQ(to_local(a).size(0), 2);
    EXPECT_EQ(log.count(), 0);
  });
}

TEST(StrictMode, LetsPassWhatIsAskedForAndItsGradients) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const StrictMode strict;
    auto a = distribute_tensor(
        counting({4, 4}).requires_grad_(true), mesh, {Shard(0)});
    auto m = counting({4, 4});
    make_dtensor_(m, mesh, {Shard(1)});
    auto moved = redistribute(a * 1, {Shard(1)});
    full_tensor(moved * m).sum().backward();
    EXPECT_TRUE(same(a.grad(), counting({4, 4})));
    auto local = counting({2, 4}).requires_grad_(true);
    auto from = from_local(local, mesh, {Replicate()}, {.run_check = true});
    to_local(redistribute(from, {Shard(0)})).sum().backward();
    EXPECT_TRUE(same(local.grad(), at::ones({2, 4}, f64())));
  });
}

TEST(StrictMode, ForbidsFallbacksWhereAsked) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto a = distribute_tensor(counting({4, 4}), mesh, {Shard(0)});
    auto b = distribute_tensor(counting({4, 4}), mesh, {Shard(1)});
    const StrictMode strict({.communication = false, .fallbacks = true});
    EXPECT_ERROR(
        "StrictMode forbids fallbacks, and this call runs on whole values: no "
        "sharding rule; it would cost",
        a.nonzero());
    EXPECT_EQ(spec(a + b).placements(), Placements{Shard(0)}) << "by a rule";
    a.copy_(b);  // moves, but needs no whole value
    EXPECT_EQ(spec(a + a).placements(), Placements{Shard(0)});
  });
}

TEST(StrictMode, ForbidsThatAStaleViewIsGatheredAgain) {
  run_ranks(2, [&] {
    auto a = distribute_tensor(counting({4, 4}), mesh_of({2}), {Shard(0)});
    const auto view = a.unfold(0, 2, 1);
    const StrictMode strict;
    EXPECT_TRUE(same(view + 1, counting({4, 4}).unfold(0, 2, 1) + 1));
    a.add_(1);
    EXPECT_ERROR("StrictMode forbids implied communication", view + 1);
    EXPECT_TRUE(same(full_tensor(view), counting({4, 4}).unfold(0, 2, 1) + 1));
  });
}

TEST(StrictMode, ForbidsThatValuesAreReadFromShards) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto x = distribute_tensor(counting({4, 4}), mesh, {Replicate()});
    auto rows = distribute_tensor(at::tensor({1, 3}, i64()), mesh, {Shard(0)});
    {
      const StrictMode strict;
      EXPECT_ERROR(
          "tensor_indices_or_sections all_gather 0: S(0) -> R, 8 bytes",
          at::tensor_split(x, rows, 0));
    }
    CommLog log;
    EXPECT_EQ(at::tensor_split(x, rows, 0).size(), 3U);
    EXPECT_EQ(
        log.entries().at(0).cause,
        "aten::tensor_split.tensor_indices_or_sections");
  });
}

TEST(StrictMode, ForbidsThatALeafsGradientMovesUnlessTold) {
  run_ranks(2, [&] {
    auto w = distribute_tensor(
        counting({3}).requires_grad_(true), mesh_of({2}), {Replicate()});
    const auto loss = [&] {
      return to_local(w, {.grad_placements = Placements{Partial()}}).sum();
    };
    const StrictMode strict;
    EXPECT_ERROR(
        "gradient of a leaf, f64[3] R @ mesh(2), rank", loss().backward());
    EXPECT_ERROR(
        "got P(sum); it would cost 32 bytes per rank (all_reduce 0: P(sum) -> "
        "R, 32 bytes); StrictMode({.leaf_gradients = false})",
        loss().backward());
    w.mutable_grad().reset();
    const StrictMode gap({.leaf_gradients = false});
    CommLog log;
    loss().backward();
    EXPECT_TRUE(same(w.grad(), at::full({3}, 2, f64())));
    EXPECT_EQ(
        to_string(log.entries().at(0)),
        "all_reduce 0: P(sum) -> R, 32 bytes; gradient of a leaf in backward, "
        "implied");
  });
}

TEST(StrictMode, TheInnermostCounts) {
  run_ranks(2, [&] {
    auto a = distribute_tensor(counting({4, 4}), mesh_of({2}), {Shard(0)});
    const StrictMode outer;
    {
      const StrictMode gap({.communication = false});
      EXPECT_TRUE(same(a.sum().exp(), counting({4, 4}).sum().exp()));
      {
        const StrictMode inner;
        EXPECT_ERROR("StrictMode", a.sum().exp());
      }
      EXPECT_TRUE(same(a.sum().exp(), counting({4, 4}).sum().exp()));
    }
    EXPECT_ERROR("StrictMode", a.sum().exp());
  });
}

TEST(StrictMode, MayWarnInstead) {
  run_ranks(2, [&] {
    auto a = distribute_tensor(counting({4, 4}), mesh_of({2}), {Shard(0)});
    Warnings warnings;
    const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
    const StrictMode strict({.warn = true});
    EXPECT_TRUE(same(a.prod().exp(), counting({4, 4}).prod().exp()));
    ASSERT_FALSE(warnings.texts.empty());
    EXPECT_PRED_FORMAT2(
        ::testing::IsSubstring, "StrictMode forbids implied communication",
        warnings.texts.front());
  });
}

int64_t fallbacks_of(const std::string& op) {
  for (const FallbackCount& counted : fallback_counts()) {
    if (counted.op == op) {
      return counted.count;
    }
  }
  return 0;
}

TEST(FallbackCounts, CountsEachAndWarnsOnce) {
  std::atomic<int> warned{0};
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto a = distribute_tensor(counting({4, 4}), mesh, {Shard(0)});
    auto r = distribute_tensor(counting({4, 4}), mesh, {Replicate()});
    Warnings warnings;
    const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
    EXPECT_TRUE(same(r.nonzero(), counting({4, 4}).nonzero()));
    EXPECT_EQ(fallbacks_of("aten::nonzero"), 0) << "nothing moved";
    init().communicator().barrier();
    for (int i = 0; i < 3; ++i) {
      static_cast<void>(a.nonzero());
    }
    init().communicator().barrier();
    EXPECT_EQ(fallbacks_of("aten::nonzero"), 6) << "3 on each rank";
    for (const std::string& text : warnings.texts) {
      warned += text.find("aten::nonzero(") != text.npos ? 1 : 0;
    }
  });
  EXPECT_EQ(warned, 1);
}

}  // namespace
}  // namespace tessera
