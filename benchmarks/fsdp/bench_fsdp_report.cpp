#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "bench_fsdp.h"
#include "benchmarks/bench.h"
#include "cli/text/terminal.h"
#include "cli/text/text_table.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;

// Of a loss. In bf16 the sides may round sums of products differently.
double most_difference(const FsdpCase& one) {
  return one.bf16 ? 1e-2 : 1e-4;
}

double least_ratio(const std::string& engine) {
  return engine == "threads" ? 2 : 1.2;
}

double ratio_of(const FsdpResult& result, const FsdpRow& row) {
  return median_ratio(result.pytorch->step_seconds, row.figures.step_seconds);
}

double tokens_per_second(const FsdpCase& one, const FsdpFigures& figures) {
  return one.tokens() / median(figures.step_seconds);
}

void add_target(
    std::vector<Target>& targets, const std::string& who, const char* what,
    int64_t ours, int64_t theirs) {
  targets.push_back(
      {who + " " + what + " " + std::to_string(ours) + ", PyTorch's " +
           std::to_string(theirs),
       ours <= theirs});
}

std::vector<Target> targets_of(const FsdpReport& report) {
  std::vector<Target> targets;
  for (const FsdpResult& result : report.results) {
    for (const FsdpRow& row : result.rows) {
      if (!result.pytorch || row.engine == "mpi") {
        continue;
      }
      const std::string who = result.of.name() + " on " + row.engine;
      const double ratio = ratio_of(result, row);
      targets.push_back(
          {who + " " + formatted("%.2f", ratio) + " times, below " +
               formatted("%.1f", least_ratio(row.engine)),
           ratio >= least_ratio(row.engine)});
      add_target(
          targets, who, "bytes", row.figures.bytes, result.pytorch->bytes);
      add_target(
          targets, who, "peak", row.figures.peak_bytes,
          result.pytorch->peak_bytes);
    }
  }
  return targets;
}

std::string mebibytes(int64_t bytes) {
  return formatted("%.1f", static_cast<double>(bytes) / (1 << 20));
}

std::string draw_table(const FsdpReport& report, const Terminal& terminal) {
  TextTable table(
      {"case", "on", "tokens/s", "calls", "MiB sent", "peak MiB", "/ PyTorch"});
  const auto add = [&](const FsdpResult& result, const std::string& on,
                       const FsdpFigures& figures, const std::string& ratio) {
    table.add(
        {result.of.name(), on,
         formatted("%.0f", tokens_per_second(result.of, figures)),
         std::to_string(figures.calls), mebibytes(figures.bytes),
         mebibytes(figures.peak_bytes), ratio});
  };
  for (const FsdpResult& result : report.results) {
    for (const FsdpRow& row : result.rows) {
      add(result, row.engine, row.figures,
          result.pytorch ? formatted("%.2f", ratio_of(result, row)) : "");
    }
    if (result.pytorch) {
      add(result, "PyTorch", *result.pytorch, "");
    }
  }
  return table.draw(terminal);
}

ordered_json json_of(const FsdpFigures& figures) {
  return {
      {"losses", figures.losses},
      {"calls", figures.calls},
      {"bytes", figures.bytes},
      {"peak_bytes", figures.peak_bytes},
      {"step_seconds", figures.step_seconds}};
}

ordered_json json_of(const FsdpResult& result) {
  auto engines = ordered_json::array();
  for (const FsdpRow& row : result.rows) {
    ordered_json entry = json_of(row.figures);
    entry["engine"] = row.engine;
    entry["tokens_per_second"] = tokens_per_second(result.of, row.figures);
    if (result.pytorch) {
      entry["ratio"] = ratio_of(result, row);
    }
    engines.push_back(std::move(entry));
  }
  ordered_json json = {
      {"case", result.of.name()},
      {"ranks", result.of.ranks},
      {"engines", engines},
      {"same_model", result.is_same_model()}};
  if (result.pytorch) {
    json["pytorch"] = json_of(*result.pytorch);
    json["largest_loss_difference"] = result.difference();
  }
  return json;
}

void print_json(const FsdpSettings& settings, const FsdpReport& report) {
  auto cases = ordered_json::array();
  for (const FsdpResult& result : report.results) {
    cases.push_back(json_of(result));
  }
  const ordered_json json = {
      {"rounds", settings.rounds},
      {"pytorch", report.pytorch},
      {"left_out", report.absent},
      {"cases", cases},
      {"missed", missed(targets_of(report))}};
  print(json.dump(2) + "\n");
}

std::string verdict(const FsdpReport& report) {
  std::string text;
  for (const FsdpResult& result : report.results) {
    if (!result.pytorch) {
      return "no PyTorch: no target was judged, no loss compared\n";
    }
    if (!result.is_same_model()) {
      text += result.of.name() + ": losses differ by " +
              formatted("%.1e", result.difference()) + ", NOT the same model\n";
    }
  }
  return (text.empty() ? "losses as PyTorch's: the same models\n" : text) +
         targets_text(targets_of(report));
}

}  // namespace

std::string FsdpCase::name() const {
  static const char* const ways[] = {"", " unreduced", " weights"};
  return std::to_string(width) + (bf16 ? " bf16" : " f32") +
         (copies > 1 ? " " + std::to_string(copies) + "x" +
                           std::to_string(ranks / copies)
                     : "") +
         (micro_batches > 1 ? " /" + std::to_string(micro_batches) + ways[keep]
                            : "");
}

double FsdpResult::difference() const {
  double largest = 0;
  for (const FsdpRow& row : rows) {
    const auto& ours = row.figures.losses;
    const auto& theirs = pytorch ? pytorch->losses : ours;
    largest = ours.size() == theirs.size() ? largest : INFINITY;
    for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
      const double part = std::abs(ours[i] - theirs[i]) / std::abs(theirs[i]);
      largest = std::max(largest, std::isnan(part) ? INFINITY : part);
    }
  }
  return largest;
}

bool FsdpResult::is_same_model() const {
  return difference() <= most_difference(of);
}

void print_fsdp(const FsdpSettings& settings, const FsdpReport& report) {
  if (settings.json) {
    return print_json(settings, report);
  }
  const FsdpCase& any = settings.cases.at(0);
  std::string text =
      "GPT of " + counted(any.layers, "layer") + ", vocabulary " +
      std::to_string(any.vocabulary) + ", batches of " +
      std::to_string(any.batch) + " x " + std::to_string(any.length) +
      " tokens, AdamW; one thread per rank, " +
      counted(settings.rounds, "round") + " of " + counted(any.steps, "step") +
      ", medians; calls, bytes and peak of one rank; PyTorch fully_shard over "
      "Gloo processes: " +
      report.pytorch + "\n";
  for (const auto& [engine, why] : report.absent) {
    text += engine + " was left out: " + why + "\n";
  }
  const Terminal terminal = detect_terminal(STDOUT_FILENO, false);
  print(
      wrapped(text, terminal) + "\n" + draw_table(report, terminal) + "\n" +
      wrapped(verdict(report), terminal));
}

}  // namespace tessera::cli
