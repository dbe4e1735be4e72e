// Lookups in tables. A rank that holds some rows of a table answers for those
// and gives zeros for the others: a part of the sum.
#include <rules/all_rules.h>
#include <rules/families/rows_of_dims.h>

namespace tessera::detail::inline rules_layer {

namespace {

constexpr int64_t kModeMax = 2;

void embedding_rows(const RuleCall& call, Rows& rows) {
  const int64_t indices = call.operand(1).ndim();
  rows.add({Cell::shard(indices)}, {Cell::shard(1), Cell()});
  for (int64_t d = 0; d < indices; ++d) {
    rows.add({Cell::shard(d)}, {Cell(), Cell::shard(d)});
  }
  rows.add(
      {Cell::partial(ReduceOp::kSum)}, {Cell::shard(0), Cell()},
      RunBy::kLookup);
}

// How often an index occurs is known to a rank that sees them all.
void embedding_backward_rows(const RuleCall& call, Rows& rows) {
  const int64_t indices = call.operand(1).ndim();
  rows.add({Cell::shard(1)}, {Cell::shard(indices), Cell()});
  for (int64_t d = 0; d < indices && !call.boolean("scale_grad_by_freq"); ++d) {
    rows.add({Cell::partial(ReduceOp::kSum)}, {Cell::shard(d), Cell::shard(d)});
  }
}

bool picks_maxima(const RuleCall& call) {
  return call.integer("mode") == kModeMax;
}

// Outputs: the bags, offset2bag, bag_size and, for maxima, their indices.
void bag_rows(const RuleCall& call, Rows& rows) {
  const bool maxima = picks_maxima(call);
  const Cell columns = Cell::shard(1);
  rows.add(
      {columns, Cell(), Cell(), maxima ? columns : Cell()},
      {columns, Cell(), Cell(), Cell()});
  if (maxima) {
    return;
  }
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
    rows.add(
        {Cell::partial(op), Cell(), Cell(), Cell()},
        {Cell::partial(op), Cell(), Cell(), Cell()});
  }
  rows.add(
      {Cell::partial(ReduceOp::kSum), Cell(), Cell(), Cell()},
      {Cell::shard(0), Cell(), Cell(), Cell()}, RunBy::kBags);
}

// The gradient comes first; the indices of maxima stand before the weights of
// samples, which are last.
void bag_backward_rows(const RuleCall& call, Rows& rows) {
  if (call.boolean("sparse")) {
    return;
  }
  const size_t count = call.operands().size();
  Cells operands(count, Cell());
  operands[0] = Cell::shard(1);
  if (picks_maxima(call)) {
    operands[count - 2] = Cell::shard(1);
  }
  rows.add(Cells{Cell::shard(1)}, std::move(operands));
  add_partial_rows(
      call, {ReduceOp::kSum, ReduceOp::kAvg}, "P" + std::string(count - 1, 'R'),
      rows);
}

void bag_weights_backward_rows(const RuleCall&, Rows& rows) {
  rows.add(
      {Cell::partial(ReduceOp::kSum)},
      {Cell::shard(1), Cell::shard(1), Cell(), Cell(), Cell()});
}

}  // namespace

void add_embedding_rules(RuleTable& t) {
  t.rows("aten::embedding", embedding_rows)
      .also(std::string(kEveryReduceOp) + "PR->P");
  t.rows("aten::embedding_dense_backward", embedding_backward_rows)
      .also("sum,avg: PR->P");
  t.rows(
      Names{"aten::_embedding_bag", "aten::_embedding_bag_forward_only"},
      bag_rows);
  t.rows(
      Names{
          "aten::_embedding_bag_backward",
          "aten::_embedding_bag_dense_backward"},
      bag_backward_rows);
  t.rows(
       "aten::_embedding_bag_per_sample_weights_backward",
       bag_weights_backward_rows)
      .also("sum,avg: PRRRR->P")
      .also("sum,avg: RPRRR->P");
}

}  // namespace tessera::detail::inline rules_layer
