// Joining, repeating, moving and padding whole dims, and the backward forms of
// views. All of them copy elements, beside constants: Partial passes where the
// constants reduce to themselves.
#include <algorithm>
#include <limits>

#include <rules/all_rules.h>
#include <rules/families/rows_of_dims.h>

namespace tessera::detail::inline rules_layer {

double number_argument(const RuleCall& call, std::string_view name) {
  const c10::IValue& value = call.argument(name);
  if (value.isInt()) {
    return static_cast<double>(value.toInt());
  }
  if (value.isBool()) {
    return value.toBool() ? 1 : 0;
  }
  return value.isDouble() ? value.toDouble()
                          : std::numeric_limits<double>::quiet_NaN();
}

namespace {

const std::vector<ReduceOp> kAllOps{
    ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin,
    ReduceOp::kProduct};

bool have_one_dtype(const RuleCall& call) {
  return std::all_of(
      call.operands().begin(), call.operands().end(),
      [&](const Operand& o) { return o.dtype == call.self().dtype; });
}

int64_t most_dims(const RuleCall& call) {
  int64_t ndim = 0;
  for (const Operand& operand : call.operands()) {
    ndim = std::max(ndim, operand.ndim());
  }
  return ndim;
}

// Tensors of shape [0] join tensors of any number of dims.
void cat_rows(const RuleCall& call, Rows& rows) {
  const int64_t ndim = most_dims(call);
  if (ndim == 0) {
    return;
  }
  const int64_t dim = wrap_dim(call.integer("dim"), ndim);
  const auto row = [&](Cell cell) {
    Cells operands;
    for (const Operand& operand : call.operands()) {
      operands.push_back(operand.ndim() == ndim ? cell : Cell());
    }
    rows.add(Cells{cell}, std::move(operands));
  };
  for (int64_t d = 0; d < ndim; ++d) {
    if (d != dim) {
      row(Cell::shard(d));
    }
  }
  if (have_one_dtype(call)) {
    for (const ReduceOp op : kAllOps) {
      row(Cell::partial(op));
    }
  }
}

void stack_rows(const RuleCall& call, Rows& rows) {
  const size_t count = call.operands().size();
  if (count == 0) {
    return;
  }
  const int64_t ndim = call.self().ndim();
  const int64_t dim = wrap_dim(call.integer("dim"), ndim + 1);
  for (int64_t d = 0; d < ndim; ++d) {
    rows.add(
        Cells{Cell::shard(d < dim ? d : d + 1)}, Cells(count, Cell::shard(d)));
  }
  if (have_one_dtype(call)) {
    add_partial_rows(call, kAllOps, std::string(count, 'P'), rows);
  }
}

void repeat_rows(const RuleCall& call, Rows& rows) {
  const std::vector<int64_t> repeats = call.integers("repeats");
  const int64_t ndim = call.self().ndim();
  const int64_t added = static_cast<int64_t>(repeats.size()) - ndim;
  for (int64_t d = 0; added >= 0 && d < ndim; ++d) {
    if (repeats[static_cast<size_t>(added + d)] == 1) {
      rows.add({Cell::shard(added + d)}, {Cell::shard(d)});
    }
  }
}

// Dims that the call does not name; where it names none, roll() works on the
// flat tensor and flip() does nothing.
void moved_rows(const RuleCall& call, Rows& rows) {
  const int64_t ndim = call.self().ndim();
  const std::vector<int64_t> dims = call.integers("dims");
  if (dims.empty() && call.has_argument("shifts")) {
    return;
  }
  std::vector<bool> moved(static_cast<size_t>(std::max<int64_t>(ndim, 1)));
  for (const int64_t d : dims) {
    moved[static_cast<size_t>(wrap_dim(d, ndim))] = true;
  }
  for (int64_t d = 0; d < ndim; ++d) {
    if (!moved[static_cast<size_t>(d)]) {
      rows.add({Cell::shard(d)}, {Cell::shard(d)});
    }
  }
}

// Pads come in pairs, those of the last dim first; a negative one cuts off.
void pad_rows(const RuleCall& call, Rows& rows) {
  const std::vector<int64_t> pad = call.integers("pad");
  const int64_t ndim = call.self().ndim();
  bool grows = false;
  for (int64_t d = 0; d < ndim; ++d) {
    const auto at = static_cast<size_t>(2 * (ndim - 1 - d));
    if (at + 1 >= pad.size() || (pad[at] == 0 && pad[at + 1] == 0)) {
      rows.add({Cell::shard(d)}, {Cell::shard(d)});
    } else {
      grows = grows || pad[at] > 0 || pad[at + 1] > 0;
    }
  }
  add_partial_rows(
      call, grows ? ops_that_keep(number_argument(call, "value")) : kAllOps,
      "P", rows);
}

// The dims of the other tensor that a call removes from `ndim` dims.
std::vector<int64_t> removed_dims(const RuleCall& call, int64_t ndim) {
  std::vector<int64_t> dims;
  for (const char* name : {"dim", "dim1", "dim2"}) {
    if (call.has_argument(name)) {
      dims.push_back(wrap_dim(call.integer(name), ndim));
    }
  }
  return dims;
}

// Calls f(d, k) for every dim d of the larger tensor that stays, and its number
// k in the smaller one.
template <class F>
void for_each_kept(const RuleCall& call, int64_t ndim, F f) {
  const std::vector<int64_t> removed = removed_dims(call, ndim);
  int64_t k = 0;
  for (int64_t d = 0; d < ndim; ++d) {
    if (std::find(removed.begin(), removed.end(), d) == removed.end()) {
      f(d, k++);
    }
  }
}

// The result has the shape `input_sizes`, and zeros beside the operand.
void removed_backward_rows(const RuleCall& call, Rows& rows) {
  const auto ndim = static_cast<int64_t>(call.integers("input_sizes").size());
  for_each_kept(call, ndim, [&](int64_t d, int64_t k) {
    rows.add({Cell::shard(d)}, {Cell::shard(k)});
  });
}

void same_dims_backward_rows(const RuleCall& call, Rows& rows) {
  const auto ndim = static_cast<int64_t>(call.integers("input_sizes").size());
  for_each_kept(call, ndim, [&](int64_t d, int64_t) {
    rows.add({Cell::shard(d)}, {Cell::shard(d)});
  });
}

void scatter_view_rows(const RuleCall& call, Rows& rows) {
  const int64_t ndim = call.self().ndim();
  for_each_kept(call, ndim, [&](int64_t d, int64_t k) {
    const bool same = call.operand(1).ndim() == ndim;
    rows.add({Cell::shard(d)}, {Cell::shard(d), Cell::shard(same ? d : k)});
  });
}

// The last dim becomes two, dim1 and dim2 of the result.
void diag_embed_rows(const RuleCall& call, Rows& rows) {
  const int64_t ndim = call.self().ndim();
  for_each_kept(call, ndim + 1, [&](int64_t d, int64_t k) {
    rows.add({Cell::shard(d)}, {Cell::shard(k)});
  });
}

}  // namespace

void add_concat_rules(RuleTable& t) {
  const std::string all = kEveryReduceOp;
  t.rows("aten::cat", cat_rows).channels_last();
  t.rows(Names{"aten::stack", "aten::_stack"}, stack_rows);
  t.rows("aten::repeat", repeat_rows).also(all + "P->P");
  t.rows(Names{"aten::roll", "aten::flip"}, moved_rows)
      .also(all + "P->P")
      .like_operands();
  t.rows("aten::rot90", moved_rows).also(all + "P->P");
  t.along({"aten::narrow_copy"}).also(all + "P->P");
  t.rows("aten::constant_pad_nd", pad_rows).channels_last();
  t.rows("aten::diag_embed", diag_embed_rows).also(all + "P->P");

  t.rows(
       Names{"aten::select_backward", "aten::diagonal_backward"},
       removed_backward_rows)
      .shape_argument("input_sizes")
      .also(all + "P->P");
  t.rows("aten::slice_backward", same_dims_backward_rows)
      .shape_argument("input_sizes")
      .also(all + "P->P");
  // Windows overlap: elements are added.
  t.rows("aten::unfold_backward", same_dims_backward_rows)
      .shape_argument("input_sizes")
      .also("sum,avg: P->P");
  t.rows(
       Names{
           "aten::slice_scatter", "aten::select_scatter",
           "aten::diagonal_scatter"},
       scatter_view_rows)
      .also(all + "PP->P");
}

}  // namespace tessera::detail::inline rules_layer
