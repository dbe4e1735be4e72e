// The verdict on the demo's two loss curves.
#include "../../examples/demo/demo_verdict.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace tessera::cli {
namespace {

using Curve = std::vector<double>;

const Curve kPlain = {3.5, 2.25, 1.0625};
const DemoAccuracy kF64 = accuracy_of("f64");
const DemoAccuracy kF32 = accuracy_of("f32");
const DemoAccuracy kBf16 = accuracy_of("bf16");

/// Returns the curve with one loss made larger by a part of itself.
Curve with_planted(size_t step, double part) {
  Curve curve = kPlain;
  curve[step] *= 1 + part;
  return curve;
}

TEST(CompareCurves, EqualCurvesDifferByNothing) {
  const DemoVerdict verdict = compare_curves(kPlain, kPlain, kF64);
  EXPECT_EQ(verdict.difference, 0);
  EXPECT_TRUE(verdict.equal());
}

TEST(CompareCurves, APlantedDifferenceIsNoticedAtAnyStep) {
  for (size_t step = 0; step < kPlain.size(); ++step) {
    const Curve planted = with_planted(step, 2e-10);
    for (const auto& [a, b] :
         {std::pair(kPlain, planted), std::pair(planted, kPlain)}) {
      const DemoVerdict verdict = compare_curves(a, b, kF64);
      EXPECT_NEAR(verdict.difference, 2e-10, 1e-15) << step;
      EXPECT_FALSE(verdict.equal()) << step;
    }
  }
}

TEST(CompareCurves, F64AllowsLessThanF32) {
  EXPECT_TRUE(compare_curves(kPlain, with_planted(1, 5e-11), kF64).equal());
  EXPECT_FALSE(compare_curves(kPlain, with_planted(1, 5e-10), kF64).equal());
  EXPECT_TRUE(compare_curves(kPlain, with_planted(1, 5e-5), kF32).equal());
  EXPECT_FALSE(compare_curves(kPlain, with_planted(1, 5e-4), kF32).equal());
}

TEST(CompareCurves, Bf16AllowsItsRounding) {
  EXPECT_TRUE(compare_curves(kPlain, with_planted(1, 3e-3), kBf16).equal());
  EXPECT_FALSE(compare_curves(kPlain, with_planted(1, 5e-3), kBf16).equal());
  const Curve many(101, 2.0);
  Curve late = many;
  late.back() = 2.1;
  EXPECT_TRUE(compare_curves(many, late, kBf16).equal());
  EXPECT_FALSE(compare_curves(many, late, kF32).equal());
  late.back() = INFINITY;
  EXPECT_FALSE(compare_curves(many, late, kBf16).equal());
}

TEST(CompareCurves, LossesThatAreNotFiniteAreNeverEqual) {
  for (const double odd :
       {std::numeric_limits<double>::quiet_NaN(),
        std::numeric_limits<double>::infinity()}) {
    Curve broken = kPlain;
    broken[1] = odd;
    EXPECT_FALSE(compare_curves(broken, kPlain, kF64).equal()) << odd;
    EXPECT_FALSE(compare_curves(broken, broken, kF64).equal()) << odd;
  }
}

TEST(CompareCurves, CurvesOfDifferentLengthsAreNeverEqual) {
  EXPECT_TRUE(std::isinf(compare_curves(kPlain, {3.5, 2.25}, kF64).difference));
  EXPECT_FALSE(compare_curves(kPlain, {}, kF64).equal());
  EXPECT_FALSE(compare_curves({}, {}, kF64).equal());
}

}  // namespace
}  // namespace tessera::cli
