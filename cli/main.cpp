// The tessera command. Input that is wrong ends with one clear message and exit
// code 2, never with a stack trace.
#include <c10/util/Exception.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <string>

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

int run_command(CLI::App& app, int argc, char** argv, const int& exit_code) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    const std::string name = spoken_name(app);
    return fail(
        name, std::string(error.what()) + " (see " + name + " --help)",
        tessera::cli::kExitUsage);
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
  int exit_code = 0;
  tessera::cli::add_show(app, exit_code);
  tessera::cli::add_run(app, exit_code);
  tessera::cli::add_doctor(app, exit_code);
  tessera::cli::add_demo(app, exit_code);
  return run_command(app, argc, argv, exit_code);
}
