// Reductions: what is left of the dims that argument "dim" names is one value.
#include <cmath>

#include <rules/families/casts.h>
#include <rules/rule_entry.h>

namespace tessera::detail::inline rules_layer {

namespace {

using Names = std::vector<std::string>;

constexpr RunBy kIdentity = RunBy::kIdentity;
constexpr RunBy kMean = RunBy::kMean;

// The rows of a reduction; cuts of reduced dims are run by `kernel`.
void add_reduced_by(
    ReduceOp op, RunBy kernel, const RuleCall& call, Rows& rows) {
  Rows plain;
  reduction_rows(op)(call, plain);
  for (const Row& row : plain.rows()) {
    rows.add(
        row.outputs, row.operands,
        row.outputs[0].is_partial() ? kernel : RunBy::kOperator);
  }
}

RowsFn reduced_by(ReduceOp op, RunBy kernel) {
  return [op, kernel](const RuleCall& call, Rows& rows) {
    add_reduced_by(op, kernel, call, rows);
  };
}

// all and any: an empty list of dims reduces nothing, other than everywhere
// else. Of bools, they are the minimum and the maximum.
RowsFn logical(ReduceOp op) {
  return [op](const RuleCall& call, Rows& rows) {
    const bool keeps_all = call.has_argument("dim") && !call.is_none("dim") &&
                           call.integers("dim").empty();
    if (keeps_all) {
      pointwise_rows(call, rows);
    } else {
      reduction_rows(op)(call, rows);
    }
    if (call.self().dtype == c10::ScalarType::Bool) {
      add_same_partial(rows, {op});
    }
  };
}

// Two outputs, the smallest and the largest.
void add_aminmax_rows(const RuleCall& call, Rows& rows) {
  Rows plain;
  reduction_rows(ReduceOp::kMin)(call, plain);
  for (const Row& row : plain.rows()) {
    Cells outputs = row.outputs;
    if (outputs[0].is_partial()) {
      outputs[1] = Cell::partial(ReduceOp::kMax);
    }
    rows.add(outputs, row.operands);
  }
}

double order_of_norm(const RuleCall& call) {
  for (const char* name : {"ord", "p"}) {
    if (call.has_argument(name)) {
      return call.is_none(name) ? 2 : call.argument(name).toScalar().toDouble();
    }
  }
  return 2;
}

// A norm of parts is a part of the norm for these orders only: 0 counts, 1 adds
// up, +-inf pick. The norm of (3 | 4) is 5, and neither 7 nor 4.
void add_norm_rows(const RuleCall& call, Rows& rows) {
  const double order = order_of_norm(call);
  if (order == 0 || order == 1) {
    reduction_rows(ReduceOp::kSum)(call, rows);
  } else if (std::isinf(order)) {
    add_reduced_by(
        order > 0 ? ReduceOp::kMax : ReduceOp::kMin, kIdentity, call, rows);
  } else {
    reduction_rows(std::nullopt)(call, rows);
  }
}

// The norm of a difference; see add_norm_rows.
void add_distance_rows(const RuleCall& call, Rows& rows) {
  const double order = order_of_norm(call);
  if (order != 0 && order != 1) {
    return;
  }
  Rows plain;
  pointwise_rows(call, plain);
  for (const Row& row : plain.rows()) {
    rows.add(Cells{Cell::partial(ReduceOp::kSum)}, row.operands);
  }
}

// Sums of powers add up, whatever the (finite) power.
void add_power_sum_rows(const RuleCall& call, Rows& rows) {
  if (std::isfinite(order_of_norm(call))) {
    reduction_rows(ReduceOp::kSum)(call, rows);
  } else {
    reduction_rows(std::nullopt)(call, rows);
  }
}

// Counts of parts add up where the bins do not depend on the data.
void add_histc_rows(const RuleCall& call, Rows& rows) {
  if (call.argument("min").toScalar().toDouble() <
      call.argument("max").toScalar().toDouble()) {
    for (int64_t d = 0; d < call.self().ndim(); ++d) {
      rows.add({Cell::partial(ReduceOp::kSum)}, {Cell::shard(d)});
    }
  }
}

// Counts and edges; weights are cut with the data.
void add_histogram_rows(const RuleCall& call, Rows& rows) {
  const bool has_edges = call.operands().size() == 3;
  if (call.boolean("density") || (!has_edges && call.is_none("range"))) {
    return;
  }
  for (int64_t d = 0; d < call.self().ndim(); ++d) {
    Cells operands(call.operands().size(), Cell::shard(d));
    if (has_edges) {
      operands[1] = Cell();
    }
    rows.add(Cells{Cell::partial(ReduceOp::kSum), Cell()}, std::move(operands));
  }
}

}  // namespace

namespace {
// What a rank holds of the diagonal is a part of its sum.
void trace_rows(const RuleCall& call, Rows& rows) {
  for (int64_t d = 0; d < call.self().ndim(); ++d) {
    if (call.self().ndim() == 2) {
      rows.add({kSum}, {Cell::shard(d)}, RunBy::kTrace);
    }
  }
}
}  // namespace

void add_reduction_rules(RuleTable& t) {
  // item(): of a tensor without dims, whose partial values are summed up first.
  t.whole({"aten::_local_scalar_dense"});
  t.reduction({"aten::sum.*"}, ReduceOp::kSum).also(add_linear_if_cast_allows);
  // NaN plus a number is NaN, which counts as 0 here, but the part does not.
  t.reduction({"aten::nansum.*"}, ReduceOp::kSum);
  t.reduction({"aten::prod.*"}, ReduceOp::kProduct)
      .also([](const RuleCall& call, Rows& rows) {
        if (asked_dtype(call, call.self()) == call.self().dtype) {
          add_same_partial(rows, {ReduceOp::kProduct});
        }
      });
  t.reduction({"aten::mean.*"}, ReduceOp::kSum)
      .instead(reduced_by(ReduceOp::kSum, kMean))
      .also(add_linear_if_cast_allows);
  t.reduction({"aten::amax.*", "aten::max"}, ReduceOp::kMax)
      .instead(reduced_by(ReduceOp::kMax, kIdentity))
      .also("max: P->P");
  t.reduction({"aten::amin.*", "aten::min"}, ReduceOp::kMin)
      .instead(reduced_by(ReduceOp::kMin, kIdentity))
      .also("min: P->P");
  t.rows(Names{"aten::aminmax.*", "aten::_aminmax.*"}, add_aminmax_rows)
      .not_empty();
  t.reduction({"aten::any.*", "aten::_is_any_true"}, ReduceOp::kMax)
      .instead(logical(ReduceOp::kMax));
  t.reduction({"aten::all.*", "aten::_is_all_true"}, ReduceOp::kMin)
      .instead(logical(ReduceOp::kMin));
  t.reduction({"aten::count_nonzero.*"}, ReduceOp::kSum);
  t.reduction(
      {"aten::max.dim", "aten::min.dim", "aten::argmax.*", "aten::argmin.*",
       "aten::median.*", "aten::nanmedian.*", "aten::mode.*",
       "aten::kthvalue.*", "aten::var.*", "aten::std.*", "aten::var_mean.*",
       "aten::std_mean.*", "aten::logsumexp.*", "aten::hash_tensor.*"});
  t.rows(
      Names{
          "aten::linalg_vector_norm.*", "aten::norm.*", "aten::native_norm.*"},
      add_norm_rows);
  t.rows("aten::linalg__powsum.*", add_power_sum_rows);
  t.rows("aten::dist", add_distance_rows);
  t.rows("aten::histc.*", add_histc_rows);
  t.rows("aten::histogram.*", add_histogram_rows);
  t.rows("aten::trace", trace_rows).also("sum,avg: P->P");
}

}  // namespace tessera::detail::inline rules_layer
