#include <rules/choose.h>

#include <algorithm>
#include <limits>
#include <set>

#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>
#include <tessera/layout/layout.h>

namespace tessera::detail::inline rules_layer {

namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();

// Note [Choosing per mesh dim]
// A row names no size, so it holds for the shards that other mesh dims leave as
// well as for the global tensors. So every mesh dim can choose for itself, and
// the cost of a call is the sum of the costs per mesh dim. Mesh dims depend on
// each other in two cases only: a tensor cannot be Partial with two ReduceOps
// that do not commute (P(sum) P(max)), and mesh dims that shard one tensor dim
// must do so in one order for all tensors of the call.

// A row with everything resolved for one mesh dim.
struct Candidate {
  const Row* row = nullptr;
  Placement shard = Shard(0);  // its kind: plain, strided, ragged, ordered
  int64_t size = 0;            // global size of the dims that are sharded
  double cost = kImpossible;
  int64_t bytes = 0;  // beyond a limit, of all operands; not asked without one
};

Placement placed(const Cell& cell, int64_t dim, const Placement& shard) {
  return cell.is_shard() ? shard.with_dim(dim) : cell.placement();
}

int64_t operand_dim(const Cell& cell, const Operand& operand) {
  const int64_t dim = cell.dim();
  return dim < 0 ? dim + operand.ndim() : dim;
}

bool are_compatible(ReduceOp a, ReduceOp b) {
  const auto additive = [](ReduceOp op) {
    return op == ReduceOp::kSum || op == ReduceOp::kAvg;
  };
  return a == b || (additive(a) && additive(b));
}

bool suits_dtype(ReduceOp op, c10::ScalarType dtype) {
  if (op == ReduceOp::kAvg) {
    return c10::isFloatingType(dtype) || c10::isComplexType(dtype);
  }
  if (op == ReduceOp::kMax || op == ReduceOp::kMin) {
    return !c10::isComplexType(dtype);
  }
  return op != ReduceOp::kSum || dtype != c10::ScalarType::Bool;
}

class Chooser {
 public:
  Chooser(
      const Rule& rule, const RuleCall& call, const MeshShape& mesh,
      const MoveCost& cost, int64_t memory_limit)
      : rule_(rule),
        call_(call),
        mesh_(mesh),
        cost_(cost),
        memory_limit_(memory_limit) {
    add_rows(rule, call, rows_);
    outputs_ = call.output_count();
    check_rows();
    choice_.operands.resize(call.operands().size());
    choice_.outputs.resize(outputs_);
    choice_.sharded_sizes.resize(outputs_);
    if (rule.not_empty) {
      for (const Operand& operand : call.operands()) {
        lengths_.emplace_back();
        for (const int64_t size : operand.shape) {
          lengths_.back().push_back({size});
        }
      }
    }
  }

  RuleChoice take() {
    choice_.local = rule_.local;
    for (int64_t m = 0; m < mesh_.ndim(); ++m) {
      Candidate best;
      for (const Row& row : rows_.rows()) {
        consider(row, m, best);
      }
      TORCH_INTERNAL_ASSERT(best.row != nullptr);
      commit(best, m);
    }
    straighten_shards();
    return std::move(choice_);
  }

 private:
  void check_rows() const {
    for (const Row& row : rows_.rows()) {
      TORCH_CHECK_VALUE(
          row.operands.size() == call_.operands().size() &&
              (row.outputs.size() == outputs_ || row.outputs.size() == 1),
          call_.schema().name(), ": a row of its rule must list ", outputs_,
          " outputs and ", call_.operands().size(), " operands; got ",
          to_string(row));
    }
  }

  // Returns the global size of the dims that a row shards, which must be equal
  // for all operands; -1 if the row does not fit, -2 if it shards none.
  int64_t size_of_shard(const Row& row, int64_t m) const {
    int64_t size = -2;
    for (size_t i = 0; i < row.operands.size(); ++i) {
      const Cell& cell = row.operands[i];
      const Operand& operand = call_.operand(i);
      if (!operand.defined || !cell.is_shard()) {
        continue;
      }
      const int64_t d = operand_dim(cell, operand);
      if (d < 0 || d >= operand.ndim()) {
        return -1;
      }
      const int64_t here = operand.shape[static_cast<size_t>(d)];
      if ((size >= 0 && here != size) || leaves_empty(i, d, m)) {
        return -1;
      }
      size = here;
    }
    return size;
  }

