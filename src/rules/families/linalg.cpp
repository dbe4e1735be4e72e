// Linear algebra over batches of matrices, and transforms.
#include <algorithm>

#include <rules/all_rules.h>
#include <rules/rule_entry.h>

namespace tessera::detail::inline rules_layer {

namespace {

using Names = std::vector<std::string>;

// How many dims of each operand belong to one problem: 2 of a matrix, 1 of a
// vector. The dims before them are batches, broadcast from the right.
using Trailing = std::vector<int64_t>;

int64_t batch_ndim(const RuleCall& call, const Trailing& trailing) {
  int64_t ndim = 0;
  for (size_t i = 0; i < trailing.size(); ++i) {
    ndim = std::max(ndim, call.operand(i).ndim() - trailing[i]);
  }
  return ndim;
}

// The cells that cut batch dim d (of `ndim` broadcast ones); operands that are
// broadcast along it are replicated.
Cells batch_cells(
    const RuleCall& call, const Trailing& trailing, int64_t ndim, int64_t d) {
  int64_t size = 1;
  Cells cells(trailing.size(), Cell());
  for (const bool fill : {false, true}) {
    for (size_t i = 0; i < trailing.size(); ++i) {
      const Operand& operand = call.operand(i);
      const int64_t own = d - (ndim - (operand.ndim() - trailing[i]));
      if (!operand.defined || own < 0) {
        continue;
      }
      const int64_t here = operand.shape[static_cast<size_t>(own)];
      if (!fill) {
        size = here != 1 ? here : size;
      } else if (here == size) {
        cells[i] = Cell::shard(own);
      }
    }
  }
  return cells;
}

// All outputs have all batch dims.
RowsFn batched(Trailing trailing) {
  return [trailing = std::move(trailing)](const RuleCall& call, Rows& rows) {
    const int64_t ndim = batch_ndim(call, trailing);
    for (int64_t d = 0; d < ndim; ++d) {
      rows.add(
          Cells(call.output_count(), Cell::shard(d)),
          batch_cells(call, trailing, ndim, d));
    }
  };
}

// One matrix; outputs that the arguments say are not wanted are empty.
using IsEmpty = bool (*)(const RuleCall&, size_t output);

RowsFn matrix(IsEmpty is_empty) {
  return [is_empty](const RuleCall& call, Rows& rows) {
    for (int64_t d = 0; d < call.self().ndim() - 2; ++d) {
      Cells outputs(call.output_count(), Cell::shard(d));
      for (size_t o = 0; o < outputs.size(); ++o) {
        outputs[o] = is_empty(call, o) ? Cell() : outputs[o];
      }
      Cells operands(call.operands().size(), Cell::shard(d));
      rows.add(std::move(outputs), std::move(operands));
    }
  };
}

// One column of a right-hand side after the other, with the same matrix. A
// right-hand side from the right has rows instead.
void add_column_rows(const RuleCall& call, size_t rhs, Rows& rows) {
  const int64_t ndim = call.operand(rhs).ndim();
  const int64_t column = call.boolean("left", true) ? ndim - 1 : ndim - 2;
  Cells operands(call.operands().size(), Cell());
  operands[rhs] = Cell::shard(column);
  Cells outputs(call.output_count(), Cell());
  // Batch dims of the matrix come first in the result.
  outputs[0] = Cell::shard(column - ndim);
  rows.add(outputs, operands);
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
    operands[rhs] = Cell::partial(op);
    outputs[0] = Cell::partial(op);
    rows.add(outputs, operands);
  }
}

// Solvers with one output.
RowsFn solver(Trailing trailing, size_t rhs) {
  return [all = batched(std::move(trailing)), rhs](
             const RuleCall& call, Rows& rows) {
    all(call, rows);
    add_column_rows(call, rhs, rows);
  };
}

// A, B -> solution, LU, pivots, info: the last three have the batch dims of A.
void add_solve_rows(const RuleCall& call, Rows& rows) {
  const Operand& a = call.operand(0);
  const Operand& b = call.operand(1);
  // As in the operator: B is vectors where it has the shape of A but for one.
  const bool vectors =
      b.ndim() == 1 || (b.ndim() == a.ndim() - 1 &&
                        b.shape == a.shape.slice(0, a.shape.size() - 1));
  const Trailing trailing{2, vectors ? 1 : 2};
  const int64_t ndim = batch_ndim(call, trailing);
  for (int64_t d = 0; d < ndim; ++d) {
    const Cells cells = batch_cells(call, trailing, ndim, d);
    rows.add(Cells{Cell::shard(d), cells[0], cells[0], cells[0]}, cells);
  }
  if (!vectors) {
    add_column_rows(call, 1, rows);
  }
}

void add_cross_rows(const RuleCall& call, Rows& rows) {
  Rows plain;
  pointwise_rows(call, plain);
  const int64_t ndim = std::max(call.operand(0).ndim(), call.operand(1).ndim());
  const int64_t dim = wrap_dim(call.integer("dim"), ndim);
  for (const Row& row : plain.rows()) {
    if (row.outputs[0].dim() != dim) {
      rows.add(row.outputs, row.operands);
    }
  }
}

// [b, p, m], [b, r, m] -> [b, p, r]
void add_distance_rows(const RuleCall& call, Rows& rows) {
  batched({2, 2})(call, rows);
  rows.add({Cell::shard(-2)}, {Cell::shard(-2), Cell()});
  rows.add({Cell::shard(-1)}, {Cell(), Cell::shard(-2)});
}

// gradient [b, p, r], x1 [b, p, m], x2 [b, r, m], distances [b, p, r]
// -> gradient of x1 [b, p, m]
void add_distance_gradient_rows(const RuleCall& call, Rows& rows) {
  const int64_t ndim = call.self().ndim();
  const bool same_ndim = call.operand(1).ndim() == ndim &&
                         call.operand(2).ndim() == ndim &&
                         call.operand(3).ndim() == ndim;
  for (int64_t d = 0; d < ndim - 2 && same_ndim; ++d) {
    const Cell sharded = Cell::shard(d);
    rows.add({sharded}, {sharded, sharded, sharded, sharded});
  }
  const Cell last = Cell::shard(-1);
  const Cell before = Cell::shard(-2);
  rows.add({before}, {before, before, Cell(), before});
  rows.add({Cell::partial(ReduceOp::kSum)}, {last, Cell(), before, last});
  rows.add({last}, {Cell(), last, last, Cell()});
}

bool none_is_empty(const RuleCall& /*call*/, size_t /*output*/) {
  return false;
}

void add_factorizations(RuleTable& t) {
  t.rows(
      Names{
          "aten::_linalg_det", "aten::_linalg_slogdet", "aten::_linalg_eigvals",
          "aten::linalg_eig", "aten::linalg_eigvals",
          "aten::linalg_lu_factor_ex", "aten::linalg_inv_ex",
          "aten::linalg_cholesky_ex", "aten::cholesky",
          "aten::cholesky_inverse", "aten::linalg_ldl_factor_ex",
          "aten::linalg_matrix_exp", "aten::geqrf"},
      matrix(none_is_empty));
  t.rows("aten::_linalg_svd", matrix([](const RuleCall& call, size_t o) {
           return o != 1 && !call.boolean("compute_uv");
         }));
  t.rows("aten::_linalg_eigh", matrix([](const RuleCall& call, size_t o) {
           return o == 1 && !call.boolean("compute_v");
         }));
  t.rows("aten::linalg_qr", matrix([](const RuleCall& call, size_t o) {
           return o == 0 && call.argument("mode").toStringRef() == "r";
         }));
  t.rows("aten::linalg_lu", matrix([](const RuleCall& call, size_t o) {
           return o == 0 && !call.boolean("pivot");
         }));
  t.rows("aten::lu_unpack", [](const RuleCall& call, Rows& rows) {
    const bool data = call.boolean("unpack_data");
    const bool pivots = call.boolean("unpack_pivots");
    for (int64_t d = 0; d < call.self().ndim() - 2; ++d) {
      const Cell sharded = Cell::shard(d);
      const Cell part = data ? sharded : Cell();
      rows.add({pivots ? sharded : Cell(), part, part}, {sharded, sharded});
    }
  });
  t.rows("aten::linalg_householder_product", batched({2, 1}));
  t.rows("aten::ormqr", batched({2, 1, 2}));
  t.rows("aten::linalg_pinv.atol_rtol_tensor", batched({2, 0, 0}));
}

void add_solvers(RuleTable& t) {
  t.rows("aten::_linalg_solve_ex", add_solve_rows);
  t.rows("aten::linalg_solve_triangular", solver({2, 2}, 1));
  t.rows("aten::cholesky_solve", solver({2, 2}, 0));
  t.rows("aten::_cholesky_solve_helper", solver({2, 2}, 0));
  t.rows("aten::linalg_lu_solve", solver({2, 1, 2}, 2));
  t.rows("aten::linalg_ldl_solve", solver({2, 1, 2}, 2));
  // The second output is a copy of the matrix, with all batch dims.
  t.rows("aten::triangular_solve", batched({2, 2}));
  // Every rank must see every failure; and lstsq returns what its driver finds.
  t.whole({"aten::_linalg_check_errors", "aten::linalg_lstsq"});
}

}  // namespace

