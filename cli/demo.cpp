// tessera demo: a module of a user's own class, trained plainly and on N ranks
// with sharded parameters; the two loss curves must be the same. The ranks are
// threads, or the processes that a launcher started.
#include <c10/util/Exception.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

#include "chart.h"
#include "command.h"
#include "text_table.h"
#include "torch_part.h"

namespace tessera::cli {
namespace {

constexpr int kMostRanks = 64;

struct DemoSettings {
  DemoOptions training;
  std::string dtype = "f64";
  bool json = false;
  bool ascii = false;
};

std::string format(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

/// Returns the largest |a - b| / max(|a|, |b|) over the steps; infinite when
/// the curves differ in length or a loss is not a number.
double relative_difference(const DemoResult& result) {
  const auto& plain = result.plain_losses;
  const auto& sharded = result.sharded_losses;
  if (plain.size() != sharded.size()) {
    return INFINITY;
  }
  double largest = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double size = std::max(std::abs(plain[i]), std::abs(sharded[i]));
    const double part =
        plain[i] == sharded[i] ? 0 : std::abs(plain[i] - sharded[i]) / size;
    if (std::isnan(part)) {
      return INFINITY;
    }
    largest = std::max(largest, part);
  }
  return largest;
}

double allowed_difference(const DemoOptions& options) {
  return options.float32 ? 1e-6 : 1e-10;
}

/// Reports steps: a bar that redraws itself on a terminal, else ten lines.
class ProgressReport {
 public:
  ProgressReport(const DemoOptions& options, const Terminal& terminal)
      : options_(options), terminal_(terminal) {}

  void operator()(bool sharded, int step, double loss) const {
    const std::string name = pad_right(
        sharded ? "sharded, " + counted(options_.ranks, "rank")
                : std::string("plain"),
        18);
    const std::string figures = std::to_string(step) + "/" +
                                std::to_string(options_.steps) + "  loss " +
                                format("%.6f", loss);
    const bool last = step == options_.steps;
    if (terminal_.is_terminal) {
      print(
          "\r  " + name + draw_bar(step, options_.steps, 30, terminal_) + " " +
          figures + (last ? "\n" : ""));
    } else if (last || step % std::max(1, options_.steps / 10) == 0) {
      print("  " + name + "step " + figures + "\n");
    }
  }

 private:
  DemoOptions options_;
  Terminal terminal_;
};

std::string verdict(const DemoResult& result, const DemoOptions& options) {
  const double difference = relative_difference(result);
  const double allowed = allowed_difference(options);
  return "largest difference between the curves: " +
         format("%.2g", difference) + " of the loss (allowed " +
         format("%.0e", allowed) + "): " +
         (difference <= allowed ? "the same training"
                                : "NOT the same training") +
         "\ntime: plain " + format("%.1f s", result.plain_seconds) +
         ", sharded " + format("%.1f s", result.sharded_seconds) + "\n";
}

void print_result(
    const DemoResult& result, const DemoOptions& options,
    const Terminal& terminal) {
  TextTable table({"parameter", "shape", "placements", "rank 0 holds"});
  for (const DemoParameter& p : result.parameters) {
    table.add({p.name, p.shape, p.placements, p.local_shape});
  }
  print(
      "\n" +
      draw_curves(
          {{"plain", result.plain_losses},
           {"sharded, " + counted(options.ranks, "rank"),
            result.sharded_losses}},
          terminal) +
      "\nparameters on " + result.mesh + "\n" + table.draw(terminal) + "\n" +
      verdict(result, options));
}

void print_result_json(const DemoResult& result, const DemoOptions& options) {
  using Json = nlohmann::ordered_json;
  Json parameters = Json::array();
  for (const DemoParameter& p : result.parameters) {
    parameters.push_back(
        {{"name", p.name},
         {"shape", p.shape},
         {"placements", p.placements},
         {"rank_0_holds", p.local_shape}});
  }
  const double difference = relative_difference(result);
  const Json json = {
      {"ranks", options.ranks},
      {"steps", options.steps},
      {"dtype", options.float32 ? "f32" : "f64"},
      {"plain_losses", result.plain_losses},
      {"sharded_losses", result.sharded_losses},
      {"largest_relative_difference", difference},
      {"allowed_difference", allowed_difference(options)},
      {"equal", difference <= allowed_difference(options)},
      {"plain_seconds", result.plain_seconds},
      {"sharded_seconds", result.sharded_seconds},
      {"mesh", result.mesh},
      {"parameters", parameters}};
  print(json.dump() + "\n");
}

/// Calls what needs LibTorch; an error in there is no mistake of the command
/// line.
template <class F>
auto with_torch(F f) {
  try {
    return f(load_torch_part());
  } catch (const c10::Error& error) {
    throw std::runtime_error(error.what_without_backtrace());
  }
}

int run_demo(const DemoSettings& settings) {
  DemoOptions options = settings.training;
  const LaunchedAs launched =
      with_torch([](const TorchPart& torch) { return torch.launched_as(); });
  if (launched.ranks > 1) {
    options.ranks = launched.ranks;
  }
  const bool prints = launched.rank == 0;
  const Terminal terminal = detect_terminal(STDOUT_FILENO, settings.ascii);
  DemoProgress progress = [](bool, int, double) {};
  if (prints && !settings.json) {
    print(
        "Training a small network to tell two spirals apart, " +
        counted(options.steps, "AdamW step") + ", " + settings.dtype + "\n");
    progress = ProgressReport(options, terminal);
  }
  const DemoResult result = with_torch(
      [&](const TorchPart& torch) { return torch.train(options, progress); });
  if (!prints) {
    return 0;
  }
  if (settings.json) {
    print_result_json(result, options);
  } else {
    print_result(result, options, terminal);
  }
  const bool equal = relative_difference(result) <= allowed_difference(options);
  return equal ? 0 : kExitFailure;
}

}  // namespace

void add_demo(CLI::App& app, int& exit_code) {
  CLI::App* demo = app.add_subcommand(
      "demo", "Train a network on sharded parameters beside the plain run");
  auto settings = std::make_shared<DemoSettings>();
  demo->add_option(
          "--ranks", settings->training.ranks,
          "number of ranks, unless a launcher started several")
      ->capture_default_str()
      ->check(CLI::Range(1, kMostRanks));
  demo->add_option("--steps", settings->training.steps, "optimizer steps")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  demo->add_option("--dtype", settings->dtype, "f32 or f64")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "f64"}));
  demo->add_flag("--json", settings->json, "print JSON");
  demo->add_flag("--ascii", settings->ascii, "draw without box characters");
  demo->callback([settings, &exit_code] {
    settings->training.float32 = settings->dtype == "f32";
    exit_code = run_demo(*settings);
  });
}

}  // namespace tessera::cli
