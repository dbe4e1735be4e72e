// The rows of core operators, written down by hand. Each case says why.
#include <limits>

#include <gtest/gtest.h>
#include <rules/rows_of.h>

namespace tessera {
namespace {

using Texts = std::vector<std::string>;

constexpr int64_t kNone = 0, kMean = 1, kSum = 2;  // at::Reduction

// Rows without the one that is all replicated.
Texts cuts(const DescribedCall& call) {
  Texts texts = rows_of(call);
  EXPECT_EQ(texts[0].find_first_of("SP"), std::string::npos) << texts[0];
  texts.erase(texts.begin());
  return texts;
}

const Described k34{{3, 4}};
const Described kMask{{3, 4}, c10::kBool};

std::vector<int64_t> dims(std::initializer_list<int64_t> values) {
  return values;
}

// --- pointwise

TEST(PointwiseRules, AddIsLinearInBothTogether) {
  // max(a) + c = max(a + c), but max(a) + max(b) is no maximum of a + b; what
  // is added to a sum is added once, not by every rank.
  EXPECT_EQ(
      cuts({"aten::add.Tensor", {k34, {{4}}}}),
      (Texts{
          "S(0), R -> S(0)", "S(1), S(0) -> S(1)", "P(sum), P(sum) -> P(sum)",
          "P(avg), P(avg) -> P(avg)", "P(avg), R -> P(avg)",
          "P(max), R -> P(max)", "P(min), R -> P(min)",
          "R, P(avg) -> P(avg)"}));
}

TEST(PointwiseRules, AScalarIsAddedToAveragesOnly) {
  EXPECT_EQ(
      cuts({"aten::add.Scalar", {{{4}}}, {{"other", 1}}}),
      (Texts{"S(0) -> S(0)", "P(avg) -> P(avg)"}));
}

TEST(PointwiseRules, MulIsLinearInEachAlone) {
  // A product of sums is not the sum of products; a negative factor turns
  // maxima into minima.
  EXPECT_EQ(
      cuts({"aten::mul.Tensor", {{{3}}, {{3}}}}),
      (Texts{
          "S(0), S(0) -> S(0)", "P(sum), R -> P(sum)", "P(avg), R -> P(avg)",
          "R, P(sum) -> P(sum)", "R, P(avg) -> P(avg)"}));
  EXPECT_EQ(
      cuts({"aten::mul.Scalar", {{{3}}}, {{"other", 2}}}),
      (Texts{"S(0) -> S(0)", "P(sum) -> P(sum)", "P(avg) -> P(avg)"}));
}

TEST(PointwiseRules, DivIsLinearInTheNumeratorUnlessItRounds) {
  EXPECT_EQ(
      cuts({"aten::div.Tensor", {{{3}}, {{3}}}}),
      (Texts{
          "S(0), S(0) -> S(0)", "P(sum), R -> P(sum)", "P(avg), R -> P(avg)"}));
  EXPECT_EQ(
      cuts({"aten::div.Tensor_mode", {{{3}}, {{3}}}}),
      (Texts{"S(0), S(0) -> S(0)"}));
}

TEST(PointwiseRules, NegTurnsTheOrderAroundWhereThereAreSigns) {
  EXPECT_EQ(
      cuts({"aten::neg", {{{3}}}}),
      (Texts{
          "S(0) -> S(0)", "P(max) -> P(min)", "P(min) -> P(max)",
          "P(sum) -> P(sum)", "P(avg) -> P(avg)"}));
  // -1 of unsigned bytes is 255.
  EXPECT_EQ(
      cuts({"aten::neg", {{{3}, c10::kByte}}}),
      (Texts{"S(0) -> S(0)", "P(sum) -> P(sum)", "P(avg) -> P(avg)"}));
}

TEST(PointwiseRules, WhatNeverDecreasesKeepsMaximaAndMinima) {
  const Texts monotone{"S(0) -> S(0)", "P(max) -> P(max)", "P(min) -> P(min)"};
  for (const char* name :
       {"aten::relu", "aten::exp", "aten::tanh", "aten::sigmoid"}) {
    EXPECT_EQ(cuts({name, {{{3}}}}), monotone) << name;
  }
  EXPECT_EQ(
      cuts({"aten::erfc", {{{3}}}}),
      (Texts{"S(0) -> S(0)", "P(max) -> P(min)", "P(min) -> P(max)"}));
  // gelu falls and rises; sqrt of a part may be NaN; sign(NaN) is 0.
  for (const char* name :
       {"aten::gelu", "aten::sqrt", "aten::log", "aten::sign"}) {
    EXPECT_EQ(cuts({name, {{{3}}}}), Texts{"S(0) -> S(0)"}) << name;
  }
}

TEST(PointwiseRules, ThresholdIsMonotoneIfItsValueIsNotAbove) {
  EXPECT_EQ(
      cuts({"aten::threshold", {{{3}}}, {{"threshold", 0}, {"value", 5}}}),
      (Texts{"S(0) -> S(0)"}));
  EXPECT_EQ(
      cuts({"aten::threshold", {{{3}}}, {{"threshold", 0}, {"value", 0}}}),
      (Texts{"S(0) -> S(0)", "P(max) -> P(max)", "P(min) -> P(min)"}));
}

TEST(PointwiseRules, WhereTakesTheSamePartialOfBoth) {
  // A constant is its own average, maximum and minimum, but not its own sum.
  EXPECT_EQ(
      cuts({"aten::where.self", {{{3}, c10::kBool}, {{3}}, {{1}}}}),
      (Texts{
          "S(0), S(0), R -> S(0)", "R, P(sum), P(sum) -> P(sum)",
          "R, P(avg), P(avg) -> P(avg)", "R, P(max), P(max) -> P(max)",
          "R, P(min), P(min) -> P(min)",
          "R, P(product), P(product) -> P(product)", "R, P(avg), R -> P(avg)",
          "R, P(max), R -> P(max)", "R, P(min), R -> P(min)",
          "R, R, P(avg) -> P(avg)", "R, R, P(max) -> P(max)",
          "R, R, P(min) -> P(min)"}));
}

TEST(PointwiseRules, MaskedFillKeepsSumsWhereItFillsZeros) {
  const Texts others{
      "S(0), S(0) -> S(0)", "P(avg), R -> P(avg)", "P(max), R -> P(max)",
      "P(min), R -> P(min)"};
  EXPECT_EQ(
      cuts(
          {"aten::masked_fill.Scalar",
           {{{3}}, {{3}, c10::kBool}},
           {{"value", -1.0}}}),
      others);
  Texts zeros = others;
  zeros.insert(zeros.begin() + 1, "P(sum), R -> P(sum)");
  EXPECT_EQ(
      cuts(
          {"aten::masked_fill.Scalar",
           {{{3}}, {{3}, c10::kBool}},
           {{"value", 0.0}}}),
      zeros);
}

TEST(PointwiseRules, ComparisonsReadWholeValues) {
  EXPECT_EQ(
      cuts({"aten::gt.Tensor", {k34, k34}}),
      (Texts{"S(0), S(0) -> S(0)", "S(1), S(1) -> S(1)"}));
}

TEST(PointwiseRules, MaximumIsOneOfMaxima) {
  EXPECT_EQ(
      cuts({"aten::maximum", {{{3}}, {{3}}}}),
      (Texts{
          "S(0), S(0) -> S(0)", "P(max), P(max) -> P(max)",
          "P(max), R -> P(max)", "P(min), R -> P(min)", "R, P(max) -> P(max)",
          "R, P(min) -> P(min)"}));
}

TEST(PointwiseRules, GradientsOfActivationsAreLinearInTheGradient) {
  EXPECT_EQ(
      cuts({"aten::gelu_backward", {{{3}}, {{3}}}}),
      (Texts{
          "S(0), S(0) -> S(0)", "P(sum), R -> P(sum)", "P(avg), R -> P(avg)"}));
  EXPECT_EQ(
      cuts({"aten::threshold_backward", {{{3}}, {{3}}}, {{"threshold", 0}}}),
      (Texts{
          "S(0), S(0) -> S(0)", "P(sum), R -> P(sum)", "P(avg), R -> P(avg)"}));
}

TEST(PointwiseRules, AddcmulAddsAProduct) {
  // self + t1 * t2: sums in self and one factor together, averages in any one.
  EXPECT_EQ(
      cuts({"aten::addcmul", {{{3}}, {{3}}, {{3}}}}),
      (Texts{
          "S(0), S(0), S(0) -> S(0)", "P(sum), P(sum), R -> P(sum)",
          "P(avg), P(avg), R -> P(avg)", "P(sum), R, P(sum) -> P(sum)",
          "P(avg), R, P(avg) -> P(avg)", "P(avg), R, R -> P(avg)",
          "P(max), R, R -> P(max)", "P(min), R, R -> P(min)",
          "R, P(avg), R -> P(avg)", "R, R, P(avg) -> P(avg)"}));
}

// --- reductions

TEST(ReductionRules, SumOfPartsIsAPartOfTheSum) {
  EXPECT_EQ(
      cuts({"aten::sum.dim_IntList", {k34}, {{"dim", dims({0})}}}),
      (Texts{
          "S(0) -> P(sum)", "S(1) -> S(0)", "P(sum) -> P(sum)",
          "P(avg) -> P(avg)"}));
  // Parts that are cut down to integers lose their fractions.
  EXPECT_EQ(
      cuts({"aten::sum", {{{3}}}, {{"dtype", c10::kLong}}}),
      (Texts{"S(0) -> P(sum)"}));
}

TEST(ReductionRules, MeanDividesByTheWholeCount) {
  EXPECT_EQ(
      cuts({"aten::mean.dim", {k34}, {{"dim", dims({-1})}, {"keepdim", true}}}),
      (Texts{
          "S(0) -> S(0)", "S(1) -> P(sum) by mean", "P(sum) -> P(sum)",
          "P(avg) -> P(avg)"}));
}

TEST(ReductionRules, AmaxOfAnEmptyPartIsTheIdentity) {
  EXPECT_EQ(
      cuts({"aten::amax", {k34}, {{"dim", dims({1})}}}),
      (Texts{
          "S(0) -> S(0)", "S(1) -> P(max) by identity", "P(max) -> P(max)"}));
  EXPECT_EQ(
      cuts({"aten::min", {{{3}}}}),
      (Texts{"S(0) -> P(min) by identity", "P(min) -> P(min)"}));
}

TEST(ReductionRules, MaxWithIndicesNeedsTheWholeDim) {
  EXPECT_EQ(
      cuts({"aten::max.dim", {k34}, {{"dim", 0}}}),
      (Texts{"S(1) -> S(0), S(0)"}));
}

TEST(ReductionRules, AnyIsAMaximumOfBools) {
  EXPECT_EQ(
      cuts({"aten::any.dim", {kMask}, {{"dim", 0}}}),
      (Texts{"S(0) -> P(max)", "S(1) -> S(0)", "P(max) -> P(max)"}));
  // Unlike elsewhere, an empty list of dims reduces nothing.
  EXPECT_EQ(
      cuts({"aten::all.dims", {k34}, {{"dim", dims({})}}}),
      (Texts{"S(0) -> S(0)", "S(1) -> S(1)"}));
}

TEST(ReductionRules, ProdIsAProductOfParts) {
  EXPECT_EQ(
      cuts({"aten::prod", {{{3}}}}),
      (Texts{"S(0) -> P(product)", "P(product) -> P(product)"}));
}

TEST(ReductionRules, VarianceNeedsTheWholeDim) {
  EXPECT_EQ(
      cuts({"aten::var.correction", {k34}, {{"dim", dims({1})}}}),
      (Texts{"S(0) -> S(0)"}));
}

TEST(ReductionRules, NormsAddUpByTheirOrder) {
  const auto norm = [](double order) {
    return cuts({"aten::linalg_vector_norm", {{{3}}}, {{"ord", order}}});
  };
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(norm(2), Texts{});
  EXPECT_EQ(norm(1), Texts{"S(0) -> P(sum)"});
  EXPECT_EQ(norm(0), Texts{"S(0) -> P(sum)"});
  EXPECT_EQ(norm(inf), Texts{"S(0) -> P(max) by identity"});
  EXPECT_EQ(norm(-inf), Texts{"S(0) -> P(min) by identity"});
}

// --- scans and sorts

TEST(SortingRules, ScansAndSortsNeedTheWholeDim) {
  EXPECT_EQ(
      cuts({"aten::cumsum", {k34}, {{"dim", 1}}}),
      (Texts{"S(0) -> S(0)", "P(sum) -> P(sum)", "P(avg) -> P(avg)"}));
  EXPECT_EQ(
      cuts({"aten::topk", {k34}, {{"k", 2}, {"dim", 0}}}),
      (Texts{"S(1) -> S(1), S(1)"}));
  EXPECT_EQ(cuts({"aten::sort", {k34}}), Texts{"S(0) -> S(0), S(0)"});
}

TEST(SortingRules, PlacesAmongPartsOfBoundariesAddUp) {
  // NaN sorts last, so that a maximum keeps it; a minimum would lose it.
  EXPECT_EQ(
      cuts({"aten::bucketize.Tensor", {{{3}}, {{9}}}}),
      (Texts{"S(0), R -> S(0)", "R, S(0) -> P(sum)", "P(max), R -> P(max)"}));
}

// --- softmax and losses

TEST(SoftmaxRules, OtherDimsAreIndependent) {
  EXPECT_EQ(
      cuts(
          {"aten::_softmax",
           {{{2, 3, 4}}},
           {{"dim", -1}, {"half_to_float", false}}}),
      (Texts{"S(0) -> S(0)", "S(1) -> S(1)"}));
  EXPECT_EQ(
      cuts(
          {"aten::_log_softmax_backward_data",
           {k34, k34},
           {{"dim", 1}, {"input_dtype", c10::kFloat}}}),
      (Texts{
          "S(0), S(0) -> S(0)", "P(sum), R -> P(sum)", "P(avg), R -> P(avg)"}));
}

TEST(LossRules, NllIsPerTarget) {
  const auto nll = [](int64_t reduction) {
    return cuts(
        {"aten::nll_loss_forward",
         {k34, {{3}, c10::kLong}, {{4}}},
         {{"reduction", reduction}, {"ignore_index", -100}}});
  };
  EXPECT_EQ(nll(kNone), Texts{"S(0), S(0), R -> S(0), R"});
  EXPECT_EQ(nll(kSum), Texts{"S(0), S(0), R -> P(sum), P(sum)"});
  // The mean divides by the total weight of all targets.
  EXPECT_EQ(nll(kMean), Texts{});
}

TEST(LossRules, TheGradientOfAMeanNllHasTheWholeWeightAlready) {
  EXPECT_EQ(
      cuts(
          {"aten::nll_loss_backward",
           {{{}}, k34, {{3}, c10::kLong}, none(), {{}}},
           {{"reduction", kMean}, {"ignore_index", -100}}}),
      (Texts{
          "R, S(0), S(0), R, R -> S(0)", "P(sum), R, R, R, R -> P(sum)",
          "P(avg), R, R, R, R -> P(avg)"}));
}

TEST(LossRules, SquaredErrorsAddUp) {
  const auto mse = [](int64_t reduction) {
    return cuts({"aten::mse_loss", {{{3}}, {{3}}}, {{"reduction", reduction}}});
  };
  EXPECT_EQ(mse(kNone), Texts{"S(0), S(0) -> S(0)"});
  EXPECT_EQ(mse(kSum), Texts{"S(0), S(0) -> P(sum)"});
  EXPECT_EQ(mse(kMean), Texts{});
}

// --- norms

TEST(NormRules, LayerNormCutsTheDimsBefore) {
  EXPECT_EQ(
      cuts(
          {"aten::native_layer_norm",
           {{{2, 3, 4}}, {{4}}, {{4}}},
           {{"normalized_shape", dims({4})}, {"eps", 1e-5}}}),
      (Texts{
          "S(0), R, R -> S(0), S(0), S(0)", "S(1), R, R -> S(1), S(1), S(1)"}));
  // Weights are shared by all rows: their gradients add up.
  EXPECT_EQ(
      cuts(
          {"aten::native_layer_norm_backward",
           {k34, k34, {{3, 1}}, {{3, 1}}, {{4}}, {{4}}},
           {{"normalized_shape", dims({4})}}})[0],
      "S(0), S(0), S(0), S(0), R, R -> S(0), P(sum), P(sum)");
}

TEST(NormRules, BatchNormCutsChannelsInTrainingAndAllInEvaluation) {
  const auto norm = [](bool training) {
    return cuts(
        {"aten::native_batch_norm",
         {{{2, 3, 4}}, {{3}}, {{3}}, {{3}}, {{3}}},
         {{"training", training}}});
  };
  EXPECT_EQ(
      norm(true), Texts{"S(1), S(0), S(0), S(0), S(0) -> S(1), S(0), S(0)"});
  EXPECT_EQ(
      norm(false), (Texts{
                       "S(0), R, R, R, R -> S(0), R, R",
                       "S(1), S(0), S(0), S(0), S(0) -> S(1), R, R",
                       "S(2), R, R, R, R -> S(2), R, R"}));
}

// --- products

TEST(MatmulRules, MmCutsEachOfItsThreeDims) {
  EXPECT_EQ(
      cuts({"aten::mm", {{{3, 4}}, {{4, 5}}}}),
      (Texts{
          "S(0), R -> S(0)", "S(1), S(0) -> P(sum)", "R, S(1) -> S(1)",
          "P(sum), R -> P(sum)", "P(avg), R -> P(avg)", "R, P(sum) -> P(sum)",
          "R, P(avg) -> P(avg)"}));
}

TEST(MatmulRules, TheBiasIsPartialWhereTheProductIs) {
  EXPECT_EQ(
      cuts({"aten::addmm", {{{5}}, {{3, 4}}, {{4, 5}}}}),
      (Texts{
          "R, S(0), R -> S(0)", "S(0), R, S(1) -> S(1)",
          "P(sum), S(1), S(0) -> P(sum)", "P(sum), P(sum), R -> P(sum)",
          "P(avg), P(avg), R -> P(avg)", "P(sum), R, P(sum) -> P(sum)",
          "P(avg), R, P(avg) -> P(avg)"}));
}

// --- attention

TEST(AttentionRules, BatchesHeadsAndQueriesAreIndependent) {
  const Described q{{2, 4, 6, 8}}, k{{2, 4, 7, 8}};
  const auto rows = [&](bool causal, double dropout) {
    return cuts(
        {"aten::_scaled_dot_product_flash_attention_for_cpu",
         {q, k, k, {{6, 7}}},
         {{"dropout_p", dropout}, {"is_causal", causal}}});
  };
  EXPECT_EQ(
      rows(false, 0), (Texts{
                          "S(0), S(0), S(0), R -> S(0), S(0)",
                          "S(1), S(1), S(1), R -> S(1), S(1)",
                          "S(2), R, R, S(0) -> S(2), S(2)"}));
  // A causal mask comes from the place of a query among all of them.
  EXPECT_EQ(rows(true, 0).size(), 2U);
  // Draws would be by the place in a part.
  EXPECT_EQ(rows(false, 0.1), Texts{});
}

// --- creation

TEST(CreationRules, CopiesKeepWhatTheirDtypeKeeps) {
  const auto copy = [](c10::ScalarType from, c10::ScalarType to) {
    return cuts({"aten::_to_copy", {{{}, from}}, {{"dtype", to}}});
  };
  EXPECT_EQ(
      copy(c10::kFloat, c10::kDouble),
      (Texts{
          "P(sum) -> P(sum)", "P(avg) -> P(avg)", "P(max) -> P(max)",
          "P(min) -> P(min)"}));
  EXPECT_EQ(
      copy(c10::kFloat, c10::kLong),
      (Texts{"P(max) -> P(max)", "P(min) -> P(min)"}));
  EXPECT_EQ(copy(c10::kFloat, c10::kBool), Texts{});
  EXPECT_EQ(copy(c10::kLong, c10::kChar), Texts{});  // 128 becomes -128
}

TEST(CreationRules, WhatIsOnlyLikeATensorDoesNotReadIt) {
  EXPECT_EQ(
      cuts({"aten::ones_like", {{{3}}}}),
      (Texts{
          "S(0) -> S(0)", "P(sum) -> R", "P(avg) -> R", "P(max) -> R",
          "P(min) -> R", "P(product) -> R"}));
}

TEST(CreationRules, FillsAreNoSums) {
  // Four ranks that fill a sum with 1 would make 4 of it.
  EXPECT_EQ(
      cuts({"aten::fill_.Scalar", {{{}}}, {{"value", 1}}}),
      (Texts{
          "P(avg) -> P(avg)", "P(max) -> P(max)", "P(min) -> P(min)",
          "P(sum) -> R", "P(avg) -> R", "P(max) -> R", "P(min) -> R",
          "P(product) -> R"}));
}

// --- optimizers

TEST(OptimizerRules, AStepIsPointwiseButForWhatParametersShare) {
  // Counts, rate, scale and found_inf have one element, like this parameter,
  // and are no part of it.
  const Described one{{1}};
  EXPECT_EQ(
      cuts(
          {"aten::_fused_adamw_.tensor_lr",
           {one, one, one, one, one, one, one, one, one}}),
      (Texts{"S(0), S(0), S(0), S(0), S(0), R, R, R, R -> S(0), S(0), S(0), "
             "S(0), S(0)"}))
      << "what is written stands for what is returned";
}

TEST(OptimizerRules, ATensorOfScalarsIsNoPartner) {
  EXPECT_EQ(
      cuts({"aten::_foreach_addcdiv_.Tensor", {{{3}}, {{3}}, {{3}}, {{3}}}}),
      Texts{});
}

// --- linear algebra

TEST(LinalgRules, BatchesAreAlignedFromTheRight) {
  // The systems [5] are shared by the first of the batch dims [2, 5] of B.
  EXPECT_EQ(
      cuts({"aten::_linalg_solve_ex", {{{5, 4, 4}}, {{2, 5, 4, 3}}}}),
      (Texts{
          "R, S(0) -> S(0), R, R, R", "S(0), S(1) -> S(1), S(0), S(0), S(0)",
          "R, S(3) -> S(-1), R, R, R", "R, P(sum) -> P(sum), R, R, R",
          "R, P(avg) -> P(avg), R, R, R"}));
}

TEST(LinalgRules, TransformsAreLinear) {
  EXPECT_EQ(
      cuts(
          {"aten::_fft_c2c",
           {{{3, 4}, c10::kComplexFloat}},
           {{"dim", dims({1})}, {"normalization", 0}, {"forward", true}}}),
      (Texts{"S(0) -> S(0)", "P(sum) -> P(sum)", "P(avg) -> P(avg)"}));
}

// --- variants

TEST(RulesOfVariants, FollowTheirOperator) {
  const Texts one = cuts({"aten::relu", {{{3}}}});
  for (const char* name : {"aten::relu_", "aten::relu.out"}) {
    EXPECT_EQ(cuts({name, {{{3}}}}), one) << name;
  }
  EXPECT_EQ(
      cuts({"aten::addcmul_", {{{3}}, {{3}}, {{3}}}}),
      cuts({"aten::addcmul", {{{3}}, {{3}}, {{3}}}}));
}

}  // namespace
}  // namespace tessera
