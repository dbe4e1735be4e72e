#include "demo_report.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include <tessera/layout/notation.h>

#include "chart.h"
#include "cli/text/text_table.h"
#include "demo_verdict.h"

namespace tessera::cli {
namespace {

constexpr int kPicture = 8;  // columns of a drawn parameter

std::string format(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

std::string mesh_text(const DemoMesh& mesh) {
  return "dp=" + std::to_string(mesh.dp) + ",tp=" + std::to_string(mesh.tp);
}

std::string sharded_title(const DemoMesh& mesh) {
  return "sharded, " + mesh_text(mesh);
}

std::string curve_title(const DemoOptions& options) {
  return options.restart
             ? mesh_text(options.mesh) + ", then " + mesh_text(*options.restart)
             : sharded_title(options.mesh);
}

std::string tokens_per_second(int steps, double seconds) {
  const double tokens = static_cast<double>(steps * kDemoTokensPerStep);
  return with_commas(seconds > 0 ? static_cast<int64_t>(tokens / seconds) : 0) +
         " tokens/s";
}

/// Draws a strip as long as the cut dim, with the part that a rank holds
/// filled; a part that is not empty shows.
std::string draw_part(
    const DemoParameter& parameter, size_t tp, const Terminal& terminal) {
  const std::string filled = terminal.utf8 ? "█" : "#";
  const std::string blank = terminal.utf8 ? "░" : ".";
  if (parameter.cut_dim < 0) {
    return repeat(filled, kPicture);
  }
  const int64_t size = parameter.shape[static_cast<size_t>(parameter.cut_dim)];
  const DemoPart& part = parameter.parts[tp];
  const auto column = [&](int64_t index) {
    return static_cast<int>((index * kPicture + size / 2) / size);
  };
  const int begin = std::min(column(part.begin), kPicture - 1);
  const int end =
      part.end > part.begin ? std::max(column(part.end), begin + 1) : begin;
  return repeat(blank, begin) + repeat(filled, end - begin) +
         repeat(blank, kPicture - end);
}

/// Prints "R S(0) rows", "R R".
std::string placements_text(const DemoParameter& parameter) {
  const bool is_matrix = parameter.shape.size() == 2;
  return parameter.placements + (!is_matrix || parameter.cut_dim < 0 ? ""
                                 : parameter.cut_dim == 0            ? " rows"
                                                          : " columns");
}

int64_t elements_of(const std::vector<int64_t>& shape) {
  return std::accumulate(
      shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::string draw_parameters(
    const DemoResult& result, const DemoOptions& options,
    const Terminal& terminal) {
  std::vector<std::string> header{"parameter", "shape", "placements"};
  const char* dim = options.fsdp ? "dp " : "tp ";
  for (size_t i = 0; i < result.parameters.at(0).held.size(); ++i) {
    header.push_back(dim + std::to_string(i));
  }
  std::map<std::string, int> layers;
  int64_t all = 0;
  int64_t held = 0;
  for (const DemoParameter& parameter : result.parameters) {
    ++layers[parameter.alike];
    all += elements_of(parameter.shape);
    held += parameter.held.at(0);
  }
  TextTable table(header);
  for (const DemoParameter& parameter : result.parameters) {
    const int count = std::exchange(layers[parameter.alike], 0);
    if (count == 0) {
      continue;  // its layer is drawn already
    }
    std::vector<std::string> row{
        parameter.alike + (count > 1 ? " x " + std::to_string(count) : ""),
        shape_to_string(parameter.shape), placements_text(parameter)};
    for (size_t tp = 0; tp < parameter.held.size(); ++tp) {
      row.push_back(draw_part(parameter, tp, terminal));
    }
    table.add(std::move(row));
  }
  const double part = static_cast<double>(held) / static_cast<double>(all);
  return "parameters on " + result.mesh + ": " + with_commas(all) +
         " in all, rank 0 holds " + with_commas(held) + " (" +
         format("%.0f", 100 * part) + " %)\n" + table.draw(terminal);
}

/// Draws what each rank holds of the training beside what data parallelism
/// has each of them hold.
std::string draw_bytes(const DemoResult& result, const Terminal& terminal) {
  constexpr int kBar = 40;  // columns of the longest
  const auto line = [&](const std::string& name, int64_t bytes) {
    const int64_t all = std::max<int64_t>(result.replicated_bytes, 1);
    const auto filled = static_cast<int>((bytes * kBar + all / 2) / all);
    return "  " + pad_right(name, 18) +
           repeat(terminal.utf8 ? "█" : "#", filled) + " " +
           with_commas(bytes) + "\n";
  };
  std::string text =
      "bytes of parameters, gradients and AdamW's state on a rank\n" +
      line("data parallelism", result.replicated_bytes);
  for (size_t i = 0; i < result.rank_bytes.size(); ++i) {
    text += line("fsdp, rank " + std::to_string(i), result.rank_bytes[i]);
  }
  return text + "\n";
}

std::string per_step(int64_t total, int steps) {
  return total % steps == 0
             ? with_commas(total / steps)
             : format("%.2f", static_cast<double>(total) / steps);
}

std::string draw_traffic(
    const DemoResult& result, const DemoOptions& options,
    const Terminal& terminal) {
  if (result.traffic.empty()) {
    return "no communication\n";
  }
  const int steps = options.steps_before_restart();
  TextTable table({"cause", "op", "pass", "count", "bytes"});
  DemoTraffic sum;
  for (const DemoTraffic& row : result.traffic) {
    table.add(
        {row.cause, row.kind + " " + row.mesh_dims,
         row.in_backward ? "bwd" : "fwd", per_step(row.count, steps),
         per_step(row.bytes, steps)});
    sum.count += row.count;
    sum.bytes += row.bytes;
  }
  table.add(
      {"in all", "", "", per_step(sum.count, steps),
       per_step(sum.bytes, steps)});
  return "communication of rank 0 in a step, by cause\n" + table.draw(terminal);
}

std::string verdict_text(const DemoResult& result, const DemoOptions& options) {
  const DemoVerdict verdict = compare_curves(
      result.plain.losses, result.sharded.losses, accuracy_of(options.dtype));
  return "largest difference between the curves: " +
         format("%.2g", verdict.difference) + " of the loss (allowed " +
         format("%.0e", verdict.allowed) +
         (options.dtype == "bf16" ? "; of the first 100 steps" : "") + ")\n" +
         (verdict.equal() ? "equal: the same training"
                          : "DIFFERENT: not the same training") +
         "\n";
}

std::string restart_text(const DemoResult& result, const DemoOptions& options) {
  if (!options.restart) {
    return "";
  }
  return "saved after step " + std::to_string(options.steps_before_restart()) +
         " by " + counted(options.mesh.ranks(), "rank") + " (" +
         with_commas(result.restart.checkpoint_bytes) + " bytes, " +
         format("%.0f ms", 1e3 * result.restart.save_seconds) +
         "), loaded by " + counted(options.restart->ranks(), "rank") + ", " +
         mesh_text(*options.restart) + " (" +
         format("%.0f ms", 1e3 * result.restart.load_seconds) + ")\n" +
         (options.checkpoint.empty()
              ? ""
              : "tessera ckpt ls " + options.checkpoint + " shows it\n");
}

std::string speed_text(const DemoResult& result, const DemoOptions& options) {
  const auto of = [&](const DemoRun& run) {
    return tokens_per_second(options.steps, run.seconds) + " (" +
           format("%.1f s", run.seconds) + ")";
  };
  return "plain " + of(result.plain) + "; sharded " + of(result.sharded) +
         ", engine " + result.engine + "\n";
}

std::string written_text(const DemoResult& result) {
  const bool same = result.plain.text == result.sharded.text;
  return "the sharded model writes, after \"" + result.prompt + "\":\n  " +
         result.prompt + result.sharded.text + "\n" +
         (same ? "the plain model writes the same\n"
               : "the plain model writes something ELSE:\n  " + result.prompt +
                     result.plain.text + "\n");
}

}  // namespace

void DemoProgressReport::operator()(const DemoStep& step) const {
  const DemoMesh& mesh = step.restarted ? *options_.restart : options_.mesh;
  const std::string name = pad_right(
      step.sharded ? sharded_title(mesh) : std::string("plain"),
      columns(sharded_title(options_.mesh)) + 2);
  const std::string figures = std::to_string(step.step) + "/" +
                              std::to_string(options_.steps) + "  loss " +
                              format("%.4f", step.loss) + "  " +
                              tokens_per_second(step.step, step.seconds);
  const bool last =
      step.step == options_.steps ||
      (step.sharded && step.step == options_.steps_before_restart());
  if (terminal_.is_terminal) {
    print("\r" + bar_line(name, figures, step.step) + (last ? "\n" : ""));
  } else if (last || step.step % std::max(1, options_.steps / 10) == 0) {
    print("  " + name + "step " + figures + "\n");
  }
}

// A line that is wider than the terminal would not be redrawn but repeated.
std::string DemoProgressReport::bar_line(
    const std::string& name, const std::string& figures, int step) const {
  constexpr int kFigures = 38;  // columns, so that all steps have one length
  constexpr int kWidest = 30;
  constexpr int kNarrowest = 6;
  const int room = terminal_.width - columns(name) - kFigures - 6;
  if (room < kNarrowest) {
    return pad_right(name + figures, terminal_.width - 1)
        .substr(0, static_cast<size_t>(terminal_.width - 1));
  }
  return "  " + name +
         draw_bar(step, options_.steps, std::min(room, kWidest), terminal_) +
         " " + pad_right(figures, kFigures);
}

std::string demo_opening(const DemoOptions& options) {
  return "A small GPT learns a text by characters: " +
         counted(options.steps, "AdamW step") + " of " +
         counted(kDemoTokensPerStep, "token") + ", " + options.dtype +
         ".\nFirst plainly, then on " + counted(options.mesh.ranks(), "rank") +
         ", " + mesh_text(options.mesh) +
         (options.restart
              ? ", and after half of the steps,\nfrom a checkpoint, on " +
                    counted(options.restart->ranks(), "rank") + ", " +
                    mesh_text(*options.restart)
              : "") +
         ": same start, same batches.\n" +
         (options.recompute ? "The sharded runs compute the activations of "
                              "each block again.\n"
                            : "");
}

std::string demo_text_report(
    const DemoResult& result, const DemoOptions& options,
    const Terminal& terminal) {
  return "\n" +
         draw_curves(
             {{"plain", result.plain.losses},
              {curve_title(options), result.sharded.losses}},
             terminal) +
         "\n" + verdict_text(result, options) + restart_text(result, options) +
         speed_text(result, options) + "\n" +
         draw_parameters(result, options, terminal) + "\n" +
         (options.fsdp ? draw_bytes(result, terminal) : "") +
         draw_traffic(result, options, terminal) + "\n" + written_text(result);
}

}  // namespace tessera::cli
