// The tessera command. Input that is wrong ends with one clear message and exit
// code 2, never with a stack trace.
#include <c10/util/Exception.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "command.h"

namespace {

int fail(const std::string& where, const std::string& what, int exit_code) {
  std::fprintf(stderr, "%s: %s\n", where.c_str(), what.c_str());
  return exit_code;
}

/// Returns "tessera show" once a subcommand was recognised, else "tessera".
std::string spoken_name(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? "tessera" : "tessera " + chosen[0]->get_name();
}

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

/// Returns the text for a command line without a known subcommand.
std::string subcommand_advice(
    const CLI::App& app, const std::vector<std::string>& words) {
  std::string names;
  for (const CLI::App* known : app.get_subcommands(nullptr)) {
    names += (names.empty() ? "" : ", ") + known->get_name();
  }
  const std::string problem = words.empty() || words[0].starts_with("-")
                                  ? "a subcommand is missing"
                                  : "unknown subcommand '" + words[0] + "'";
  return problem + "; there are: " + names + " (see tessera --help)";
}

std::string explain(
    const CLI::App& app, const std::vector<std::string>& words,
    const CLI::ParseError& error) {
  if (app.get_subcommands().empty()) {
    return subcommand_advice(app, words);
  }
  return std::string(error.what()) + " (see " + spoken_name(app) + " --help)";
}

int run_command(
    CLI::App& app, const std::vector<std::string>& words,
    const int& exit_code) {
  try {
    // CLI11 takes words from the end.
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    return fail(
        spoken_name(app), explain(app, words, error), tessera::cli::kExitUsage);
  } catch (const tessera::cli::UsageError& error) {
    return fail(spoken_name(app), error.what(), tessera::cli::kExitUsage);
  } catch (const c10::Error& error) {
    return fail(
        spoken_name(app), error.what_without_backtrace(),
        tessera::cli::kExitUsage);
  } catch (const std::exception& error) {
    return fail(spoken_name(app), error.what(), tessera::cli::kExitFailure);
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Tessera: sharded tensors for LibTorch.", "tessera"};
  app.set_version_flag(
      "--version",
      "tessera " TESSERA_VERSION " (LibTorch " TESSERA_BUILD_TORCH ")");
  app.require_subcommand(1);
  std::vector<std::string> words(argv + 1, argv + argc);
  const std::vector<std::string> program = take_program(words);
  int exit_code = 0;
  tessera::cli::add_show(app, exit_code);
  tessera::cli::add_plan(app, exit_code);
  tessera::cli::add_ops(app, exit_code);
  tessera::cli::add_run(app, program, exit_code);
  tessera::cli::add_doctor(app, exit_code);
  tessera::cli::add_demo(app, exit_code);
  tessera::cli::add_bench(app, exit_code);
  return run_command(app, words, exit_code);
}
