// What the library makes of a call where the rows are chosen already.
#include <algorithm>

#include <oracle/oracle.h>
#include <oracle/simulated_ranks.h>

namespace tessera::oracle {

namespace {

using detail::Rule;
using detail::RuleChoice;

const Rows::Cell& output_cell(const Rows::Row& row, size_t o) {
  return row.outputs.size() == 1 ? row.outputs[0] : row.outputs[o];
}

int64_t wrapped(int64_t dim, int64_t ndim) {
  return dim < 0 ? dim + ndim : dim;
}

// Does some rank hold nothing of a dim that is not empty?
bool leaves_empty(
    const Operand& operand, int64_t dim, const MeshShape& mesh,
    Placements placements) {
  if (operand.shape[static_cast<size_t>(dim)] == 0) {
    return false;
  }
  placements.resize(static_cast<size_t>(mesh.ndim()), Replicate());
  const Layout layout(operand.shape.vec(), mesh, placements);
  for (const Coordinate& coordinate : coordinates_of(mesh)) {
    if (layout.local_shape(coordinate)[static_cast<size_t>(dim)] == 0) {
      return true;
    }
  }
  return false;
}

bool suits_dtype(ReduceOp op, c10::ScalarType dtype) {
  switch (op) {
    case ReduceOp::kSum:
      return dtype != at::kBool;
    case ReduceOp::kAvg:
      return c10::isFloatingType(dtype) || c10::isComplexType(dtype);
    case ReduceOp::kMax:
    case ReduceOp::kMin:
      return !c10::isComplexType(dtype);
    case ReduceOp::kProduct:
      break;
  }
  return true;
}

// Sums and averages of one tensor add up; other kinds do not mix.
bool is_one_kind(const Placements& placements) {
  int kinds[5] = {};
  for (const Placement& p : placements) {
    if (p.is_partial()) {
      const ReduceOp op =
          p.reduce_op() == ReduceOp::kAvg ? ReduceOp::kSum : p.reduce_op();
      kinds[static_cast<size_t>(op)] = 1;
    }
  }
  return kinds[0] + kinds[1] + kinds[2] + kinds[3] + kinds[4] <= 1;
}

// Uneven lengths, none for one rank where there are more than two.
Placement ragged(int64_t size, int64_t parts) {
  std::vector<int64_t> lengths(static_cast<size_t>(parts), 0);
  lengths[0] = size / 3;
  lengths[lengths.size() - 1] = size - size / 3;
  if (parts > 3) {
    lengths[2] = lengths[0] / 2;
    lengths[0] -= lengths[2];
  }
  return RaggedShard(0, lengths);
}

Placement cut_of(CutStyle style, const MeshShape& mesh, int64_t m, int64_t n) {
  switch (style) {
    case CutStyle::kPlain:
      break;
    case CutStyle::kStrided:
      return StridedShard(0, 2);
    case CutStyle::kRagged:
      return ragged(n, mesh.size(m));
    case CutStyle::kTurned:
      return Shard(0).with_order(mesh.ndim() - 1 - m);
  }
  return Shard(0);
}

// Cuts of one tensor dim can take turns where all mesh dims cut it, and only
// such tensors are cut.
bool can_turn(const Placements& placements) {
  return std::all_of(
      placements.begin(), placements.end(), [&](const Placement& p) {
        return p.is_shard() == placements[0].is_shard() &&
               (!p.is_shard() || p.dim() == placements[0].dim());
      });
}

class Forced {
 public:
  Forced(
      const Rule& rule, const RuleCall& call, const MeshShape& mesh,
      CutStyle style)
      : rule_(rule), call_(call), mesh_(mesh), style_(style) {
    choice_.operands.resize(call.operands().size());
    choice_.outputs.resize(call.output_count());
    choice_.sharded_sizes.resize(call.output_count());
    choice_.local = rule.local;
  }

  bool add(const Rows::Row& row, int64_t m) {
    int64_t size = -1;
    for (size_t i = 0; i < row.operands.size(); ++i) {
      if (!fits(row.operands[i], i, size)) {
        return false;
      }
    }
    const Placement cut = cut_of(style_, mesh_, m, std::max<int64_t>(size, 0));
    for (size_t i = 0; i < row.operands.size(); ++i) {
      const Rows::Cell& cell = row.operands[i];
      const Operand& operand = call_.operand(i);
      choice_.operands[i].push_back(
          !operand.defined
              ? Replicate()
              : placed(cell, wrapped(cell.dim(), operand.ndim()), cut));
    }
    for (size_t o = 0; o < choice_.outputs.size(); ++o) {
      const Rows::Cell& cell = output_cell(row, o);
      choice_.outputs[o].push_back(placed(cell, cell.dim(), cut));
      choice_.sharded_sizes[o].push_back(cell.is_shard() ? size : 0);
    }
    choice_.local =
        row.local == detail::RunBy::kOperator ? choice_.local : row.local;
    choice_.rows.push_back(row);
    return true;
  }

  std::optional<RuleChoice> take() {
    for (const auto* side : {&choice_.operands, &choice_.outputs}) {
      for (const Placements& placements : *side) {
        if (!is_one_kind(placements) ||
            (style_ == CutStyle::kTurned && !can_turn(placements))) {
          return std::nullopt;
        }
      }
    }
    return std::move(choice_);
  }

 private:
  static Placement placed(
      const Rows::Cell& cell, int64_t dim, const Placement& cut) {
    return cell.is_shard() ? cut.with_dim(dim) : cell.placement();
  }

  bool fits(const Rows::Cell& cell, size_t i, int64_t& size) const {
    const Operand& operand = call_.operand(i);
    if (!operand.defined || cell.is_replicate()) {
      return true;
    }
    if (cell.is_partial()) {
      return suits_dtype(cell.op(), operand.dtype);
    }
    const int64_t d = wrapped(cell.dim(), operand.ndim());
    if (d < 0 || d >= operand.ndim()) {
      return false;
    }
    const int64_t here = operand.shape[static_cast<size_t>(d)];
    if (size >= 0 && size != here) {
      return false;
    }
    size = here;
    if (!rule_.not_empty) {
      return true;
    }
    Placements placements = choice_.operands[i];
    placements.push_back(Shard(d));
    return style_ == CutStyle::kPlain &&
           !leaves_empty(operand, d, mesh_, std::move(placements));
  }

  const Rule& rule_;
  const RuleCall& call_;
  const MeshShape& mesh_;
  CutStyle style_;
  RuleChoice choice_;
};

}  // namespace

std::optional<RuleChoice> choice_of(
    const Rule& rule, const RuleCall& call, const MeshShape& mesh,
    const std::vector<Rows::Row>& rows, CutStyle style) {
  Forced forced(rule, call, mesh, style);
  for (int64_t m = 0; m < mesh.ndim(); ++m) {
    if (!forced.add(rows[static_cast<size_t>(m)], m)) {
      return std::nullopt;
    }
  }
  return forced.take();
}

}  // namespace tessera::oracle
