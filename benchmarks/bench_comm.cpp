// tessera bench comm: the collectives of every engine, in turns with PyTorch's
// over Gloo. Each round starts each engine's ranks once, by `tessera run`.
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <optional>

#include "bench.h"
#include "bench_workers.h"
#include "cli/command.h"
#include "cli/text/progress.h"
#include "cli/text/terminal.h"
#include "cli/text/text_table.h"
#include "comm_pytorch.h"
#include "engine_worker.h"
#include "python_peer.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;

struct Options {
  CommBenchOptions bench;
  int rounds = 3;
  std::vector<int> ranks{2, 4};
  std::vector<std::string> engines{"threads", "mpi", "gloo"};
  std::string python;
  std::string worker;  // the file for the times of a worker
  bool json = false;
};

/// Seconds by "large all_gather" and the like, in the order measured.
using Times = std::vector<std::pair<std::string, double>>;

std::string key_of(const CommTime& time) {
  return (time.large ? "large " : "small ") + time.collective;
}

Times times_of(const ordered_json& json) {
  Times times;
  for (const auto& [key, seconds] : json.items()) {
    times.emplace_back(key, seconds.get<double>());
  }
  return times;
}

/// Measures one engine once; nothing, and why, where it is not there.
std::optional<Times> run_engine(
    const Options& options, const std::string& engine, int ranks,
    std::string& absence) {
  const auto answer = run_on_engine(
      engine, ranks,
      {"bench", "comm", "--mib", std::to_string(options.bench.mebibytes),
       "--repeats", std::to_string(options.bench.repeats)},
      absence);
  return answer ? std::optional(times_of(ordered_json::parse(*answer)))
                : std::nullopt;
}

/// PyTorch's processes; they sleep between rounds.
class Pytorch {
 public:
  Pytorch(const std::string& python, const CommBenchOptions& bench, int ranks)
      : peer_(
            python, comm_pytorch,
            {std::to_string(ranks), std::to_string(bench.mebibytes),
             std::to_string(bench.repeats), std::to_string(bench.small_calls)},
            "benchmarks/comm_pytorch.py 4 16 5 50"),
        version_(ordered_json::parse(peer_.receive())["torch"]) {}

  const std::string& version() const { return version_; }
  Times round() {
    peer_.send("round");
    return times_of(ordered_json::parse(peer_.receive()));
  }

 private:
  PythonPeer peer_;
  std::string version_;
};

/// One collective of one size on one number of ranks: the seconds of each
/// round by engine; PyTorch is "pytorch".
struct Row {
  int ranks;
  std::string key;
  std::map<std::string, std::vector<double>> seconds;
};

struct Result {
  std::string pytorch;                        // version, or why there is none
  std::map<std::string, std::string> absent;  // engine -> why
  std::vector<Row> rows;

  Row& row(int ranks, const std::string& key) {
    for (Row& known : rows) {
      if (known.ranks == ranks && known.key == key) {
        return known;
      }
    }
    return rows.emplace_back(Row{ranks, key, {}});
  }
  void add(int ranks, const std::string& engine, const Times& times) {
    for (const auto& [key, seconds] : times) {
      row(ranks, key).seconds[engine].push_back(seconds);
    }
  }
};

void measure_ranks(
    const Options& options, int ranks, const std::string& python,
    Result& result) {
  std::optional<Pytorch> pytorch;
  if (!python.empty()) {
    pytorch.emplace(python, options.bench, ranks);
    result.pytorch = pytorch->version();
  }
  Progress progress(
      "comm, " + counted(ranks, "rank"), static_cast<uint64_t>(options.rounds),
      false, "rounds");
  for (int round = 0; round < options.rounds; ++round) {
    for (const std::string& engine : options.engines) {
      if (result.absent.contains(engine)) {
        continue;
      }
      std::string absence;
      if (const auto times = run_engine(options, engine, ranks, absence)) {
        result.add(ranks, engine, *times);
      } else {
        result.absent[engine] = absence;
      }
    }
    if (pytorch) {
      result.add(ranks, "pytorch", pytorch->round());
    }
    progress.advance();
  }
}

Result measure(const Options& options) {
  // One thread per rank on all sides.
  setenv("OMP_NUM_THREADS", "1", 1);
  const std::string python = find_python(options.python);
  Result result;
  result.pytorch = "not found; --python names one that can import torch";
  for (const int ranks : options.ranks) {
    measure_ranks(options, ranks, python, result);
  }
  return result;
}

std::string size_of(const Options& options, const Row& row) {
  if (row.key == "small barrier") {
    return "";
  }
  return row.key.starts_with("large")
             ? std::to_string(options.bench.mebibytes) + " MiB"
             : "4 bytes";
}

