// Picking and placing elements by index tensors.
//
// A dim that an index does not work on can be cut in all operands. The engine
// drops rows whose cut dims differ in size, so that an index that is shorter
// than the tensor, or a source that is longer, never meets the wrong elements.
#include <algorithm>

#include <rules/all_rules.h>
#include <rules/families/index_dims.h>
#include <rules/families/rows_of_dims.h>

namespace tessera::detail::inline rules_layer {

namespace {

// Rows of zeros of other ranks are added; of booleans the greatest is taken.
Cell looked_up(const RuleCall& call) {
  return Cell::partial(
      call.self().dtype == c10::ScalarType::Bool ? ReduceOp::kMax
                                                 : ReduceOp::kSum);
}

std::vector<ReduceOp> all_ops() {
  return {
      ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin,
      ReduceOp::kProduct};
}

const std::vector<ReduceOp> kLinear{ReduceOp::kSum, ReduceOp::kAvg};

int64_t index_dim(const RuleCall& call) {
  return wrap_dim(call.integer("dim"), call.self().ndim());
}

// Cuts every dim but the indexed one, in all operands that have as many dims as
// the first; others are replicated.
void add_other_dims(const RuleCall& call, Rows& rows) {
  const int64_t ndim = call.self().ndim();
  const int64_t dim = index_dim(call);
  for (int64_t d = 0; d < ndim; ++d) {
    if (d != dim) {
      Cells operands;
      for (const Operand& operand : call.operands()) {
        operands.push_back(operand.ndim() == ndim ? Cell::shard(d) : kR);
      }
      rows.add(Cells{Cell::shard(d)}, std::move(operands));
    }
  }
}

// As above for (self, index, source), where index has one dim.
void add_source_dims(const RuleCall& call, Rows& rows) {
  const int64_t dim = index_dim(call);
  for (int64_t d = 0; d < call.self().ndim(); ++d) {
    if (d != dim) {
      rows.add({Cell::shard(d)}, {Cell::shard(d), kR, Cell::shard(d)});
    }
  }
}

void gather_rows(const RuleCall& call, Rows& rows) {
  if (call.self().ndim() == 0) {
    return;
  }
  const Cell along = Cell::shard(index_dim(call));
  add_other_dims(call, rows);
  if (call.operand(1).ndim() > 0) {
    rows.add({along}, {kR, along});
  }
  rows.add({looked_up(call)}, {along, kR}, RunBy::kLookup);
}

void index_select_rows(const RuleCall& call, Rows& rows) {
  const int64_t ndim = call.self().ndim();
  if (ndim == 0) {
    return;
  }
  const int64_t dim = index_dim(call);
  for (int64_t d = 0; d < ndim; ++d) {
    if (d != dim) {
      rows.add({Cell::shard(d)}, {Cell::shard(d), kR});
    }
  }
  if (call.operand(1).ndim() == 1) {
    rows.add({Cell::shard(dim)}, {kR, Cell::shard(0)});
  }
  rows.add({looked_up(call)}, {Cell::shard(dim), kR}, RunBy::kLookup);
}

Cells cells_of(const RuleCall& call, const Cell& self) {
  Cells cells(call.operands().size(), kR);
  cells[0] = self;
  return cells;
}

// self[indices]
void index_rows(const RuleCall& call, Rows& rows) {
  const IndexDims dims(call, call.operands().slice(1));
  for (int64_t d = 0; d < call.self().ndim(); ++d) {
    if (!dims.is_indexed(d)) {
      rows.add(
          Cells{Cell::shard(dims.result_dim(d))},
          cells_of(call, Cell::shard(d)));
    }
  }
  for (int64_t i = 0; dims.are_numbers() && i < dims.index_ndim(); ++i) {
    Cells operands = cells_of(call, kR);
    dims.sharded_index(i, operands);
    rows.add(Cells{Cell::shard(dims.insertion() + i)}, std::move(operands));
  }
  if (const auto d = dims.only_indexed()) {
    rows.add(
        Cells{looked_up(call)}, cells_of(call, Cell::shard(*d)),
        RunBy::kLookup);
  }
  for (const ReduceOp op : all_ops()) {
    rows.add(Cells{Cell::partial(op)}, cells_of(call, Cell::partial(op)));
  }
}

// self[indices] = values, or += values. The values have the shape of
// self[indices] or broadcast to it.
void index_put_rows(const RuleCall& call, Rows& rows) {
  const size_t last = call.operands().size() - 1;
  const Operand& values = call.operand(last);
  const IndexDims dims(call, call.operands().slice(1, last - 1));
  // The cell of the values where dim r of self[indices], of size `size`, is
  // cut.
  const auto values_cell = [&](int64_t r, int64_t size) {
    const int64_t d = r - (dims.result_ndim() - values.ndim());
    const bool has = d >= 0 && values.shape[static_cast<size_t>(d)] == size;
    return has ? Cell::shard(d) : kR;
  };
  for (int64_t d = 0; d < call.self().ndim(); ++d) {
    if (!dims.is_indexed(d)) {
      Cells operands = cells_of(call, Cell::shard(d));
      operands[last] = values_cell(
          dims.result_dim(d), call.self().shape[static_cast<size_t>(d)]);
      rows.add(Cells{Cell::shard(d)}, std::move(operands));
    }
  }
  const bool adds = call.boolean("accumulate");
  const std::vector<ReduceOp> ops = adds ? kLinear : all_ops();
  for (const ReduceOp op : ops) {
    Cells operands = cells_of(call, Cell::partial(op));
    operands[last] = Cell::partial(op);
    rows.add(Cells{Cell::partial(op)}, std::move(operands));
  }
  if (!adds || !dims.are_numbers()) {
    return;
  }
  const Cell sum = Cell::partial(ReduceOp::kSum);
  for (int64_t i = 0; i < dims.index_ndim(); ++i) {
    Cells operands = cells_of(call, sum);
    dims.sharded_index(i, operands);
    operands[last] = values_cell(dims.insertion() + i, dims.index_size(i));
    rows.add(Cells{sum}, std::move(operands));
  }
}

// The source is cut together with the index; each rank adds its part.
void index_add_rows(const RuleCall& call, Rows& rows) {
  if (call.self().ndim() == 0) {
    return;
  }
  add_source_dims(call, rows);
  if (call.operand(1).ndim() == 1) {
    const Cell sum = Cell::partial(ReduceOp::kSum);
    rows.add({sum}, {sum, Cell::shard(0), Cell::shard(index_dim(call))});
  }
}

void index_copy_rows(const RuleCall& call, Rows& rows) {
  if (call.self().ndim() > 0) {
    add_source_dims(call, rows);
  }
}

// The value is a number, or a 0-d tensor, which is replicated.
void index_fill_rows(const RuleCall& call, Rows& rows) {
  if (call.self().ndim() == 0) {
    return;
  }
  const int64_t dim = index_dim(call);
  for (int64_t d = 0; d < call.self().ndim(); ++d) {
    if (d != dim) {
      rows.add(Cells{Cell::shard(d)}, cells_of(call, Cell::shard(d)));
    }
  }
  if (call.operands().size() == 2) {
    add_partial_rows(
        call, ops_that_keep(number_argument(call, "value")), "PR", rows);
  }
}

void scatter_rows(const RuleCall& call, Rows& rows) {
  if (call.self().ndim() > 0) {
    add_other_dims(call, rows);
  }
}

void scatter_value_rows(const RuleCall& call, Rows& rows) {
  scatter_rows(call, rows);
  add_partial_rows(
      call, ops_that_keep(number_argument(call, "value")), "PR", rows);
}

// Index and source cut along the indexed dim: each rank combines its part.
void add_combined_row(const RuleCall& call, ReduceOp op, Rows& rows) {
  const Operand& index = call.operand(1);
  if (call.self().ndim() > 0 && index.ndim() > 0) {
    const Cell along = Cell::shard(index_dim(call));
    rows.add({Cell::partial(op)}, {Cell::partial(op), along, along});
  }
}

void scatter_add_rows(const RuleCall& call, Rows& rows) {
  scatter_rows(call, rows);
  add_combined_row(call, ReduceOp::kSum, rows);
}

void scatter_with_reduce_rows(const RuleCall& call, Rows& rows) {
  scatter_rows(call, rows);
  const bool has_source = call.operands().size() == 3;
  const bool adds = call.argument("reduce").toStringRef() == "add";
  if (adds && has_source) {
    add_partial_rows(call, kLinear, "PRP", rows);
    add_combined_row(call, ReduceOp::kSum, rows);
  }
  if (!adds && !has_source) {
    add_partial_rows(call, kLinear, "PR", rows);
  }
}

void scatter_reduce_rows(const RuleCall& call, Rows& rows) {
  scatter_rows(call, rows);
  const std::string& reduce = call.argument("reduce").toStringRef();
  // Without itself, an element that a rank's part does not reach must not
  // count, which the rank cannot know.
  const bool splits = call.boolean("include_self", true);
  const auto add = [&](const std::vector<ReduceOp>& ops) {
    add_partial_rows(call, ops, "PRP", rows);
    if (splits) {
      add_combined_row(call, ops[0], rows);
    }
  };
  if (reduce == "sum") {
    add(kLinear);
  } else if (reduce == "amax") {
    add({ReduceOp::kMax});
  } else if (reduce == "amin") {
    add({ReduceOp::kMin});
  } else if (reduce == "prod" && splits) {
    add({ReduceOp::kProduct});
  }
}

void take_rows(const RuleCall& call, Rows& rows) {
  for (int64_t d = 0; d < call.operand(1).ndim(); ++d) {
    rows.add({Cell::shard(d)}, {kR, Cell::shard(d)});
  }
}

void put_rows(const RuleCall& call, Rows& rows) {
  const bool adds = call.boolean("accumulate");
  add_partial_rows(call, adds ? kLinear : all_ops(), "PRP", rows);
  const Operand& index = call.operand(1);
  if (adds && index.shape == call.operand(2).shape) {
    const Cell sum = Cell::partial(ReduceOp::kSum);
    for (int64_t d = 0; d < index.ndim(); ++d) {
      rows.add({sum}, {sum, Cell::shard(d), Cell::shard(d)});
    }
  }
}

}  // namespace

void add_indexing_rules(RuleTable& t) {
  const std::string all = kEveryReduceOp;
  t.rows("aten::gather", gather_rows).also(all + "PR->P");
  t.rows("aten::index_select", index_select_rows).also(all + "PR->P");
  t.rows(Names{"aten::index.Tensor", "aten::_unsafe_index.Tensor"}, index_rows);
  t.rows(
      Names{
          "aten::index_put", "aten::_unsafe_index_put",
          "aten::_index_put_impl"},
      index_put_rows);
  t.rows("aten::index_add", index_add_rows).also("sum,avg: PRP->P");
  t.rows("aten::index_copy", index_copy_rows).also(all + "PRP->P");
  t.rows("aten::index_reduce", index_copy_rows);
  t.rows(
       Names{"aten::index_fill.int_Scalar", "aten::index_fill.int_Tensor"},
       index_fill_rows)
      .also(all + "PRP->P");
  t.rows("aten::scatter.src", scatter_rows).also(all + "PRP->P");
  t.rows("aten::scatter.value", scatter_value_rows);
  t.rows(
      Names{"aten::scatter.reduce", "aten::scatter.value_reduce"},
      scatter_with_reduce_rows);
  t.rows("aten::scatter_add", scatter_add_rows).also("sum,avg: PRP->P");
  t.rows("aten::scatter_reduce.two", scatter_reduce_rows);
  t.rows("aten::take", take_rows).also(all + "PR->P");
  t.rows("aten::put", put_rows);
  t.rows("aten::masked_scatter", [](const RuleCall&, Rows&) {
     // Elements of the source are used up in order, so nothing is cut.
   }).also(all + "PRP->P");
}

}  // namespace tessera::detail::inline rules_layer
