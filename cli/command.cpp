#include "command_line.h"

#include <c10/util/Exception.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <string>
#include <vector>

#include "command.h"

namespace tessera::cli {
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

}  // namespace

int run_command_line(
    CLI::App& app, const std::vector<std::string>& words,
    const int& exit_code) {
  try {
    // CLI11 takes words from the end.
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    return fail(spoken_name(app), explain(app, words, error), kExitUsage);
  } catch (const UsageError& error) {
    return fail(spoken_name(app), error.what(), kExitUsage);
  } catch (const c10::Error& error) {
    return fail(spoken_name(app), error.what_without_backtrace(), kExitUsage);
  } catch (const std::exception& error) {
    return fail(spoken_name(app), error.what(), kExitFailure);
  }
  return exit_code;
}

}  // namespace tessera::cli
