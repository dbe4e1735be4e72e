// The tessera command.
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "child.h"
#include "command.h"
#include "command_line.h"

namespace {

/// Takes off what follows the first "--" of `run`: another program's words,
/// which must not be read as ours.
std::vector<std::string> take_program(std::vector<std::string>& words) {
  if (words.empty() || words[0] != "run") {
    return {};
  }
  const auto dashes = std::find(words.begin(), words.end(), "--");
  if (dashes == words.end()) {
    return {};
  }
  std::vector<std::string> program(dashes + 1, words.end());
  words.erase(dashes, words.end());
  return program;
}

/// Becomes the program of `bench`, which is one of its own: it needs LibTorch
/// from the start, and whoever builds the demo need not build it.
int exec_bench(char** argv) {
  const std::string program = tessera::cli::program_beside("tessera-bench");
  execv(program.c_str(), argv);
  std::fprintf(
      stderr, "tessera bench: cannot start %s: %s; 'make build' makes it\n",
      program.c_str(), std::strerror(errno));
  return tessera::cli::kExitFailure;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{tessera::cli::kCommandTitle, "tessera"};
  app.set_version_flag(
      "--version",
      "tessera " TESSERA_VERSION " (LibTorch " TESSERA_BUILD_TORCH ")");
  app.require_subcommand(1);
  std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && words[0] == "bench") {
    return exec_bench(argv);
  }
  const std::vector<std::string> program = take_program(words);
  int exit_code = 0;
  tessera::cli::add_show(app, exit_code);
  tessera::cli::add_plan(app, exit_code);
  tessera::cli::add_ops(app, exit_code);
  tessera::cli::add_run(app, program, exit_code);
  tessera::cli::add_doctor(app, exit_code);
  tessera::cli::add_demo(app, exit_code);
  app.add_subcommand("bench", tessera::cli::kBenchTitle);
  return tessera::cli::run_command_line(app, words, exit_code);
}
