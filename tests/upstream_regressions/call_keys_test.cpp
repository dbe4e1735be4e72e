// Wrong answers that another implementation of sharded tensors gave, one test
// each: calls taken for one another. Numbers are issues of
// github.com/pytorch/pytorch unless another repository is named; "measured"
// were found by running it.
#include <upstream_regressions/expect_plain.h>

namespace tessera {
namespace {

using testing::close;
using testing::counting;
using testing::cut;
using testing::distinct;
using testing::mesh_of;
using testing::same;

TEST(KnownBugs, NoneIsNotATensorInTheKeyOfACall) {  // 176974
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto x = distinct({4, 4}), b = distinct({4}).mul(0.3).add(0.5);
    const auto t = cut(x, mesh, "S(0)"), c = cut(b, mesh, "R");
    for (int round = 0; round < 3; ++round) {
      EXPECT_TRUE(close(at::clamp(t, c, {}), at::clamp(x, b, {})));
      EXPECT_TRUE(close(at::clamp(t, {}, c), at::clamp(x, {}, b)));
      EXPECT_TRUE(
          close(at::layer_norm(t, {4}, c, {}), at::layer_norm(x, {4}, b, {})));
      EXPECT_TRUE(
          close(at::layer_norm(t, {4}, {}, c), at::layer_norm(x, {4}, {}, b)));
    }
  });
}

TEST(KnownBugs, DtypesAndStridesArePartOfTheKey) {  // 107181
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    for (int round = 0; round < 2; ++round) {
      for (const auto dtype : {at::kDouble, at::kFloat, at::kLong}) {
        for (const bool turned : {false, true}) {
          auto value = counting({4, 6}).to(dtype);
          if (turned) {
            value = value.t().contiguous().t();
          }
          const auto t = cut(value, mesh, "S(0)");
          EXPECT_TRUE(same(t.add(t).clone(), value.add(value)));
          EXPECT_EQ(t.add(t).strides(), value.add(value).strides());
          EXPECT_TRUE(same(t.sum(1), value.sum(1)));
          EXPECT_TRUE(same(t.reshape({24}), value.reshape({24})));
        }
      }
    }
  });
}

}  // namespace
}  // namespace tessera
