// Products of matrices. Each is linear in each factor, so that a Partial factor
// passes where the other one is replicated.
#include <rules/all_rules.h>

namespace tessera::detail::inline rules_layer {

namespace {

// The scales of one factor when its free dim is cut: one number for all of it,
// or one per row. Blocks of scales cannot be cut.
bool scale_cell(
    const Operand& scale, int64_t free_dim, int64_t size, Cell& cell) {
  int64_t count = 1;
  for (const int64_t n : scale.shape) {
    count *= n;
  }
  const bool per_row = scale.ndim() == 2 &&
                       scale.shape[static_cast<size_t>(free_dim)] == size &&
                       count == size;
  cell = per_row && size > 1 ? Cell::shard(free_dim) : Cell();
  return count == 1 || per_row;
}

// Parts of a result can be added up where it is no 8-bit float, and where every
// part is scaled alike: by one number for all of a factor, or one per row.
bool adds_up(const RuleCall& call) {
  if (call.is_none("out_dtype") || call.operand(5).defined) {
    return false;
  }
  const c10::ScalarType result = call.argument("out_dtype").toScalarType();
  Cell scale;
  return (result == c10::kFloat || result == c10::kBFloat16 ||
          result == c10::kHalf) &&
         scale_cell(call.operand(2), 0, call.operand(0).shape[0], scale) &&
         scale_cell(call.operand(3), 1, call.operand(1).shape[1], scale);
}

// self, mat2, their scales, bias, scale of the result
void add_scaled_mm_rows(const RuleCall& call, Rows& rows) {
  Cell scale;
  if (adds_up(call)) {
    const Cell bias = call.operand(4).defined ? kSum : Cell();
    rows.add(
        {kSum}, {Cell::shard(1), Cell::shard(0), Cell(), Cell(), bias, Cell()},
        RunBy::kScaledProduct);
  }
  if (scale_cell(call.operand(2), 0, call.operand(0).shape[0], scale)) {
    rows.add(
        {Cell::shard(0)},
        {Cell::shard(0), Cell(), scale, Cell(), Cell(), Cell()});
  }
  if (scale_cell(call.operand(3), 1, call.operand(1).shape[1], scale)) {
    rows.add(
        {Cell::shard(1)},
        {Cell(), Cell::shard(1), Cell(), scale, Cell::shard(0), Cell()});
  }
}

// Matrices side by side in one, along the dim that the offsets cut: never ours.
// The last dims of both must keep their alignment: they are not cut either.
void add_grouped_mm_rows(const RuleCall& call, Rows& rows) {
  const bool left_3d = call.operand(0).ndim() == 3;
  const bool right_3d = call.operand(1).ndim() == 3;
  if (call.operand(3).defined) {
    return;
  }
  const auto add = [&](int64_t output, Cell left, Cell right) {
    rows.add({Cell::shard(output)}, {left, right, Cell(), Cell()});
  };
  const Cell replicated;
  if (left_3d && right_3d) {  // [g, m, k], [g, k, n] -> [g, m, n]
    add(0, Cell::shard(0), Cell::shard(0));
    add(1, Cell::shard(1), replicated);
  } else if (left_3d) {  // [g, m, k], [k, n] -> [m, n]
    add(0, Cell::shard(1), replicated);
  } else if (!right_3d) {  // [m, k], [k, n] -> [g, m, n]
    add(1, Cell::shard(0), replicated);
  }
}

}  // namespace

void add_matmul_rules(RuleTable& t) {
  for (auto [name, text] :
       {std::pair{"aten::mm.*", "mk,kn->mn"},
        {"aten::bmm.*", "bmk,bkn->bmn"},
        {"aten::mv.*", "mk,k->m"},
        {"aten::dot.*", "k,k->"},
        {"aten::vdot.*", "k,k->"}}) {
    t.factors(name, text).also("sum,avg: PR->P").also("sum,avg: RP->P");
  }
  for (auto [name, text] :
       {std::pair{"aten::addmm.*", "mn,mk,kn->mn"},
        {"aten::baddbmm.*", "bmn,bmk,bkn->bmn"},
        {"aten::addbmm.*", "mn,bmk,bkn->mn"},
        {"aten::addr.*", "mn,m,n->mn"}}) {
    t.factors(name, text)
        .bias(0)
        .also("sum,avg: PPR->P")
        .also("sum,avg: PRP->P");
  }
  // A bias of one element makes one row of none.
  t.factors("aten::addmv.*", "m,mk,k->m")
      .bias(0)
      .also("sum,avg: PPR->P")
      .also("sum,avg: PRP->P")
      .not_empty();
  // Not linear, and nothing to be added up.
  t.factors("aten::_addmm_activation.*", "mn,m.,.n->mn");
  t.factors("aten::_int_mm.*", "mk,kn->mn");
  t.rows("aten::_scaled_mm.*", add_scaled_mm_rows);
  t.rows("aten::_grouped_mm", add_grouped_mm_rows)
      .also("sum,avg: PRRR->P")
      .also("sum,avg: RPRR->P");
  t.whole({"aten::_trilinear"})
      .also("sum,avg: PRR->P")
      .also("sum,avg: RPR->P")
      .also("sum,avg: RRP->P");
}

}  // namespace tessera::detail::inline rules_layer