  // Ceil chunks: the last ones may be empty. Shards of lengths 4 and 3, split
  // among 3 ranks, have 2 2 0 and 1 1 1, so every length must be asked, not the
  // smallest alone.
  bool leaves_empty(size_t operand, int64_t dim, int64_t m) const {
    if (!rule_.not_empty) {
      return false;
    }
    const std::set<int64_t>& lengths =
        lengths_[operand][static_cast<size_t>(dim)];
    return std::any_of(lengths.begin(), lengths.end(), [&](int64_t length) {
      return length > 0 && smallest_chunk(length, mesh_.size(m)) == 0;
    });
  }
  static int64_t largest_chunk(int64_t size, int64_t parts) {
    return (size + parts - 1) / parts;
  }
  static int64_t smallest_chunk(int64_t size, int64_t parts) {
    return std::max<int64_t>(
        0, size - largest_chunk(size, parts) * (parts - 1));
  }
  void split_lengths(std::set<int64_t>& lengths, int64_t m) const {
    std::set<int64_t> pieces;
    for (const int64_t length : lengths) {
      pieces.insert(largest_chunk(length, mesh_.size(m)));
      pieces.insert(smallest_chunk(length, mesh_.size(m)));
    }
    lengths = std::move(pieces);
  }

  bool has_one_kind_of_partial(const Row& row) const {
    for (size_t o = 0; o < outputs_; ++o) {
      const Cell& cell = output_cell(row, o);
      // A complex operand makes complex results, which have no order.
      if (cell.is_partial() && !suits_all_dtypes(cell.op())) {
        return false;
      }
    }
    for (size_t i = 0; i < row.operands.size(); ++i) {
      const Cell& cell = row.operands[i];
      if (cell.is_partial() && call_.operand(i).defined &&
          (!suits_dtype(cell.op(), call_.operand(i).dtype) ||
           !fits_partial(choice_.operands[i], cell.op()))) {
        return false;
      }
    }
    for (size_t o = 0; o < outputs_; ++o) {
      const Cell& cell = output_cell(row, o);
      if (cell.is_partial() && !fits_partial(choice_.outputs[o], cell.op())) {
        return false;
      }
    }
    return true;
  }
  bool suits_all_dtypes(ReduceOp op) const {
    if (op != ReduceOp::kMax && op != ReduceOp::kMin) {
      return true;
    }
    return std::none_of(
        call_.operands().begin(), call_.operands().end(),
        [](const Operand& operand) {
          return operand.defined && c10::isComplexType(operand.dtype);
        });
  }
  static bool fits_partial(const Placements& before, ReduceOp op) {
    return std::all_of(before.begin(), before.end(), [&](const Placement& p) {
      return !p.is_partial() || are_compatible(p.reduce_op(), op);
    });
  }

  static const Cell& output_cell(const Row& row, size_t o) {
    return row.outputs.size() == 1 ? row.outputs[0] : row.outputs[o];
  }

  const Placement& now(size_t operand, int64_t m) const {
    return (*call_.operand(operand).placements)[static_cast<size_t>(m)];
  }

  void consider(const Row& row, int64_t m, Candidate& best) const {
    const int64_t size = size_of_shard(row, m);
    if (size == -1 || !has_one_kind_of_partial(row)) {
      return;
    }
    try_shard({&row, Shard(0), size}, m, best);
    if (rule_.not_empty) {
      return;  // other kinds of shards may leave a rank without elements
    }
    // Kinds of shards that operands have already: strided, ragged, of another
    // order.
    for (size_t i = 0; i < row.operands.size(); ++i) {
      const Placement& p = now(i, m);
      if (row.operands[i].is_shard() && call_.operand(i).defined &&
          p.is_shard(operand_dim(row.operands[i], call_.operand(i))) &&
          (!p.is_plain_shard() || p.order() >= 0)) {
        try_shard({&row, p, size}, m, best);
      }
    }
  }