std::string milliseconds(double seconds) {
  return formatted(seconds < 1e-3 ? "%.4f" : "%.2f", 1e3 * seconds);
}

void print_table(const Options& options, const Result& result) {
  std::vector<std::string> header{"ranks", "size", "collective"};
  for (const std::string& engine : options.engines) {
    header.push_back(engine + " ms");
  }
  header.push_back("PyTorch ms");
  for (const std::string& engine : options.engines) {
    header.push_back("/ " + engine);
  }
  TextTable table(header);
  for (const Row& row : result.rows) {
    const auto of = [&](const std::string& engine) {
      const auto found = row.seconds.find(engine);
      return found == row.seconds.end() ? std::vector<double>() : found->second;
    };
    std::vector<std::string> cells{
        std::to_string(row.ranks), size_of(options, row), row.key.substr(6)};
    std::vector<std::string> names = options.engines;
    names.emplace_back("pytorch");
    for (const std::string& name : names) {
      cells.push_back(of(name).empty() ? "-" : milliseconds(median(of(name))));
    }
    for (const std::string& engine : options.engines) {
      const bool both = !of(engine).empty() && !of("pytorch").empty();
      cells.push_back(
          both ? formatted("%.1f", median_ratio(of("pytorch"), of(engine)))
               : "-");
    }
    table.add(std::move(cells));
  }
  std::string text =
      "f32, " + counted(options.rounds, "round") + " of " +
      std::to_string(options.bench.repeats) +
      ", medians; PyTorch's Gloo: " + result.pytorch +
      "; the last columns are PyTorch / engine\n" +
      "a size is that of the larger side; 4 bytes go from or to each rank\n";
  for (const auto& [engine, why] : result.absent) {
    text += engine + " was left out: " + why + "\n";
  }
  const Terminal terminal = detect_terminal(STDOUT_FILENO, false);
  print(wrapped(text, terminal) + "\n" + table.draw(terminal));
}

void print_json(const Options& options, const Result& result) {
  auto rows = ordered_json::array();
  for (const Row& row : result.rows) {
    ordered_json ratios = ordered_json::object();
    const auto pytorch = row.seconds.find("pytorch");
    for (const auto& [engine, seconds] : row.seconds) {
      if (engine != "pytorch" && pytorch != row.seconds.end()) {
        ratios[engine] = median_ratio(pytorch->second, seconds);
      }
    }
    rows.push_back(
        {{"ranks", row.ranks},
         {"size", row.key.substr(0, 5)},
         {"collective", row.key.substr(6)},
         {"seconds", row.seconds},
         {"ratio", ratios}});
  }
  const ordered_json json = {
      {"mebibytes", options.bench.mebibytes},
      {"rounds", options.rounds},
      {"repeats", options.bench.repeats},
      {"pytorch", result.pytorch},
      {"left_out", result.absent},
      {"collectives", rows}};
  print(json.dump(2) + "\n");
}

int run_worker(const Options& options) {
  const auto times = measure_as_rank([&] { return bench_comm(options.bench); });
  if (times.empty()) {
    return 0;  // the process of rank 0 writes
  }
  ordered_json json = ordered_json::object();
  for (const CommTime& time : times) {
    json[key_of(time)] = time.seconds;
  }
  std::ofstream(options.worker) << json.dump() << "\n";
  return 0;
}

int run_comm(const Options& options) {
  if (!options.worker.empty()) {
    return run_worker(options);
  }
  const Result result = measure(options);
  options.json ? print_json(options, result) : print_table(options, result);
  return 0;
}

}  // namespace

void add_bench_comm(CLI::App& bench, int& exit_code) {
  CLI::App* comm = bench.add_subcommand(
      "comm", "The collectives of every engine, beside PyTorch's Gloo");
  auto options = std::make_shared<Options>();
  comm->add_option("--ranks", options->ranks, "2 and 4 unless told")
      ->check(CLI::Range(1, 64));
  comm->add_option("--engine", options->engines, "threads, mpi and gloo")
      ->check(CLI::IsMember({"threads", "mpi", "gloo"}));
  comm->add_option(
          "--mib", options->bench.mebibytes, "larger side, 16 unless told")
      ->check(CLI::Range(1, 4096));
  comm->add_option("--rounds", options->rounds, "3 unless told")
      ->check(CLI::Range(1, 1000));
  comm->add_option("--repeats", options->bench.repeats, "per round: 5")
      ->check(CLI::Range(1, 1000));
  comm->add_option(
      "--python", options->python, "a Python that can import torch");
  comm->add_flag("--json", options->json, "print JSON");
  comm->add_option("--worker", options->worker, "measure as a rank")
      ->group("");  // hidden: how the ranks are started
  comm->callback([options, &exit_code] { exit_code = run_comm(*options); });
}

}  // namespace tessera::cli
