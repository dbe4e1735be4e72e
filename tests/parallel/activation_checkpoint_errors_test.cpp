// activation_checkpoint(): what it refuses.
#include "recomputed.h"

namespace tessera {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

TEST(ActivationCheckpointErrors, ResultsThatNeedNoRegion) {
  const auto x = distinct({4}).requires_grad_();
  EXPECT_ERROR("fn is empty", activation_checkpoint(CheckpointFn(), {x}));
  EXPECT_ERROR(
      "result 0 of fn is its input 0 itself",
      in_region([](at::Tensor h) { return h; }, x));
  EXPECT_ERROR(
      "no result of fn requires a gradient",
      in_region([](at::Tensor h) { return h.detach().sin(); }, x));
}

// Each rank finds its own error, before it communicates.
TEST(ActivationCheckpointErrors, AFunctionThatDoesSomethingElse) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto x = leaf(distinct({4, 4}), mesh, {Shard(0)});
    int runs = 0;
    const auto error = [&](const std::function<at::Tensor(at::Tensor)>& fn) {
      runs = 0;
      const auto y = in_region(
          [&](at::Tensor h) {
            ++runs;
            return fn(std::move(h));
          },
          x);
      return error_of([&] { y.sum().backward(); });
    };
    const auto expect = [](const std::string& text, const std::string& got) {
      EXPECT_PRED_FORMAT2(::testing::IsSubstring, text, got);
    };
    expect(
        "it drew 0 times before this tensor in the forward, and 1 times",
        error([&](at::Tensor h) {
          if (runs == 2) {
            at::rand_like(h);
          }
          return torch::sin(torch::sin(h));
        }));
    expect(
        "it was f64[4, 4] S(0) @ mesh(2) in the forward, and is f64[3, 4]",
        error([&](at::Tensor h) {
          return torch::sin(torch::sin(runs == 2 ? h.narrow(0, 0, 3) : h));
        }));
    expect(
        "saved tensor 2 of 2 (the result of ToCopyBackward0)",
        error([&](at::Tensor h) {
          h = torch::sin(h);
          return torch::sin(runs == 2 ? h.to(at::kFloat) : h);
        }));
    expect(
        "autograd saved 2 in the forward, and 1 in the recomputation",
        error([&](at::Tensor h) {
          return runs == 2 ? torch::sin(h) : torch::sin(torch::sin(h));
        }));
    expect(
        "move 1 was f64[4, 4] S(0) @ mesh(2) to f64[4, 4] R @ mesh(2) in "
        "the forward, and is f64[4, 4] S(0) @ mesh(2) to f64[4, 4] S(1)",
        error([&](at::Tensor h) {
          return torch::sin(
                     redistribute(h, {runs == 2 ? Shard(1) : Replicate()}))
              .sin();
        }));
  });
}

TEST(ActivationCheckpointErrors, TensorsThatChangedMeanwhile) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto x = leaf(distinct({4, 4}), mesh, {Shard(0)});
    const auto w = leaf(distinct({4, 4}), mesh, {Replicate()});
    const auto outside = ones({4, 4}, mesh, {Shard(0)});
    const auto change = [](const at::Tensor& t) {
      const torch::NoGradGuard guard;
      t.add_(1);
    };
    auto y = in_region([&](at::Tensor h) { return h.sin().mm(w); }, x);
    change(w);
    EXPECT_ERROR("a parameter that fn uses was changed", y.sum().backward());
    y = in_region([&](at::Tensor h) { return h.sin() * outside; }, x);
    change(outside);
    EXPECT_ERROR("was changed in place after the forward", y.sum().backward());
    y = in_region([&](at::Tensor h) { return h.sin().sin(); }, x);
    change(x);
    EXPECT_ERROR("modified by an inplace operation", y.sum().backward());
  });
}

TEST(ActivationCheckpointErrors, ErrorsOfFnPassAndTheNextPassWorks) {
  const auto x = distinct({4}).requires_grad_();
  bool fails = false;
  const auto fn = [&](at::Tensor h) {
    TORCH_CHECK(!fails, "fn failed");
    return h.sin().sin();
  };
  const auto y = in_region(fn, x);
  fails = true;
  EXPECT_ERROR("fn failed", torch::autograd::grad({y.sum()}, {x}, {}, true));
  EXPECT_ERROR("fn failed", in_region(fn, x));
  fails = false;
  EXPECT_TRUE(same(
      torch::autograd::grad({y.sum()}, {x})[0],
      torch::autograd::grad({fn(x).sum()}, {x})[0]));
}

TEST(ActivationCheckpointErrors, WarnsOfAGeneratorThatThreadsShare) {
  struct Collected final : c10::WarningHandler {
    void process(const c10::Warning& warning) override {
      text += warning.msg();
    }
    std::string text;
  };
  c10::WarningUtils::set_warnAlways(true);
  run_ranks(2, [] {
    const auto x = distinct({4}).requires_grad_();
    const auto warning_of = [&](const std::function<void()>& body) {
      Collected collected;
      c10::WarningUtils::WarningHandlerGuard guard(&collected);
      body();
      return collected.text;
    };
    const auto drops = [](at::Tensor h) {
      return torch::dropout(h, 0.5, true).sin();
    };
    const auto text = warning_of([&] { in_region(drops, x); });
    EXPECT_EQ(
        text.find("which ranks that are threads share") != std::string::npos,
        init().engine() == "threads");
    init().communicator().barrier();
    manual_seed(1);
    const auto quiet = warning_of([&] {
      const ReplicatedRandom equal;
      in_region(drops, x).sum().backward();
    });
    EXPECT_EQ(quiet, "");
  });
  c10::WarningUtils::set_warnAlways(false);
}

TEST(ActivationCheckpointErrors, ChecksCanBeOff) {
  const auto x = distinct({4}).requires_grad_();
  int runs = 0;
  const auto y = in_region(
      [&](at::Tensor h) {
        return (++runs == 2 ? h.to(at::kFloat) : h).sin().sin().to(at::kDouble);
      },
      x, {.check = false});
  EXPECT_EQ(error_of([&] { y.sum().backward(); }), "");
}

}  // namespace
}  // namespace tessera
