// Operators of torch._prims that are no pointwise operators of ATen under its
// own names: those follow ATen's rules, see find_rule.cpp. They exist in
// processes that have imported torch._prims.
#include <rules/families/casts.h>
#include <rules/rule_entry.h>

namespace tessera::detail::inline rules_layer {

namespace {

// Integers are divided as in C, which is not linear.
void add_quotient_rows(const RuleCall& call, Rows& rows) {
  for (const Operand& operand : call.operands()) {
    if (c10::isIntegralType(operand.dtype, /*includeBool=*/true)) {
      return;
    }
  }
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
    rows.add({Cell::partial(op)}, {Cell::partial(op), Cell()});
  }
}

// A product over an empty list of dims is the tensor itself, other than those
// of all the others, which take every dim then.
void add_product_rows(const RuleCall& call, Rows& rows) {
  if (!call.is_none("dims") && call.integers("dims").empty()) {
    pointwise_rows(call, rows);
  } else {
    reduction_rows(ReduceOp::kProduct)(call, rows);
  }
}

// Cuts of the dims of an extreme may leave a rank without elements.
RowsFn extreme_rows(ReduceOp op) {
  return [op](const RuleCall& call, Rows& rows) {
    Rows plain;
    reduction_rows(op)(call, plain);
    for (const Row& row : plain.rows()) {
      rows.add(
          row.outputs, row.operands,
          row.outputs[0].is_partial() ? RunBy::kIdentity : RunBy::kOperator);
    }
  };
}

// Where no other dtype is asked for, partial values pass.
void add_sum_of_partials(const RuleCall& call, Rows& rows) {
  if (call.is_none("output_dtype")) {
    add_same_partial(rows, {ReduceOp::kSum, ReduceOp::kAvg});
  }
}

}  // namespace

void add_prims_rules(RuleTable& t) {
  t.pointwise({"prims::div"}).also(add_quotient_rows);
  t.pointwise({"prims::cbrt"}).also("max,min: P->P");
  t.reduction({"prims::sum"}, ReduceOp::kSum).also(add_sum_of_partials);
  t.reduction({"prims::prod"}, ReduceOp::kProduct).instead(add_product_rows);
  t.reduction({"prims::amax"}, ReduceOp::kMax)
      .instead(extreme_rows(ReduceOp::kMax))
      .also("max: P->P");
  t.reduction({"prims::amin"}, ReduceOp::kMin)
      .instead(extreme_rows(ReduceOp::kMin))
      .also("min: P->P");
  t.reduction({"prims::var", "prims::xor_sum"});
}

}  // namespace tessera::detail::inline rules_layer
