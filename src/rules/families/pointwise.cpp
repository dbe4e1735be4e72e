// Operators of which element i of a result needs elements i of the operands.
//
// Which Partial passes: sums and averages pass where the operator is linear in
// that operand; averages, maxima and minima where a constant is added; maxima
// and minima where it never decreases on the whole line and keeps NaN. sign and
// nan_to_num map NaN to a number, fmax and fmin drop it, log and sqrt are NaN
// where a part that does not win is negative: none of these passes.
#include <rules/all_rules.h>

namespace tessera::detail::inline rules_layer {

namespace {

double number(const RuleCall& call, std::string_view name) {
  const c10::Scalar value = call.argument(name).toScalar();
  return value.isComplex() ? 1 : value.toDouble();
}

// Negation turns the order around; it does not among unsigned numbers, which
// wrap: -1 is the largest.
void add_negated_extremes(const RuleCall& call, Rows& rows) {
  if (c10::isFloatingType(call.self().dtype)) {
    rows.add({Cell::partial(ReduceOp::kMin)}, {Cell::partial(ReduceOp::kMax)});
    rows.add({Cell::partial(ReduceOp::kMax)}, {Cell::partial(ReduceOp::kMin)});
  }
}

// x <= t ? v : x never decreases if v <= t. With t = 0, v = 5, the maximum of
// the parts -1 and 3 is 3, but that of the results is 5.
void add_threshold_rows(const RuleCall& call, Rows& rows) {
  if (number(call, "value") <= number(call, "threshold")) {
    for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
      rows.add({Cell::partial(op)}, {Cell::partial(op)});
    }
  }
}

// Zeros filled into every part add up to zero.
void add_zero_fill_rows(const RuleCall& call, Rows& rows) {
  const c10::Scalar value = call.argument("value").toScalar();
  if (value.equal(0)) {
    const Cell sum = Cell::partial(ReduceOp::kSum);
    rows.add({sum}, {sum, Cell()});
  }
}

// What is added keeps the order of floating numbers. Integers wrap: 3 - 5 of
// bytes is 254.
void add_arithmetic(RuleTable& t) {
  t.pointwise({"aten::add.*", "aten::sub.*"})
      .also("sum,avg: PP->P")
      .also("avg: PR->P")
      .also("max,min of floats: PR->P")
      .also("avg: RP->P")
      .also("avg: P->P");
  t.pointwise({"aten::rsub.*"})
      .also("sum,avg: PP->P")
      .also("avg: PR->P")
      .also("avg: RP->P")
      .also("max,min of floats: RP->P")
      .also("avg: P->P");
  t.pointwise({"aten::mul.*"})
      .also("sum,avg: P->P")
      .also("sum,avg: PR->P")
      .also("sum,avg: RP->P");
  // A quotient that is rounded is not linear.
  t.pointwise({"aten::div.Tensor", "aten::div.Scalar"})
      .also("sum,avg: P->P")
      .also("sum,avg: PR->P");
  t.pointwise({"aten::div.*"});
  t.pointwise({"aten::neg"}).also("sum,avg: P->P").also(add_negated_extremes);
  t.pointwise({"aten::_conj_physical", "aten::conj_physical"})
      .also("sum,avg: P->P");
  t.pointwise({"aten::complex"}).also("sum,avg: PP->P");
  // self + value * tensor1 * tensor2.
  t.pointwise({"aten::addcmul.*"})
      .also("sum,avg: PPR->P")
      .also("sum,avg: PRP->P")
      .also("avg: PRR->P")
      .also("max,min of floats: PRR->P")
      .also("avg: RPR->P")
      .also("avg: RRP->P");
  t.pointwise({"aten::addcdiv.*"})
      .also("sum,avg: PPR->P")
      .also("avg: PRR->P")
      .also("max,min of floats: PRR->P")
      .also("avg: RPR->P");
  // self + weight * (end - self).
  t.pointwise({"aten::lerp.*"})
      .also("sum,avg: PP->P")
      .also("avg: PR->P")
      .also("avg: RP->P")
      .also("sum,avg: PPR->P")
      .also("avg: PRR->P")
      .also("avg: RPR->P");
  // One scalar per list element, all in one tensor: no partner of any of them.
  t.whole({"aten::_foreach_addcmul.Tensor", "aten::_foreach_addcdiv.Tensor"});
}

void add_selection(RuleTable& t) {
  t.pointwise({"aten::where.self"})
      .also("sum,avg,max,min,product: RPP->P")
      .also("avg,max,min: RPR->P")
      .also("avg,max,min: RRP->P");
  t.pointwise({"aten::masked_fill.Scalar"})
      .also("avg,max,min: PR->P")
      .also(add_zero_fill_rows)
      .contiguous();
  t.pointwise({"aten::masked_fill.Tensor"})
      .also("sum,avg,max,min,product: PRP->P")
      .also("avg,max,min: PRR->P")
      .contiguous();
  t.pointwise({"aten::maximum", "aten::clamp_min.Tensor"})
      .also("max: PP->P")
      .also("max,min: PR->P")
      .also("max,min: RP->P");
  t.pointwise({"aten::minimum", "aten::clamp_max.Tensor"})
      .also("min: PP->P")
      .also("max,min: PR->P")
      .also("max,min: RP->P");
  t.pointwise({"aten::logaddexp", "aten::logaddexp2"})
      .also("max,min: PR->P")
      .also("max,min: RP->P");
  t.pointwise({"aten::clamp.Tensor"}).also("max,min: PRR->P");
  t.pointwise({"aten::clamp", "aten::clamp_min", "aten::clamp_max"})
      .also("max,min: P->P");
}

void add_monotone(RuleTable& t) {
  t.pointwise({"aten::asinh", "aten::atan", "aten::ceil", "aten::erf",
               "aten::exp", "aten::exp2", "aten::expm1", "aten::floor",
               "aten::relu", "aten::round", "aten::sigmoid", "aten::sinh",
               "aten::tanh", "aten::trunc", "aten::hardshrink",
               "aten::hardsigmoid", "aten::softshrink", "aten::hardtanh"})
      .also("max,min: P->P");
  t.pointwise({"aten::erfc"}).also("max,min: P->Q");
  t.pointwise({"aten::deg2rad", "aten::rad2deg"}).also("sum,avg,max,min: P->P");
  t.pointwise({"aten::threshold"}).also(add_threshold_rows);
}

// Backward operators are linear in the gradient, which comes first.
void add_gradients(RuleTable& t) {
  t.pointwise({"aten::gelu_backward", "aten::silu_backward",
               "aten::mish_backward", "aten::threshold_backward",
               "aten::sigmoid_backward", "aten::tanh_backward",
               "aten::logit_backward", "aten::elu_backward",
               "aten::hardtanh_backward", "aten::hardsigmoid_backward",
               "aten::hardswish_backward", "aten::hardshrink_backward",
               "aten::leaky_relu_backward", "aten::softplus_backward",
               "aten::softshrink_backward", "aten::native_dropout_backward",
               "aten::_masked_scale"})
      .also("sum,avg: PR->P");
  t.pointwise(
       {"aten::_prelu_kernel_backward", "aten::rrelu_with_noise_backward"})
      .also("sum,avg: PRR->P");
  // On some devices the buffer of log_sigmoid is not used, and empty: no
  // partner to be broadcast.
  t.rows("aten::log_sigmoid_backward", [](const RuleCall& call, Rows& rows) {
     const bool used = call.operand(2).shape == call.self().shape;
     for (int64_t d = 0; d < call.self().ndim(); ++d) {
       const Cell sharded = Cell::shard(d);
       rows.add({sharded}, {sharded, sharded, used ? sharded : Cell()});
     }
   }).also("sum,avg: PRR->P");
}

constexpr const char* kPointwiseNames[] = {
    "abs",
    "acos",
    "acosh",
    "angle",
    "asin",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "__lshift__",
    "__rshift__",
    "__ilshift__",
    "__irshift__",
    "__and__",
    "__or__",
    "__xor__",
    "__iand__",
    "__ior__",
    "__ixor__",
    "celu",
    "copysign",
    "cos",
    "cosh",
    "digamma",
    "elu",
    "eq",
    "erfinv",
    "float_power",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "frac",
    "frexp",
    "gcd",
    "ge",
    "gelu",
    "gt",
    "hardswish",
    "heaviside",
    "hypot",
    "i0",
    "igamma",
    "igammac",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "lcm",
    "ldexp",
    "le",
    "leaky_relu",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logit",
    "log_sigmoid_forward",
    "lt",
    "mish",
    "mvlgamma",
    "nan_to_num",
    "ne",
    "nextafter",
    "polar",
    "polygamma",
    "pow",
    "reciprocal",
    "remainder",
    "round.decimals",
    "rsqrt",
    "selu",
    "sgn",
    "sign",
    "signbit",
    "silu",
    "sin",
    "sinc",
    "softplus",
    "sqrt",
    "square",
    "tan",
    "xlogy",
    "_add_relu",
    "_prelu_kernel",
    "_standard_gamma_grad",
    "_dirichlet_grad"};

void add_pointwise_names(RuleTable& t) {
  for (const char* name : kPointwiseNames) {
    const std::string full = std::string("aten::") + name;
    t.pointwise({full.find('.') == std::string::npos ? full + ".*" : full});
  }
}

void add_special_functions(RuleTable& t) {
  for (const char* name :
       {"airy_ai",
        "bessel_j0",
        "bessel_j1",
        "bessel_y0",
        "bessel_y1",
        "chebyshev_polynomial_t",
        "chebyshev_polynomial_u",
        "chebyshev_polynomial_v",
        "chebyshev_polynomial_w",
        "entr",
        "erfcx",
        "hermite_polynomial_h",
        "hermite_polynomial_he",
        "i0e",
        "i1",
        "i1e",
        "laguerre_polynomial_l",
        "legendre_polynomial_p",
        "log_ndtr",
        "modified_bessel_i0",
        "modified_bessel_i1",
        "modified_bessel_k0",
        "modified_bessel_k1",
        "ndtri",
        "scaled_modified_bessel_k0",
        "scaled_modified_bessel_k1",
        "shifted_chebyshev_polynomial_t",
        "shifted_chebyshev_polynomial_u",
        "shifted_chebyshev_polynomial_v",
        "shifted_chebyshev_polynomial_w",
        "spherical_bessel_j0",
        "xlog1py",
        "zeta"}) {
    t.pointwise({std::string("aten::special_") + name + ".*"});
  }
}

}  // namespace

void add_pointwise_rules(RuleTable& t) {
  add_arithmetic(t);
  add_selection(t);
  add_monotone(t);
  add_gradients(t);
  add_pointwise_names(t);
  add_special_functions(t);
}

}  // namespace tessera::detail::inline rules_layer
