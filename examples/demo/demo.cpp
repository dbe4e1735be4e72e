// tessera demo: a small GPT, trained plainly and on a mesh of ranks; the two
// loss curves must be the same. The ranks are threads, processes that this
// command starts, or those that a launcher started.
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <array>
#include <climits>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/run/child.h"
#include "demo_mesh.h"
#include "demo_ranks.h"
#include "demo_report.h"
#include "demo_training.h"
#include "demo_verdict.h"

namespace tessera::cli {
namespace {

constexpr int64_t kMostRanks = kDemoSizes.batch * kDemoSizes.heads;

struct DemoSettings {
  std::optional<int64_t> ranks;
  std::string mesh;
  std::string restart;
  std::string checkpoint;
  std::string engine = "threads";
  int steps = DemoOptions().steps;
  std::string dtype = "f64";
  bool recompute = false;
  bool fsdp = false;
  bool json = false;
  bool ascii = false;
  // For the processes that this command starts.
  bool is_rank = false;
  std::string terminal;
};

/// Calls what computes; an error in there is no mistake of the command line.
template <class F>
auto as_work(F f) {
  try {
    return f();
  } catch (const c10::Error& error) {
    throw std::runtime_error(error.what_without_backtrace());
  }
}

/// Returns the path of the terminal that output goes to, if it does.
std::string terminal_path() {
  std::array<char, PATH_MAX> path{};
  const bool found = isatty(STDOUT_FILENO) == 1 &&
                     ttyname_r(STDOUT_FILENO, path.data(), path.size()) == 0;
  return found ? path.data() : "";
}

/// Prints to the terminal itself: what goes through the launcher goes by whole
/// lines, and a bar that redraws itself is none.
void print_to_terminal(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  if (fd >= 0) {
    dup2(fd, STDOUT_FILENO);
    close(fd);
  }
}

/// Becomes `tessera run` of this command on processes.
[[noreturn]] void exec_job(
    const DemoSettings& settings, const DemoOptions& options) {
  const std::string launcher = program_beside("tessera");
  std::vector<std::string> words{
      launcher,
      "run",
      "--engine",
      settings.engine,
      "-n",
      std::to_string(options.mesh.ranks()),
      "--no-prefix",
      "--",
      own_path(),
      "demo",
      "--is-rank",
      "--mesh",
      "dp=" + std::to_string(options.mesh.dp) +
          ",tp=" + std::to_string(options.mesh.tp),
      "--steps",
      std::to_string(options.steps),
      "--dtype",
      settings.dtype};
  for (const auto& [option, value] :
       {std::pair("--restart", settings.restart),
        std::pair("--checkpoint", settings.checkpoint)}) {
    if (!value.empty()) {
      words.insert(words.end(), {option, value});
    }
  }
  for (const auto& [flag, is_on] :
       {std::pair("--recompute", settings.recompute),
        std::pair("--fsdp", settings.fsdp), std::pair("--json", settings.json),
        std::pair("--ascii", settings.ascii)}) {
    if (is_on) {
      words.emplace_back(flag);
    }
  }
  if (const std::string path = terminal_path(); !path.empty()) {
    words.insert(words.end(), {"--terminal", path});
  }
  const int error = exec_program(launcher, words);
  throw std::runtime_error(
      "cannot start " + launcher + ": " + std::strerror(error));
}

/// Trains, and on rank 0 reports; returns the exit code.
int train_and_report(
    const DemoSettings& settings, const DemoOptions& options, bool reports) {
  if (reports && !settings.terminal.empty()) {
    print_to_terminal(settings.terminal);
  }
  const Terminal terminal = detect_terminal(STDOUT_FILENO, settings.ascii);
  DemoProgress progress = [](const DemoStep&) {};
  if (reports && !settings.json) {
    print(demo_opening(options));
    progress = DemoProgressReport(options, terminal);
  }
  const DemoResult result =
      as_work([&] { return train_demo(options, progress); });
  if (!reports) {
    return 0;
  }
  print(
      settings.json ? demo_json(result, options)
                    : demo_text_report(result, options, terminal));
  const DemoVerdict verdict = compare_curves(
      result.plain.losses, result.sharded.losses, accuracy_of(options.dtype));
  return verdict.equal() ? 0 : kExitFailure;
}

/// Says what is wrong with the checkpoint before half of the steps are done.
void check_checkpoint(const DemoOptions& options) {
  if (options.checkpoint.empty()) {
    return;
  }
  if (!options.restart) {
    throw UsageError(
        "--checkpoint: there is no restart, so no checkpoint is saved; leave "
        "it out");
  }
  if (std::filesystem::exists(options.checkpoint)) {
    throw UsageError(
        "--checkpoint: there is something at " + options.checkpoint +
        " already; name another path");
  }
}

/// Returns the mesh that is asked for. Where none is, fully_shard() has all
/// ranks along "dp".
DemoMesh mesh_for(const DemoSettings& settings, std::optional<int64_t> ranks) {
  const bool one_dim = settings.fsdp && settings.mesh.empty();
  const int64_t along_dp = ranks.value_or(DemoMesh().ranks());
  return demo_mesh(
      one_dim ? "dp=" + std::to_string(along_dp) : settings.mesh, ranks);
}

int run_demo(const DemoSettings& settings) {
  DemoOptions options;
  options.steps = settings.steps;
  options.dtype = settings.dtype;
  options.recompute = settings.recompute;
  options.fsdp = settings.fsdp;
  options.mesh = mesh_for(settings, settings.ranks);
  const LaunchedAs launched = as_work(launched_as);
  const bool is_launched = launched.ranks > 1 || settings.is_rank;
  const bool starts_job = !is_launched && settings.engine != "threads";
  if (is_launched) {
    options.mesh = mesh_for(settings, launched.ranks);
    options.processes = launched.processes;
  }
  options.checkpoint = settings.checkpoint;
  options.restart = restart_mesh(
      settings.restart, options.mesh, options.steps,
      starts_job || options.processes ? options.mesh.ranks() : kMostRanks);
  if (launched.rank == 0) {  // others may come when it is there
    check_checkpoint(options);
  }
  if (starts_job) {
    exec_job(settings, options);
  }
  return train_and_report(settings, options, launched.rank == 0);
}

void check_engine(const std::string& engine) {
  if (engine != "threads" && engine != "mpi" && engine != "gloo") {
    throw UsageError(
        "there is no engine '" + engine + "'; there are: threads, mpi, gloo");
  }
}

void set_up_demo(CLI::App& demo, Invocation& invocation) {
  auto settings = std::make_shared<DemoSettings>();
  demo.add_option(
          "--ranks", settings->ranks,
          "number of ranks, 4 unless told or a launcher started several")
      ->check(CLI::Range(int64_t{1}, kMostRanks));
  demo.add_option(
      "--mesh", settings->mesh,
      "ranks along which batches and weights are cut: dp=2,tp=2");
  demo.add_option(
      "--restart", settings->restart,
      "mesh on which the sharded run goes on after half of the steps, from a "
      "checkpoint; none: it goes through; by default one of a rank less");
  demo.add_option(
      "--checkpoint", settings->checkpoint,
      "keep the checkpoint, a folder that does not exist yet");
  demo.add_option(
          "--engine", settings->engine,
          "how ranks are realised: threads, mpi, gloo")
      ->capture_default_str();
  demo.add_option("--steps", settings->steps, "optimizer steps")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  demo.add_option(
          "--dtype", settings->dtype,
          "f64, f32, or bf16: f32 under autocast, with a LossScaler")
      ->capture_default_str()
      ->check(CLI::IsMember({"f64", "f32", "bf16"}));
  demo.add_flag(
      "--recompute", settings->recompute,
      "compute the activations of each block of the sharded model again");
  demo.add_flag(
      "--fsdp", settings->fsdp,
      "cut parameters, gradients and optimizer state along dp (fully_shard)");
  demo.add_flag("--json", settings->json, "print JSON");
  demo.add_flag("--ascii", settings->ascii, "draw without box characters");
  demo.add_flag("--is-rank", settings->is_rank)->group("");
  demo.add_option("--terminal", settings->terminal)->group("");
  demo.callback([settings, &invocation] {
    check_engine(settings->engine);
    invocation.exit_code = run_demo(*settings);
  });
}

const Command kDemo{"demo", &set_up_demo};

}  // namespace
}  // namespace tessera::cli
