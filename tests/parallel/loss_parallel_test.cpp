// LossParallel: values and gradients of cross entropy over cut classes, and
// what a rank holds meanwhile.
#include <ATen/autocast_mode.h>
#include <harness/counting_allocator.h>

#include "gpt_training.h"

namespace tessera {
namespace {

using testing::close;
using testing::CountingAllocator;
using testing::distinct;
using testing::i64;
using testing::mesh_of;
using testing::WithCounts;

constexpr int64_t kRows = 6;
constexpr int64_t kClasses = 7;

at::Tensor logits() {
  return distinct({kRows, kClasses}).mul(3);
}
at::Tensor target() {
  return at::tensor({0, 6, 3, -100, 5, 2}, i64());
}

struct LossCase {
  bool weighted;
  int64_t reduction;
};

// The loss of every row weighted by hand, so that gradients differ by row.
at::Tensor total(const at::Tensor& loss) {
  return loss.dim() == 0 ? loss * 1.5 : (loss * loss).sum();
}

TEST(LossParallel, GivesTheValuesAndGradientsOfOneDevice) {
  for (const bool weighted : {false, true}) {
    for (const int64_t reduction : {0, 1, 2}) {
      const at::Tensor plain = logits().requires_grad_();
      const auto weight =
          weighted ? std::optional(distinct({kClasses}).abs()) : std::nullopt;
      const at::Tensor want =
          at::cross_entropy_loss(plain, target(), weight, reduction);
      total(want).backward();
      run_ranks(4, [&] {
        for (const char* where : {"R S(1)", "S(0) S(1)", "S(1) S(1)"}) {
          SCOPED_TRACE(where);
          const auto mesh = mesh_of({2, 2}, {"dp", "tp"});
          const Placements cut = parse_placements(where);
          Placements rows = cut;
          for (Placement& p : rows) {
            p = p.is_shard(1) ? Replicate() : p;
          }
          const at::Tensor x =
              distribute_tensor(logits(), mesh, cut).requires_grad_();
          const auto t = distribute_tensor(target(), mesh, rows);
          std::optional<at::Tensor> w;
          if (weighted) {
            w = distribute_tensor(*weight, mesh, {Replicate(), Replicate()});
          }
          at::Tensor loss;
          {
            const LossParallel guard;
            loss = at::cross_entropy_loss(x, t, w, reduction);
          }
          EXPECT_TRUE(close(loss, want));
          total(loss).backward();
          EXPECT_TRUE(close(x.grad(), plain.grad()));
        }
      });
    }
  }
}

TEST(LossParallel, CommunicatesNothingInBackward) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    const auto x =
        distribute_tensor(logits(), mesh, {Shard(1)}).requires_grad_();
    const auto t = distribute_tensor(target(), mesh, {Replicate()});
    const LossParallel guard;
    const CommLog forward;
    const at::Tensor loss = at::cross_entropy_loss(x, t);
    // The largest logit, the sum of exponentials, and the loss with its weight:
    // 8 bytes per row, twice, and 16; an all_reduce on two ranks moves each
    // byte once.
    EXPECT_EQ(forward.count(), 3);
    EXPECT_EQ(forward.bytes(), 2 * 8 * kRows + 16);
    const CommLog backward;
    loss.backward();
    EXPECT_EQ(backward.count(), 0) << backward;
  });
}

TEST(LossParallel, OfIgnoredTargetsOnlyHasNoGradient) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    const auto x =
        distribute_tensor(logits(), mesh, {Shard(1)}).requires_grad_();
    const auto t =
        distribute_tensor(at::full({kRows}, -100, i64()), mesh, {Replicate()});
    const LossParallel guard;
    const auto loss = at::cross_entropy_loss(x, t);
    EXPECT_TRUE(std::isnan(full_tensor(loss.detach()).item<double>()));
    loss.backward();
    EXPECT_TRUE(testing::same(x.grad(), at::zeros_like(logits())));
  });
}

TEST(LossParallel, OfHalvesHasTheGradientOfTheWholePath) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    const at::Tensor sure =
        (at::one_hot(target().clamp_min(0), kClasses).to(at::kDouble) * 7)
            .to(at::kBFloat16);
    const auto t = distribute_tensor(target(), mesh, {Replicate()});
    std::vector<at::Tensor> gradients;
    for (const bool guarded : {false, true}) {
      const auto x = distribute_tensor(sure, mesh, {Shard(1)}).requires_grad_();
      std::optional<LossParallel> guard;
      if (guarded) {
        guard.emplace();
      }
      at::cross_entropy_loss(x, t).backward();
      gradients.push_back(testing::plain(x.grad()).to(at::kDouble));
    }
    EXPECT_TRUE(close(gradients[1], gradients[0], 1e-2));
    EXPECT_LT(gradients[1][1][6].item<double>(), 0);
  });
}

