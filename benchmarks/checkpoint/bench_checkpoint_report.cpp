#include <unistd.h>
#include <nlohmann/json.hpp>

#include "bench_checkpoint.h"
#include "benchmarks/bench.h"
#include "cli/text/terminal.h"
#include "cli/text/text_table.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;

constexpr double kLeastOfRaw = 0.7;
constexpr double kLeastSaveOfPytorch = 1;
constexpr double kLeastLoadOfPytorch = 2;
constexpr double kMostCopies = 1.2;

/// What one row of the table compares.
struct Comparison {
  const char* what;
  const CheckpointSeries* ours = nullptr;
  const CheckpointSeries* raw = nullptr;
  const CheckpointSeries* pytorch = nullptr;  // none without PyTorch
  double least_of_pytorch;
};

const CheckpointSeries* find(
    const CheckpointSide& side, const std::string& what) {
  const auto found = side.find(what);
  return found == side.end() ? nullptr : &found->second;
}

std::vector<Comparison> comparisons_of(
    const CheckpointSide& side, const CheckpointResult& result) {
  std::vector<Comparison> comparisons;
  for (const auto& [what, least] :
       {std::pair{"save", kLeastSaveOfPytorch},
        std::pair{"load", kLeastLoadOfPytorch}}) {
    const CheckpointSeries* ours = find(side, what);
    const CheckpointSeries* raw = find(side, std::string("raw ") + what);
    if (ours != nullptr && raw != nullptr) {
      comparisons.push_back(
          {what, ours, raw, find(result.pytorch_side, what), least});
    }
  }
  return comparisons;
}

/// How many times as long as one copy save_async() keeps the loop; nothing
/// where it was not measured.
std::optional<double> copies_of(const CheckpointSide& side) {
  const CheckpointSeries* ours = find(side, "async");
  const CheckpointSeries* copy = find(side, "copy");
  if (ours == nullptr || copy == nullptr) {
    return std::nullopt;
  }
  return median_ratio(ours->seconds, copy->seconds);
}

std::vector<Target> targets_of(const CheckpointResult& result) {
  std::vector<Target> targets;
  const auto judge = [&](const std::string& what, const std::string& side,
                         double ratio, double least) {
    targets.push_back(
        {what + " " + formatted("%.2f", ratio) + " times as fast as " + side +
             ", below " + formatted("%.1f", least),
         ratio >= least});
  };
  for (const auto& [engine, side] : result.engines) {
    for (const Comparison& row : comparisons_of(side, result)) {
      const std::string what = std::string(row.what) + " on " + engine;
      judge(
          what, "plain files",
          median_ratio(row.raw->seconds, row.ours->seconds), kLeastOfRaw);
      if (row.pytorch != nullptr) {
        judge(
            what, "PyTorch",
            median_ratio(row.pytorch->seconds, row.ours->seconds),
            row.least_of_pytorch);
      }
    }
    if (const auto copies = copies_of(side)) {
      targets.push_back(
          {"save_async on " + engine + " takes " + formatted("%.2f", *copies) +
               " copies, above " + formatted("%.1f", kMostCopies),
           *copies <= kMostCopies});
    }
  }
  return targets;
}

void add_row(
    TextTable& table, const std::string& name, const Comparison& row,
    std::vector<double> CheckpointSeries::*figure) {
  const std::vector<double>& ours = row.ours->*figure;
  const std::vector<double>& raw = row.raw->*figure;
  std::vector<std::string> cells{
      name, formatted("%.1f", 1e3 * median(ours)),
      formatted("%.1f", 1e3 * median(raw)),
      formatted("%.2f", median_ratio(raw, ours))};
  if (row.pytorch != nullptr) {
    const std::vector<double>& pytorch = row.pytorch->*figure;
    cells.push_back(formatted("%.1f", 1e3 * median(pytorch)));
    cells.push_back(formatted("%.2f", median_ratio(pytorch, ours)));
  }
  table.add(std::move(cells));
}

