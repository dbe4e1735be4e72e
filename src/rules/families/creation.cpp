// New tensors like others, copies and fills.
//
// A tensor that is only like another does not look at its values, so that it is
// replicated whatever is Partial there.
#include <rules/families/casts.h>

namespace tessera::detail::inline rules_layer {

namespace {

using Names = std::vector<std::string>;

constexpr std::string_view kNewFromAny = "sum,avg,max,min,product: P->R";

// Parts of zeros add up to zeros, so that sums can go on in the new tensor.
void add_zeros_rows(const RuleCall& call, Rows& rows) {
  if (asked_dtype(call, call.self()) == call.self().dtype) {
    add_same_partial(
        rows, {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin});
  }
}

constexpr ReduceOp kAllReduceOps[] = {
    ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin,
    ReduceOp::kProduct};

void add_cast_rows(
    c10::ScalarType from, c10::ScalarType to, size_t operands, Rows& rows) {
  for (const ReduceOp op : kAllReduceOps) {
    const bool ordered = op == ReduceOp::kMax || op == ReduceOp::kMin;
    if (from == to ||
        (ordered ? keeps_order(from, to)
                 : op != ReduceOp::kProduct && keeps_sums(from, to))) {
      rows.add(Cells{Cell::partial(op)}, Cells(operands, Cell::partial(op)));
    }
  }
}

// The values of operand 1 in the shape and type of operand 0, whose own values
// nobody reads.
void add_overwritten_rows(const RuleCall& call, Rows& rows) {
  Rows cast;
  add_cast_rows(call.operand(1).dtype, call.operand(0).dtype, 1, cast);
  for (const Row& row : cast.rows()) {
    rows.add(row.outputs, Cells{Cell(), row.operands[0]});
    for (const ReduceOp op : kAllReduceOps) {
      rows.add(row.outputs, Cells{Cell::partial(op), row.operands[0]});
    }
  }
  for (const ReduceOp op : kAllReduceOps) {
    rows.add({Cell()}, {Cell::partial(op), Cell()});
  }
}

void add_copies(RuleTable& t) {
  t.pointwise({"aten::clone", "aten::_lazy_clone", "aten::alias_copy",
               "aten::detach_copy", "aten::lift_fresh_copy", "aten::lift",
               "aten::_pin_memory", "aten::positive"})
      .also("sum,avg,max,min,product: P->P");
  t.pointwise({"aten::_to_copy"}).also([](const RuleCall& call, Rows& rows) {
    add_cast_rows(call.self().dtype, asked_dtype(call, call.self()), 1, rows);
  });
  t.pointwise({"aten::copy"}).also(add_overwritten_rows);
  // Every list element takes the values of one of the other list.
  t.pointwise({"aten::_foreach_copy"})
      .also([](const RuleCall& call, Rows& rows) {
        add_cast_rows(call.operand(1).dtype, call.operand(0).dtype, 2, rows);
      });
}

void add_likes(RuleTable& t) {
  t.pointwise({"aten::zeros_like", "aten::empty_like"})
      .also(add_zeros_rows)
      .also(kNewFromAny);
  t.pointwise({"aten::ones_like", "aten::full_like"}).also(kNewFromAny);
}

// Filling every part is filling their average, maximum or minimum, not their
// sum.
void add_fills(RuleTable& t) {
  t.pointwise({"aten::fill.Scalar"})
      .also("avg,max,min: P->P")
      .also(kNewFromAny);
  t.pointwise({"aten::fill.Tensor"})
      .also("avg,max,min: PR->P")
      .also("sum,avg,max,min,product: PP->P")
      .also("sum,avg,max,min,product: PR->R");
  t.pointwise({"aten::zero"}).also("sum,avg,max,min,product: P->P");
}

}  // namespace

void add_creation_rules(RuleTable& t) {
  add_copies(t);
  add_likes(t);
  add_fills(t);
  t.whole({"aten::linspace.*", "aten::logspace.*"});
}

}  // namespace tessera::detail::inline rules_layer