TEST(LossParallel, IsComputedInF32UnderAutocast) {
  if (testing::device() != at::kCPU) {
    GTEST_SKIP() << "sets autocast for the CPU";
  }
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    const auto x =
        distribute_tensor(logits().to(at::kBFloat16), mesh, {Shard(1)});
    const auto t = distribute_tensor(target(), mesh, {Replicate()});
    const LossParallel guard;
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const auto loss = at::cross_entropy_loss(x, t);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    EXPECT_EQ(loss.scalar_type(), at::kFloat);
  });
}

TEST(LossParallel, ServesOtherFormsWithoutAGather) {
  const at::Tensor plain = logits();
  const auto smoothed = [](const at::Tensor& x, const at::Tensor& t) {
    return at::cross_entropy_loss(x, t, {}, 1, -100, 0.1);
  };
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    const auto x = distribute_tensor(plain, mesh, {Shard(1)});
    const auto t = distribute_tensor(target(), mesh, {Replicate()});
    const LossParallel guard;
    const CommLog log;
    EXPECT_TRUE(close(smoothed(x, t), smoothed(plain, target())));
    for (const CommLogEntry& entry : log.entries()) {
      EXPECT_EQ(entry.kind, "all_reduce");
    }
  });
}

TEST(LossParallel, RefusesWholeLogitsAndSecondDerivatives) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    const auto t = distribute_tensor(target(), mesh, {Replicate()});
    const LossParallel guard;
    EXPECT_ERROR(
        "must be cut along their classes, dim 1; got R",
        at::cross_entropy_loss(
            distribute_tensor(logits(), mesh, {Replicate()}), t));
    const auto x =
        distribute_tensor(logits(), mesh, {Shard(1)}).requires_grad_();
    const auto loss = at::cross_entropy_loss(x, t);
    EXPECT_ERROR(
        "one derivative",
        torch::autograd::grad({loss}, {x}, {}, true, /*create_graph=*/true));
    EXPECT_TRUE(at::cross_entropy_loss(logits(), target()).defined());
  });
}

// Returns what forward and backward of the last layer and the loss held beyond
// what was there before.
struct Held {
  int64_t peak = 0;
  int64_t largest = 0;
};
Held memory_of_loss(int64_t rows, int64_t classes, bool cut) {
  constexpr int64_t kWidth = 4;
  const auto mesh = mesh_of({4}, {"tp"});
  torch::nn::Linear head(torch::nn::LinearOptions(kWidth, classes).bias(false));
  head->to(at::kDouble);
  const ColwiseParallel gathered{.output_layouts = Replicate()};
  parallelize_module(head, mesh, {{"", cut ? ColwiseParallel() : gathered}});
  const auto x =
      distribute_tensor(distinct({rows, kWidth}), mesh, {Replicate()});
  const auto t = distribute_tensor(
      at::arange(rows, i64()).remainder(classes), mesh, {Replicate()});
  CountingAllocator::Count& count = CountingAllocator::of_rank();
  const int64_t before = count.live;
  count.peak = before;
  count.largest = 0;
  std::optional<LossParallel> guard;
  if (cut) {
    guard.emplace();
  }
  const at::Tensor loss = at::cross_entropy_loss(head(x), t);
  loss.backward();
  return {count.peak - before, count.largest};
}

TEST(LossParallel, NoRankEverHoldsTheFullLogits) {
  if (testing::device() != at::kCPU) {
    GTEST_SKIP() << "counts the memory of the CPU";
  }
  constexpr int64_t rows = 64, classes = 4096;
  const int64_t full = rows * classes * 8;
  const WithCounts counts;
  run_ranks(4, [&] {
    const Held cut = memory_of_loss(rows, classes, true);
    EXPECT_LE(cut.largest, full / 4);
    const Held gathered = memory_of_loss(rows, classes, false);
    EXPECT_GE(gathered.largest, full);
    EXPECT_LT(cut.peak, full);
    if (rank() == 0) {
      std::cout << "of the full logits: largest tensor "
                << static_cast<double>(cut.largest) / full << ", peak "
                << static_cast<double>(cut.peak) / full << "; gathered "
                << static_cast<double>(gathered.largest) / full << ", "
                << static_cast<double>(gathered.peak) / full << "\n";
    }
  });
}

}  // namespace
}  // namespace tessera
