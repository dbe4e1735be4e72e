// Scans and sorts along a dim, and searches in what is sorted.
#include <rules/families/casts.h>

namespace tessera::detail::inline rules_layer {

namespace {

// The place of a value among boundaries is how many lie before it, so that a
// cut of the boundaries gives counts that add up. NaN lies behind all of them:
// it may be a maximum, but a minimum hides it.
void add_bucketize_rows(const RuleCall& call, Rows& rows) {
  const bool has_values = call.operands().size() == 2;
  if (!has_values) {
    rows.add({kSum}, {Cell::shard(0)});
    return;
  }
  for (int64_t d = 0; d < call.self().ndim(); ++d) {
    rows.add({Cell::shard(d)}, {Cell::shard(d), Cell()});
  }
  rows.add({kSum}, {Cell(), Cell::shard(0)});
  const Cell max = Cell::partial(ReduceOp::kMax);
  rows.add({max}, {max, Cell()});
}

// Operands: sorted sequence, values (but for a scalar), sorter.
void add_searchsorted_rows(const RuleCall& call, Rows& rows) {
  const Operand& sequence = call.self();
  const bool has_values = call.operands().size() == 3;
  const bool has_sorter = call.operands().back().defined;
  const auto add = [&](Cell output, Cell sequence_cell, Cell values_cell) {
    Cells operands{sequence_cell};
    if (has_values) {
      operands.push_back(values_cell);
    }
    operands.push_back(has_sorter ? sequence_cell : Cell());
    rows.add({output}, std::move(operands));
  };
  if (!has_sorter) {
    add(kSum, Cell::shard(sequence.ndim() - 1), Cell());
  }
  const int64_t values_ndim = has_values ? call.operand(1).ndim() : 0;
  for (int64_t d = 0; d < values_ndim; ++d) {
    const bool is_batch = sequence.ndim() > 1 && d < values_ndim - 1;
    add(Cell::shard(d), is_batch ? Cell::shard(d) : Cell(), Cell::shard(d));
  }
}

// isin: which elements occur among others.
void add_isin_rows(const RuleCall& call, Rows& rows) {
  for (int64_t d = 0; d < call.self().ndim(); ++d) {
    rows.add({Cell::shard(d)}, {Cell::shard(d), Cell()});
  }
}

// Is one number among these? In some part, or in none of them.
void add_isin_scalar_rows(const RuleCall& call, Rows& rows) {
  const bool inverted = call.boolean("invert");
  for (int64_t d = 0; d < call.self().ndim(); ++d) {
    rows.add(
        {Cell::partial(inverted ? ReduceOp::kMin : ReduceOp::kMax)},
        {Cell::shard(d)});
  }
}

}  // namespace

void add_sorting_rules(RuleTable& t) {
  t.along({"aten::cumsum.*"}).also(add_linear_if_cast_allows);
  t.along(
      {"aten::cumprod.*", "aten::logcumsumexp.*", "aten::_logcumsumexp.*",
       "aten::cummax.*", "aten::cummin.*", "aten::sort.*", "aten::topk.*"});
  t.along({"aten::_cummax_helper", "aten::_cummin_helper"}).not_empty();
  t.rows("aten::bucketize.*", add_bucketize_rows);
  t.rows("aten::searchsorted.*", add_searchsorted_rows);
  t.rows("aten::isin.Tensor_Tensor", add_isin_rows);
  t.rows("aten::isin.Scalar_Tensor", add_isin_scalar_rows);
  t.pointwise({"aten::isin.Tensor_Scalar"});
}

}  // namespace tessera::detail::inline rules_layer
