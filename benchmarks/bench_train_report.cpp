#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "bench.h"
#include "bench_train.h"
#include "cli/text/terminal.h"
#include "cli/text/text_table.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;

constexpr double kLeastRatio = 2;
constexpr double kMostDifference = 1e-4;  // of a loss

/// The bound is for ranks as the demo has them, and for PyTorch's own engine.
std::vector<Target> targets_of(const TrainResult& result) {
  std::vector<Target> targets;
  for (const TrainMesh& mesh : result.meshes) {
    for (const TrainRow& row : mesh.rows) {
      const auto ratio = mesh.ratio(row);
      if (ratio && row.engine != "mpi") {
        targets.push_back(
            {mesh.name() + " on " + row.engine + " " +
                 formatted("%.2f", *ratio) + " times, below " +
                 formatted("%.0f", kLeastRatio),
             *ratio >= kLeastRatio});
      }
    }
  }
  return targets;
}

double largest_difference(const TrainResult& result) {
  double largest = 0;
  for (const TrainMesh& mesh : result.meshes) {
    for (const TrainRow& row : mesh.rows) {
      largest = std::max(largest, row.difference);
    }
  }
  return largest;
}

std::string draw_table(const TrainResult& result, const Terminal& terminal) {
  TextTable table(
      {"mesh", "Tessera on", "ms per step", "tokens/s", "PyTorch ms",
       "tokens/s", "Tessera / PyTorch"});
  for (const TrainMesh& mesh : result.meshes) {
    for (const TrainRow& row : mesh.rows) {
      std::vector<std::string> cells{
          mesh.name(), row.engine,
          formatted("%.2f", 1e3 * median(row.step_seconds)),
          formatted("%.0f", mesh.tokens_per_second(row.step_seconds))};
      if (const auto ratio = mesh.ratio(row)) {
        cells.push_back(
            formatted("%.2f", 1e3 * median(mesh.pytorch_step_seconds)));
        cells.push_back(formatted(
            "%.0f", mesh.tokens_per_second(mesh.pytorch_step_seconds)));
        cells.push_back(formatted("%.2f", *ratio));
      }
      table.add(std::move(cells));
    }
  }
  return table.draw(terminal);
}

std::string verdict(const TrainSettings& settings, const TrainResult& result) {
  if (result.meshes.empty() || result.meshes[0].pytorch_losses.empty()) {
    return "no PyTorch: no target was judged, no loss compared\n";
  }
  return "losses of the first " + counted(settings.bench.warm_up, "step") +
         ": largest difference from PyTorch's " +
         formatted("%.1e", largest_difference(result)) + " of the loss (" +
         formatted("%.0e", kMostDifference) + " allowed): " +
         (result.is_same_model() ? "the same model\n"
                                 : "NOT the same model\n") +
         targets_text(targets_of(result));
}

std::string model_text(const TrainBenchOptions& o) {
  return "GPT of width " + std::to_string(o.width) + ", " +
         counted(o.layers, "layer") + ", " + counted(o.heads, "head") +
         ", hidden " + std::to_string(o.hidden) + ", vocabulary " +
         std::to_string(o.vocabulary) + "; batches of " +
         std::to_string(o.batch) + " x " + std::to_string(o.length) +
         " tokens, f32, AdamW";
}

ordered_json json_of(const TrainMesh& mesh) {
  auto engines = ordered_json::array();
  for (const TrainRow& row : mesh.rows) {
    ordered_json entry = {
        {"engine", row.engine},
        {"step_seconds", row.step_seconds},
        {"tokens_per_second", mesh.tokens_per_second(row.step_seconds)}};
    if (const auto ratio = mesh.ratio(row)) {
      entry["ratio"] = *ratio;
      entry["largest_loss_difference"] = row.difference;
    }
    engines.push_back(std::move(entry));
  }
  ordered_json json = {
      {"mesh", mesh.name()},
      {"ranks", mesh.bench.ranks()},
      {"engines", engines}};
  if (!mesh.pytorch_step_seconds.empty()) {
    json["pytorch_step_seconds"] = mesh.pytorch_step_seconds;
    json["pytorch_tokens_per_second"] =
        mesh.tokens_per_second(mesh.pytorch_step_seconds);
    json["pytorch_losses"] = mesh.pytorch_losses;
  }
  return json;
}

}  // namespace

std::string TrainMesh::name() const {
  const std::string tp = "tp=" + std::to_string(bench.tp);
  return bench.dp > 1 ? "dp=" + std::to_string(bench.dp) + "," + tp : tp;
}

double TrainMesh::tokens_per_second(
    const std::vector<double>& step_seconds) const {
  return bench.tokens() / median(step_seconds);
}

std::optional<double> TrainMesh::ratio(const TrainRow& row) const {
  if (pytorch_step_seconds.empty()) {
    return std::nullopt;
  }
  return median_ratio(pytorch_step_seconds, row.step_seconds);
}

bool TrainResult::is_same_model() const {
  return largest_difference(*this) <= kMostDifference;
}

void print_train_table(
    const TrainSettings& settings, const TrainResult& result) {
  std::string text =
      model_text(settings.bench) + "; one thread per rank, " +
      counted(settings.rounds, "round") + " of " +
      counted(settings.bench.steps, "step") +
      ", medians; PyTorch DTensor over Gloo processes: " + result.pytorch +
      "\n";
  for (const auto& [engine, why] : result.absent) {
    text += engine + " was left out: " + why + "\n";
  }
  const Terminal terminal = detect_terminal(STDOUT_FILENO, false);
  print(
      wrapped(text, terminal) + "\n" + draw_table(result, terminal) + "\n" +
      wrapped(verdict(settings, result), terminal));
}

void print_train_json(
    const TrainSettings& settings, const TrainResult& result) {
  const TrainBenchOptions& o = settings.bench;
  auto meshes = ordered_json::array();
  for (const TrainMesh& mesh : result.meshes) {
    meshes.push_back(json_of(mesh));
  }
  const ordered_json json = {
      {"model",
       {{"batch", o.batch},
        {"length", o.length},
        {"vocabulary", o.vocabulary},
        {"width", o.width},
        {"heads", o.heads},
        {"hidden", o.hidden},
        {"layers", o.layers}}},
      {"rounds", settings.rounds},
      {"steps", o.steps},
      {"pytorch", result.pytorch},
      {"left_out", result.absent},
      {"meshes", meshes},
      {"same_model", result.is_same_model()},
      {"missed", missed(targets_of(result))}};
  print(json.dump(2) + "\n");
}

}  // namespace tessera::cli
