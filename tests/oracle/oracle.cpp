#include <oracle/oracle.h>

#include <algorithm>

#include <oracle/execution.h>
#include <tensor/call/decision.h>
#include <tensor/call/result_specs.h>
#include <tessera/layout/notation.h>

namespace tessera::oracle {

namespace {

using detail::Rule;
using detail::RuleChoice;

// Does the library choose what was forced when the operands have it already?
std::string compare_with_engine(
    const SampleCall& call, size_t unit, const MeshShape& mesh,
    const Rows::Row& row, const std::optional<RuleChoice>& forced) {
  if (!forced) {
    return "";
  }
  Rule only = call.rule();
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
      [](const Rows::Cell& cell) { return cell.is_replicate(); });
  return nothing_cut || (chosen.operands == forced->operands &&
                         chosen.outputs == forced->outputs &&
                         chosen.sharded_sizes == forced->sharded_sizes)
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

std::string text_of(const std::vector<Rows::Row>& rows, CutStyle style) {
  std::string text = "row";
  for (const Rows::Row& row : rows) {
    text += (text == "row" ? " " : " | ") + tessera::to_string(row);
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
  for (size_t r = 0; r < units.choices[0].outputs.size(); ++r) {
    for (size_t e = 0; e < execution.elements(r); ++e) {
      const RuleChoice& choice =
          units.choices[call.found().per_element ? e : 0];
      std::string text =
          execution.difference_of_result(r, e, choice.outputs[r]);
      const at::Tensor want = execution.expected(r, e);
      if (text.empty() && want.defined()) {
        const auto shape = detail::result_shape(
            {choice.outputs[r], choice.sharded_sizes[r]},
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

Outcome try_rows(
    const SampleCall& call, const MeshShape& mesh,
    const std::vector<size_t>& numbers, CutStyle style) {
  const Rule& rule = call.rule();
  Units units;
  units.operands.assign(
      call.operands().size(),
      Placements(static_cast<size_t>(mesh.ndim()), Replicate()));
  std::string what;
  try {
    for (size_t u = 0; u < call.units(); ++u) {
      std::vector<Rows::Row> rows;
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
    execution.run(
        [&](const Coordinate& coordinate, detail::Decision& decision) {
          decision.local_arguments =
              call.found().rule->view(view, mesh, &coordinate).local_arguments;
          decision.layouts.emplace_back(operands[0].shape.vec(), mesh, target);
          decision.kernel =
              layout.local != detail::RunBy::kOperator
                  ? detail::local_kernel(layout.local)
                  : detail::local_view_kernel(
                        *call.found().rule, decision.layouts[0], coordinate);
        });
    const size_t count = execution.elements(0);
    if (count != layout.results.size()) {
      return wrong(
          call, mesh, what,
          "there are " + std::to_string(count) +
              " results, and the rule gives " +
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
