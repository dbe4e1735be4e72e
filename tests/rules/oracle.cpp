#include <rules/oracle.h>

#include <algorithm>

#include <rules/execution.h>
#include <tensor/decision.h>
#include <tessera/layout/notation.h>

namespace tessera::oracle {

namespace {

using detail::Rule;
using detail::RuleChoice;

const Cell& output_cell(const Row& row, size_t o) {
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
    choice_.cut_sizes.resize(call.output_count());
    choice_.local = rule.local;
  }

  bool add(const Row& row, int64_t m) {
    int64_t size = -1;
    for (size_t i = 0; i < row.operands.size(); ++i) {
      if (!fits(row.operands[i], i, size)) {
        return false;
      }
    }
    const Placement cut = cut_of(style_, mesh_, m, std::max<int64_t>(size, 0));
    for (size_t i = 0; i < row.operands.size(); ++i) {
      const Cell& cell = row.operands[i];
      const Operand& operand = call_.operand(i);
      choice_.operands[i].push_back(
          !operand.defined ? Replicate()
                           : placed(cell, wrapped(cell.dim(), operand.ndim()), cut));
    }
    for (size_t o = 0; o < choice_.outputs.size(); ++o) {
      const Cell& cell = output_cell(row, o);
      choice_.outputs[o].push_back(placed(cell, cell.dim(), cut));
      choice_.cut_sizes[o].push_back(cell.is_shard() ? size : 0);
    }
    choice_.local = row.local.empty() ? choice_.local : row.local;
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
  static Placement placed(const Cell& cell, int64_t dim, const Placement& cut) {
    return cell.is_shard() ? cut.with_dim(dim) : cell.placement();
  }

  bool fits(const Cell& cell, size_t i, int64_t& size) const {
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

// Does the library choose what was forced when the operands have it already?
std::string compare_with_engine(
    const SampleCall& call, size_t unit, const MeshShape& mesh, const Row& row,
    const std::optional<RuleChoice>& forced) {
  if (!forced) {
    return "";
  }
  Rule only = *call.found().rule;
  only.partial_rows.clear();
  only.rows = [&](const RuleCall&, Rows& rows) {
    rows.add(row.outputs, row.operands, row.local);
  };
  std::vector<Operand> operands = call.call(unit).operands().vec();
  for (size_t i = 0; i < operands.size(); ++i) {
    operands[i].placements = &forced->operands[i];
    operands[i].written = false;
  }
  const RuleChoice chosen = choose_rows(
      only, call.call(operands), mesh,
      [](const Operand&, const Placement& from, const Placement& to, int64_t) {
        return from == to ? 0.0 : 1.0;
      });
  const bool nothing_cut = std::all_of(
      row.operands.begin(), row.operands.end(),
      [](const Cell& cell) { return cell.is_replicate(); });
  return nothing_cut || (chosen.operands == forced->operands &&
                         chosen.outputs == forced->outputs &&
                         chosen.cut_sizes == forced->cut_sizes)
             ? ""
             : "the library chooses another row";
}

std::string text_of(const SampleCall& call) {
  std::string text = c10::toString(call.sample().op.operator_name());
  text += "(" + call.sample().text + "), operands";
  for (size_t i = 0; i < call.operands().size(); ++i) {
    text += " ";
    text += call.operands()[i].defined
                ? shape_to_string(call.operands()[i].shape.vec())
                : "none";
  }
  return text;
}

Outcome wrong(
    const SampleCall& call, const MeshShape& mesh, const std::string& what,
    const std::string& problem) {
  return {
      Outcome::Kind::kWrong,
      text_of(call) + ": " + what + " on " + to_string(mesh) + ": " + problem};
}

struct Units {
  std::vector<Placements> operands;
  std::vector<RuleChoice> choices;
};

std::string text_of(const std::vector<Row>& rows, CutStyle style) {
  std::string text = "row";
  for (const Row& row : rows) {
    text += (text == "row" ? " " : " | ") + to_string(row);
  }
  return style == CutStyle::kPlain ? text
                                   : text + " (" + to_string(style) + ")";
}

std::string run_choices(
    const SampleCall& call, const MeshShape& mesh, const Units& units) {
  Execution execution(call, mesh, units.operands);
  execution.run([&](const Coordinate& coordinate, detail::Decision& decision) {
    if (!call.found().per_element) {
      detail::prepare_local_call(
          *call.found().rule, call.call(0), units.choices[0], mesh, coordinate,
          decision);
    }
  });
  const size_t returns = units.choices[0].outputs.size();
  for (size_t r = 0; r < call.schema().returns().size() && r < returns; ++r) {
    for (size_t e = 0; e < execution.elements(r); ++e) {
      const RuleChoice& choice =
          units.choices[call.found().per_element ? e : 0];
      std::string text =
          execution.difference_of_result(r, e, choice.outputs[r]);
      const at::Tensor want = execution.expected(r, e);
      if (text.empty() && want.defined()) {
        const auto shape = detail::result_shape(
            {choice.outputs[r], choice.cut_sizes[r]},
            execution.returned(r, e)[0].sizes());
        if (at::IntArrayRef(shape) != want.sizes()) {
          text = "its shape follows as " + shape_to_string(shape) +
                 " instead of " + shape_to_string(want.sizes().vec());
        }
      }
      if (!text.empty()) {
        return text;
      }
    }
  }
  return execution.difference_of_written();
}

}  // namespace

const char* to_string(CutStyle style) {
  static constexpr const char* kNames[] = {
      "plain", "strided", "ragged", "turned"};
  return kNames[static_cast<size_t>(style)];
}

std::optional<RuleChoice> choice_of(
    const Rule& rule, const RuleCall& call, const MeshShape& mesh,
    const std::vector<Row>& rows, CutStyle style) {
  Forced forced(rule, call, mesh, style);
  for (int64_t m = 0; m < mesh.ndim(); ++m) {
    if (!forced.add(rows[static_cast<size_t>(m)], m)) {
      return std::nullopt;
    }
  }
  return forced.take();
}

Outcome try_rows(
    const SampleCall& call, const MeshShape& mesh,
    const std::vector<size_t>& numbers, CutStyle style) {
  const Rule& rule = *call.found().rule;
  Units units;
  units.operands.assign(
      call.operands().size(),
      Placements(static_cast<size_t>(mesh.ndim()), Replicate()));
  std::string what;
  try {
    for (size_t u = 0; u < call.units(); ++u) {
      std::vector<Row> rows;
      for (const size_t number : numbers) {
        rows.push_back(call.rows(u)[number % call.rows(u).size()]);
      }
      what = what.empty() ? text_of(rows, style) : what;
      auto choice = choice_of(rule, call.call(u), mesh, rows, style);
      if (style == CutStyle::kPlain && mesh.ndim() == 1) {
        const std::string text =
            compare_with_engine(call, u, mesh, rows[0], choice);
        if (!text.empty()) {
          return wrong(call, mesh, what, text);
        }
      }
      if (!choice) {
        return {Outcome::Kind::kDropped};
      }
      for (size_t i = 0; i < choice->operands.size(); ++i) {
        units.operands[call.numbers(u)[i]] = choice->operands[i];
      }
      units.choices.push_back(std::move(*choice));
    }
    if (units.choices.empty()) {
      return {Outcome::Kind::kDropped};
    }
    const std::string text = run_choices(call, mesh, units);
    return text.empty() ? Outcome{} : wrong(call, mesh, what, text);
  } catch (const c10::Error& error) {
    return wrong(
        call, mesh, what,
        std::string("throws: ") + error.what_without_backtrace());
  } catch (const std::exception& error) {
    return wrong(call, mesh, what, std::string("throws: ") + error.what());
  }
}

Outcome try_view(
    const SampleCall& call, const MeshShape& mesh,
    const Placements& placements) {
  const std::string what = "a view of " + to_string(placements);
  try {
    std::vector<Operand> operands = call.operands();
    operands[0].placements = &placements;
    const RuleCall view = call.call(operands);
    const ViewLayout layout = call.found().rule->view(view, mesh, nullptr);
    Placements target = placements;
    for (size_t m = 0; m < target.size(); ++m) {
      target[m] = layout.keeps[m] ? target[m] : Replicate();
    }
    std::vector<Placements> all(
        operands.size(), Placements(target.size(), Replicate()));
    all[0] = target;
    Execution execution(call, mesh, all);
    execution.run([&](const Coordinate& coordinate, detail::Decision& decision) {
      decision.local_arguments =
          call.found().rule->view(view, mesh, &coordinate).local_arguments;
    });
    const size_t count = execution.elements(0);
    if (count != layout.results.size()) {
      return wrong(
          call, mesh, what,
          "there are " + std::to_string(count) + " results, and the rule gives " +
              std::to_string(layout.results.size()));
    }
    for (size_t e = 0; e < count; ++e) {
      const ViewResult& result = layout.results[e];
      const at::Tensor want = execution.expected(0, e);
      std::string text =
          execution.difference_of_result(0, e, result.placements);
      if (text.empty() && at::IntArrayRef(result.shape) != want.sizes()) {
        text = "the rule gives it shape " + shape_to_string(result.shape) +
               " instead of " + shape_to_string(want.sizes().vec());
      }
      if (text.empty() && at::IntArrayRef(result.strides) != want.strides()) {
        text = "the rule gives it strides " + shape_to_string(result.strides) +
               " instead of " + shape_to_string(want.strides().vec());
      }
      if (!text.empty()) {
        return wrong(
            call, mesh, what + " -> " + to_string(result.placements), text);
      }
    }
    return {};
  } catch (const c10::Error& error) {
    return wrong(
        call, mesh, what,
        std::string("throws: ") + error.what_without_backtrace());
  }
}

}  // namespace tessera::oracle
