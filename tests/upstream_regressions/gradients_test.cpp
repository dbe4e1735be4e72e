// Wrong answers that another implementation of sharded tensors gave, one test
// each: gradients. Numbers are issues of github.com/pytorch/pytorch unless
// another repository is named; "measured" were found by running it.
#include <upstream_regressions/expect_plain.h>

namespace tessera {
namespace {

using testing::close;
using testing::cut;
using testing::distinct;
using testing::leaf;
using testing::mesh_of;

TEST(KnownBugs, ARoundTripThroughLocalKeepsTheGradient) {
  // 172932, 173454, 175867
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto value = distinct({4, 3});
    for (const char* text : {"P(sum)", "S(0)", "R"}) {
      SCOPED_TRACE(text);
      auto t = leaf(value, mesh, text);
      const auto again = from_local(
          to_local(t), mesh, placements(t), {.shape = t.sizes().vec()});
      (again * again).sum().backward();
      EXPECT_TRUE(close(t.grad(), value * 2));
    }
  });
}

TEST(KnownBugs, GradientsOfReplicatedInputsCountOnce) {
  // torchtitan 2416, NeMo-RL 3788
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto x = leaf(distinct({4, 3}), mesh, "R");
    auto p = distinct({4, 3}).requires_grad_();
    const auto w = cut(distinct({3, 6}), mesh, "S(1)");
    x.mm(w).square().sum().backward();
    p.mm(distinct({3, 6})).square().sum().backward();
    EXPECT_EQ(to_string(placements(x.grad())), "R");
    EXPECT_TRUE(close(x.grad(), p.grad()));
    EXPECT_NEAR(
        x.grad().norm().item<double>(), p.grad().norm().item<double>(), 1e-9);
  });
}

TEST(KnownBugs, ARestridedGradientStaysASum) {  // 180486
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    // The gradient of w arrives transposed and is a sum over ranks: one
    // reduction, by the leaf, and none before.
    auto w = leaf(distinct({3, 4}), mesh, "R");
    const auto x = cut(distinct({6, 4}), mesh, "S(0)");
    const auto y = x.mm(w.t()).square().sum();
    const CommLog log;
    y.backward();
    EXPECT_EQ(log.count(), 1) << log;
  });
}

}  // namespace
}  // namespace tessera