  void try_shard(Candidate candidate, int64_t m, Candidate& best) const {
    if (memory_limit_ != kNoMemoryLimit) {
      candidate.bytes =
          std::max<int64_t>(bytes_with(candidate, m) - memory_limit_, 0);
      if (best.row != nullptr && candidate.bytes != best.bytes) {
        if (candidate.bytes < best.bytes) {
          candidate.cost = cost_of(candidate, m, kImpossible);
          best = candidate.cost < kImpossible ? candidate : best;
        }
        return;
      }
    }
    candidate.cost = cost_of(candidate, m, best.cost);
    if (candidate.cost < best.cost) {
      best = candidate;
    }
  }

  // The bytes of all operands where mesh dim `m` takes a candidate and those
  // after it move nothing.
  int64_t bytes_with(const Candidate& candidate, int64_t m) const {
    std::vector<Placements> to = choice_.operands;
    for (size_t i = 0; i < to.size(); ++i) {
      const Operand& operand = call_.operand(i);
      if (!operand.defined) {
        continue;
      }
      const Cell& cell = candidate.row->operands[i];
      to[i].push_back(
          placed(cell, operand_dim(cell, operand), candidate.shard));
      for (int64_t later = m + 1; later < mesh_.ndim(); ++later) {
        to[i].push_back(now(i, later));
      }
    }
    return operand_bytes(call_, mesh_, to);
  }

  // Stops adding once the best price is passed.
  double cost_of(const Candidate& candidate, int64_t m, double limit) const {
    double sum = 0;
    size_t written = 0;
    bool communicates = false;
    for (size_t i = 0; i < call_.operands().size() && sum < limit; ++i) {
      const Operand& operand = call_.operand(i);
      if (!operand.defined) {
        continue;
      }
      const Cell& cell = candidate.row->operands[i];
      const Placement to =
          placed(cell, operand_dim(cell, operand), candidate.shard);
      sum += cost_(operand, now(i, m), to, m);
      communicates =
          communicates || (!now(i, m).is_replicate() && !(now(i, m) == to));
      if (operand.written) {
        sum += cost_(
            operand, result_of_write(candidate, written++, to), now(i, m), m);
      }
    }
    return sum + (communicates ? cost_of_partials(candidate, m) : 0);
  }

  // A row that communicates and leaves a Partial output pays for reducing it as
  // well: else R, R -> R would lose to rows whose output must be reduced later.
  // The size of the output is taken to be that of the largest operand.
  double cost_of_partials(const Candidate& candidate, int64_t m) const {
    const auto is_partial = [](const Cell& cell) { return cell.is_partial(); };
    const Row& row = *candidate.row;
    if (std::none_of(row.outputs.begin(), row.outputs.end(), is_partial) ||
        std::any_of(row.operands.begin(), row.operands.end(), is_partial)) {
      return 0;
    }
    const Operand* largest = nullptr;
    for (const Operand& operand : call_.operands()) {
      if (operand.defined &&
          (largest == nullptr || c10::multiply_integers(operand.shape) >
                                     c10::multiply_integers(largest->shape))) {
        largest = &operand;
      }
    }
    return largest == nullptr ? 0 : cost_(*largest, Partial(), Shard(0), m);
  }

  // A written operand that the call returns ends in the output's placement.
  Placement result_of_write(
      const Candidate& candidate, size_t nth, const Placement& operand) const {
    if (nth >= outputs_) {
      return operand;
    }
    const Cell& cell = output_cell(*candidate.row, nth);
    return cell.is_shard() ? operand : cell.placement();
  }

