// tessera bench dispatch --misses: what the first call with a new shape takes,
// beside PyTorch's DTensor.
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <map>

#include "bench.h"
#include "bench_workers.h"
#include "cli/text/terminal.h"
#include "cli/text/text_table.h"
#include "dispatch_target.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;

constexpr double kMostGrowth = 1.2;  // last lengths over the first
constexpr int kPyTorchSamples = 20;
constexpr int kPyTorchSeconds = 60;  // per row, and for the lengths

// Seconds that a miss may take, by mesh dims.
std::optional<double> most_seconds(int64_t mesh_dims) {
  static const std::map<int64_t, double> bounds{
      {1, 20e-6}, {2, 20e-6}, {4, 200e-6}, {6, 2000e-6}};
  const auto found = bounds.find(mesh_dims);
  return found == bounds.end() ? std::nullopt : std::optional(found->second);
}

/// A miss beside PyTorch's, where PyTorch was asked.
struct Row {
  MissCost cost;
  std::optional<double> pytorch_plain;
  std::optional<double> pytorch_extra;

  std::string name() const {
    return cost.name + ", " + std::to_string(cost.mesh_dims) + "-D";
  }
  std::optional<double> ratio() const {
    if (cost.communicates || !pytorch_extra) {
      return std::nullopt;
    }
    return extra_ratio({*pytorch_extra}, {cost.extra_seconds});
  }
};

/// First and last sequence lengths.
struct Lengths {
  double first = 0;
  double last = 0;
  double growth() const { return last / first; }
};

struct Result {
  std::string pytorch;  // version, or why there is none
  std::vector<Row> rows;
  std::optional<Lengths> lengths;  // none when they communicate
  std::optional<Lengths> pytorch_lengths;
};

Result measure(const std::string& python, const MissBenchOptions& options) {
  Result result;
  std::optional<PythonPeer> peer;
  result.pytorch = start_dispatch_peer(
      peer, python,
      {"misses", std::to_string(kPyTorchSamples),
       std::to_string(options.lengths), std::to_string(kPyTorchSeconds)});
  const MissRound round = bench_misses(options);
  for (const MissCost& cost : round.misses) {
    result.rows.push_back({cost, std::nullopt, std::nullopt});
  }
  if (!round.lengths_communicate) {
    result.lengths = Lengths{round.first_seconds, round.last_seconds};
  }
  if (!peer) {
    return result;
  }
  peer->send("round");
  const auto answer = ordered_json::parse(peer->receive());
  for (Row& row : result.rows) {
    const auto found =
        answer.find(row.cost.name + " " + std::to_string(row.cost.mesh_dims));
    if (found != answer.end()) {
      row.pytorch_plain = found->at("plain").get<double>();
      row.pytorch_extra = found->at("extra").get<double>();
    }
  }
  if (!answer.at("lengths").is_null()) {
    result.pytorch_lengths = Lengths{
        answer["lengths"].at("first").get<double>(),
        answer["lengths"].at("last").get<double>()};
  }
  return result;
}

std::vector<Target> targets_of(const Result& result) {
  std::vector<Target> targets;
  for (const Row& row : result.rows) {
    const double extra = row.cost.extra_seconds;
    const std::optional<double> most = most_seconds(row.cost.mesh_dims);
    if (row.cost.communicates) {
      targets.push_back({row.name() + " communicates", false});
    } else if (most) {
      targets.push_back(
          {row.name() + " " + microseconds(extra) + " us, above " +
               microseconds(*most),
           extra <= *most});
    }
  }
  if (!result.lengths) {
    targets.push_back({"sequence lengths communicate", false});
  } else {
    targets.push_back(
        {"sequence lengths: the last take " +
             formatted("%.2f", result.lengths->growth()) +
             " times the first, above " + formatted("%.2f", kMostGrowth),
         result.lengths->growth() <= kMostGrowth});
  }
  return targets;
}

std::string lengths_text(const std::optional<Lengths>& lengths) {
  return lengths ? "first tenth " + microseconds(lengths->first) +
                       " us, last tenth " + microseconds(lengths->last) + " us"
                 : "no figure";
}

void print_table(const MissBenchOptions& options, const Result& result) {
  TextTable table(
      {"", "plain us", "extra us", "PyTorch us", "extra us",
       "PyTorch / Tessera"});
  for (const Row& row : result.rows) {
    std::vector<std::string> cells{row.name()};
    if (row.cost.communicates) {
      cells.insert(cells.end(), {"communicates", ""});
    } else {
      cells.insert(
          cells.end(), {microseconds(row.cost.plain_seconds),
                        microseconds(row.cost.extra_seconds)});
    }
    if (row.pytorch_extra) {
      cells.push_back(microseconds(*row.pytorch_plain));
      cells.push_back(microseconds(*row.pytorch_extra));
    }
    if (const auto ratio = row.ratio()) {
      cells.push_back(formatted("%.0f", *ratio));
    }
    table.add(std::move(cells));
  }
  const Terminal terminal = detect_terminal(STDOUT_FILENO, false);
  print(wrapped(
      "the first call with a new shape beyond the plain call, meshes of 2 "
      "ranks per dim, one of them (simulated); medians of " +
          counted(options.samples, "shape") +
          "; PyTorch DTensor, one process of a group that sends nothing, " +
          counted(kPyTorchSamples, "shape") + ": " + result.pytorch + "\n\n" +
          table.draw(terminal) + "\n" +
          counted(options.lengths, "sequence length") +
          " in a row (add, mm, softmax): " + lengths_text(result.lengths) +
          "; PyTorch: " + lengths_text(result.pytorch_lengths) + "\n" +
          targets_text(targets_of(result)),
      terminal));
}

ordered_json json_of(const std::optional<Lengths>& lengths) {
  return lengths ? ordered_json{{"first_seconds", lengths->first},
                                {"last_seconds", lengths->last}}
                 : ordered_json();
}

void print_json(const MissBenchOptions& options, const Result& result) {
  auto rows = ordered_json::array();
  for (const Row& row : result.rows) {
    ordered_json entry = {
        {"name", row.cost.name},
        {"mesh_dims", row.cost.mesh_dims},
        {"communicates", row.cost.communicates}};
    if (!row.cost.communicates) {
      entry["plain_seconds"] = row.cost.plain_seconds;
      entry["extra_seconds"] = row.cost.extra_seconds;
    }
    if (row.pytorch_extra) {
      entry["pytorch_plain_seconds"] = *row.pytorch_plain;
      entry["pytorch_extra_seconds"] = *row.pytorch_extra;
    }
    if (const auto ratio = row.ratio()) {
      entry["ratio"] = *ratio;
    }
    rows.push_back(std::move(entry));
  }
  const ordered_json json = {
      {"shapes", options.samples},
      {"lengths", options.lengths},
      {"pytorch", result.pytorch},
      {"misses", rows},
      {"sequence_lengths", json_of(result.lengths)},
      {"pytorch_sequence_lengths", json_of(result.pytorch_lengths)},
      {"missed", missed(targets_of(result))}};
  print(json.dump(2) + "\n");
}

}  // namespace

int run_misses(const std::string& python, bool json) {
  const MissBenchOptions options;
  const Result result = measure(python, options);
  json ? print_json(options, result) : print_table(options, result);
  return 0;
}

}  // namespace tessera::cli