void add_async_row(
    TextTable& table, const std::string& name, const CheckpointSide& side,
    std::vector<double> CheckpointSeries::*figure) {
  const CheckpointSeries* async = find(side, "async");
  const CheckpointSeries* copy = find(side, "copy");
  if (async != nullptr && copy != nullptr) {
    table.add(
        {name, formatted("%.1f", 1e3 * median(async->*figure)),
         formatted("%.1f", 1e3 * median(copy->*figure)),
         formatted("%.2f", median_ratio(async->*figure, copy->*figure))});
  }
}

std::string draw_table(
    const CheckpointResult& result, const Terminal& terminal) {
  TextTable table(
      {"", "Tessera ms", "raw ms", "raw / Tessera", "PyTorch ms",
       "PyTorch / Tessera"});
  TextTable async({"", "save_async ms", "one copy ms", "save_async / copy"});
  for (const auto& [engine, side] : result.engines) {
    for (const Comparison& row : comparisons_of(side, result)) {
      const std::string name = engine + ", " + row.what;
      add_row(table, name, row, &CheckpointSeries::seconds);
      add_row(table, name + ", CPU", row, &CheckpointSeries::cpu_seconds);
    }
    add_async_row(async, engine, side, &CheckpointSeries::seconds);
    add_async_row(
        async, engine + ", CPU", side, &CheckpointSeries::cpu_seconds);
  }
  return table.draw(terminal) + "\n" + async.draw(terminal);
}

ordered_json json_of(const CheckpointSide& side) {
  ordered_json json = ordered_json::object();
  for (const auto& [what, series] : side) {
    json[what] = {
        {"seconds", series.seconds}, {"cpu_seconds", series.cpu_seconds}};
  }
  return json;
}

ordered_json ratios_of(
    const CheckpointSide& side, const CheckpointResult& result) {
  ordered_json json = ordered_json::object();
  for (const Comparison& row : comparisons_of(side, result)) {
    ordered_json& ratios = json[row.what];
    ratios["raw"] = median_ratio(row.raw->seconds, row.ours->seconds);
    if (row.pytorch != nullptr) {
      ratios["pytorch"] = median_ratio(row.pytorch->seconds, row.ours->seconds);
    }
  }
  if (const auto copies = copies_of(side)) {
    json["async"] = {{"copies", *copies}};
  }
  return json;
}

}  // namespace

void print_checkpoint_table(
    const CheckpointSettings& settings, const CheckpointResult& result) {
  std::string text =
      "f32, " + std::to_string(settings.bench.mebibytes) + " MiB in " +
      counted(kCheckpointTensors, "tensor") + ", " +
      counted(settings.bench.ranks, "rank") + ", " +
      counted(settings.rounds, "round") +
      ", medians; PyTorch's distributed checkpoint over Gloo processes: " +
      result.pytorch +
      "\nsave: new files, until files and folders are on the disk; load: files "
      "that were just written, into tensors that are there, with checksums; "
      "raw: plain write and fsync, read and XXH3, of the same bytes; "
      "save_async: how long the call keeps "
      "the loop, from the second one on, beside one copy of the rank's bytes\n";
  for (const auto& [engine, why] : result.absent) {
    text += engine + " was left out: " + why + "\n";
  }
  const Terminal terminal = detect_terminal(STDOUT_FILENO, false);
  print(
      wrapped(text, terminal) + "\n" + draw_table(result, terminal) + "\n" +
      wrapped(targets_text(targets_of(result)), terminal));
}

void print_checkpoint_json(
    const CheckpointSettings& settings, const CheckpointResult& result) {
  auto engines = ordered_json::array();
  for (const auto& [engine, side] : result.engines) {
    engines.push_back(
        {{"engine", engine},
         {"measured", json_of(side)},
         {"ratio", ratios_of(side, result)}});
  }
  const ordered_json json = {
      {"ranks", settings.bench.ranks},
      {"mebibytes", settings.bench.mebibytes},
      {"tensors", kCheckpointTensors},
      {"rounds", settings.rounds},
      {"pytorch", result.pytorch},
      {"pytorch_measured", json_of(result.pytorch_side)},
      {"left_out", result.absent},
      {"engines", engines},
      {"missed", missed(targets_of(result))}};
  print(json.dump(2) + "\n");
}

}  // namespace tessera::cli