  void commit(const Candidate& best, int64_t m) {
    const Row& row = *best.row;
    for (size_t i = 0; i < call_.operands().size(); ++i) {
      const Operand& operand = call_.operand(i);
      const Cell& cell = row.operands[i];
      const int64_t dim = operand_dim(cell, operand);
      choice_.operands[i].push_back(
          operand.defined ? placed(cell, dim, best.shard) : Replicate());
      if (rule_.not_empty && operand.defined && cell.is_shard()) {
        split_lengths(lengths_[i][static_cast<size_t>(dim)], m);
      }
    }
    for (size_t o = 0; o < outputs_; ++o) {
      const Cell& cell = output_cell(row, o);
      choice_.outputs[o].push_back(placed(cell, cell.dim(), best.shard));
      choice_.sharded_sizes[o].push_back(cell.is_shard() ? best.size : 0);
    }
    if (row.local != RunBy::kOperator) {
      choice_.local = row.local;
    }
    choice_.rows.push_back(row);
  }

  // Ragged sizes and orders are relative to what other mesh dims leave of a
  // tensor dim, so those of two mesh dims, taken from different operands, may
  // not form a layout. Then all shards become plain ones, in the order of the
  // mesh dims.
  void straighten_shards() {
    bool depends = false;
    for (const Placements& placements : choice_.operands) {
      for (const Placement& p : placements) {
        depends = depends || p.depends_on_others();
      }
    }
    if (!depends || all_fit()) {
      return;
    }
    for (auto* side : {&choice_.operands, &choice_.outputs}) {
      for (Placements& placements : *side) {
        for (Placement& p : placements) {
          p = p.depends_on_others() ? Shard(p.dim()) : p;
        }
      }
    }
  }
  bool all_fit() const {
    for (size_t i = 0; i < choice_.operands.size(); ++i) {
      const Operand& operand = call_.operand(i);
      if (operand.defined) {
        try {
          Layout(operand.shape.vec(), mesh_, choice_.operands[i]);
        } catch (const c10::Error&) {
          return false;
        }
      }
    }
    return true;
  }

  const Rule& rule_;
  const RuleCall& call_;
  const MeshShape& mesh_;
  const MoveCost& cost_;
  int64_t memory_limit_;
  Rows rows_;
  size_t outputs_ = 0;
  // By operand and dim: the lengths of shards by the mesh dims before this one.
  // Filled for rules with not_empty only.
  std::vector<std::vector<std::set<int64_t>>> lengths_;
  RuleChoice choice_;
};

// The largest shard, each cut taken for the largest of even chunks.
int64_t bytes_of_shard(
    const Operand& operand, const MeshShape& mesh, const Placements& on) {
  std::vector<int64_t> shape = operand.shape.vec();
  for (size_t m = 0; m < on.size(); ++m) {
    if (on[m].is_shard()) {
      const int64_t parts = mesh.size(static_cast<int64_t>(m));
      int64_t& size = shape[static_cast<size_t>(on[m].dim())];
      size = (size + parts - 1) / parts;
    }
  }
  return c10::multiply_integers(shape) *
         static_cast<int64_t>(c10::elementSize(operand.dtype));
}

}  // namespace

int64_t operand_bytes(
    const RuleCall& call, const MeshShape& mesh,
    const std::vector<Placements>& to) {
  int64_t bytes = 0;
  for (size_t i = 0; i < to.size(); ++i) {
    const Operand& operand = call.operand(i);
    if (operand.defined) {
      bytes += bytes_of_shard(operand, mesh, *operand.placements);
      bytes += to[i] == *operand.placements
                   ? 0
                   : bytes_of_shard(operand, mesh, to[i]);
    }
  }
  return bytes;
}

RuleChoice choose_rows(
    const Rule& rule, const RuleCall& call, const MeshShape& mesh,
    const MoveCost& cost, int64_t memory_limit) {
  RuleChoice cheapest = Chooser(rule, call, mesh, cost, kNoMemoryLimit).take();
  if (memory_limit == kNoMemoryLimit ||
      operand_bytes(call, mesh, cheapest.operands) <= memory_limit) {
    return cheapest;
  }
  return Chooser(rule, call, mesh, cost, memory_limit).take();
}

}  // namespace tessera::detail::inline rules_layer