void add_linalg_rules(RuleTable& t) {
  add_factorizations(t);
  add_solvers(t);
  t.rows("aten::linalg_cross", add_cross_rows)
      .also("sum,avg: PR->P")
      .also("sum,avg: RP->P");
  t.rows(
      Names{"aten::_cdist_forward", "aten::_euclidean_dist"},
      add_distance_rows);
  // Of no elements the kernel returns zeros without the broadcast dims.
  t.rows("aten::_cdist_backward", add_distance_gradient_rows)
      .also("sum,avg: PRRR->P")
      .not_empty();
  t.whole({"aten::_pdist_forward", "aten::_pdist_backward"});
  // Zeros are zeros in every part.
  t.leading({"aten::tril", "aten::triu"}, 2)
      .also([](const RuleCall& call, Rows& rows) {
        const int64_t ndim = call.self().ndim();
        for (int64_t d = ndim - 2; d >= 0 && d < ndim; ++d) {
          rows.add({Cell::shard(d)}, {Cell::shard(d)}, RunBy::kTriangle);
        }
      })
      .also("sum,avg,max,min,product: P->P");
  t.along({"aten::_fft_c2c", "aten::_fft_r2c", "aten::_fft_c2r"})
      .also("sum,avg: P->P")
      .not_empty();
}

}  // namespace tessera::detail::inline rules_layer
