#include "command.h"

#include <c10/util/Exception.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/run/child.h"

namespace tessera::cli {
namespace {

/// The head of the list of this executable's commands; constants of other
/// sources add themselves before main() begins.
const Command*& first_command() {
  static const Command* first = nullptr;
  return first;
}

const Command* find_command(std::string_view name) {
  for (const Command* command : Command::all()) {
    if (command->name() == name) {
      return command;
    }
  }
  return nullptr;
}

const CommandRow* find_row(std::string_view name) {
  const auto row = std::find_if(
      kCommands.begin(), kCommands.end(),
      [&](const CommandRow& r) { return r.name == name; });
  return row == kCommands.end() ? nullptr : &*row;
}

int fail(const std::string& where, const std::string& what, int exit_code) {
  std::fprintf(stderr, "%s: %s\n", where.c_str(), what.c_str());
  return exit_code;
}

/// Becomes the executable that has a command; returns where it cannot.
int exec_command(
    const CommandRow& row, const std::vector<std::string>& arguments) {
  const std::string path = program_beside(row.executable);
  std::vector<std::string> argv = {"tessera"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  // A row whose command is nowhere would start this executable forever.
  const int error = path == own_path() ? ENOSYS : exec_program(path, argv);
  return fail(
      std::string("tessera ") + row.name,
      "cannot start " + path + ": " + std::strerror(error) +
          "; 'make build' makes it",
      kExitFailure);
}

/// Takes off what follows the first "--" of `run`: another program's words,
/// which must not be read as ours.
std::vector<std::string> split_at_dashes(std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0] != "run") {
    return {};
  }
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (dashes == arguments.end()) {
    return {};
  }
  std::vector<std::string> program(dashes + 1, arguments.end());
  arguments.erase(dashes, arguments.end());
  return program;
}

void add_commands(CLI::App& app, Invocation& invocation) {
  for (const CommandRow& row : kCommands) {
    CLI::App* added = app.add_subcommand(row.name, row.title);
    if (const Command* command = find_command(row.name)) {
      command->set_up(*added, invocation);
    }
  }
  for (const Command* command : Command::all()) {
    if (find_row(command->name()) == nullptr) {
      CLI::App* added = app.add_subcommand(command->name());
      added->group("");  // not listed
      command->set_up(*added, invocation);
    }
  }
}

/// Returns "tessera show" once a subcommand was recognised, else "tessera".
std::string command_name(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? "tessera" : "tessera " + chosen[0]->get_name();
}

/// Returns the text for a command line without a known subcommand.
std::string subcommand_advice(const std::vector<std::string>& arguments) {
  std::string names;
  for (const CommandRow& row : kCommands) {
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  const std::string problem = arguments.empty() || arguments[0].starts_with("-")
                                  ? "a subcommand is missing"
                                  : "unknown subcommand '" + arguments[0] + "'";
  return problem + "; there are: " + names + " (see tessera --help)";
}

std::string explain(
    const CLI::App& app, const std::vector<std::string>& arguments,
    const CLI::ParseError& error) {
  if (app.get_subcommands().empty()) {
    return subcommand_advice(arguments);
  }
  return std::string(error.what()) + " (see " + command_name(app) + " --help)";
}

/// Parses the arguments by the subcommands of `app`, one of which does the work
/// and leaves the exit code; returns that, or the code of what is wrong.
int parse_and_run(
    CLI::App& app, const std::vector<std::string>& arguments,
    const Invocation& invocation) {
  try {
    // CLI11 takes arguments from the end.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    return fail(command_name(app), explain(app, arguments, error), kExitUsage);
  } catch (const UsageError& error) {
    return fail(command_name(app), error.what(), kExitUsage);
  } catch (const c10::Error& error) {
    return fail(command_name(app), error.what_without_backtrace(), kExitUsage);
  } catch (const std::exception& error) {
    return fail(command_name(app), error.what(), kExitFailure);
  }
  return invocation.exit_code;
}

}  // namespace

Command::Command(const char* name, Setup setup) noexcept
    : name_(name), setup_(setup), next_(std::exchange(first_command(), this)) {}

std::vector<const Command*> Command::all() {
  std::vector<const Command*> commands;
  for (const Command* c = first_command(); c != nullptr; c = c->next_) {
    commands.push_back(c);
  }
  return commands;
}

int run_command(const std::vector<std::string>& arguments) {
  const CommandRow* row = arguments.empty() ? nullptr : find_row(arguments[0]);
  if (row != nullptr && find_command(row->name) == nullptr) {
    return exec_command(*row, arguments);
  }
  CLI::App app{"Tessera: sharded tensors for LibTorch.", "tessera"};
  app.set_version_flag(
      "--version",
      "tessera " TESSERA_VERSION " (LibTorch " TESSERA_BUILD_TORCH ")");
  app.require_subcommand(1);
  std::vector<std::string> ours = arguments;
  Invocation invocation{.program = split_at_dashes(ours)};
  add_commands(app, invocation);
  return parse_and_run(app, ours, invocation);
}

}  // namespace tessera::cli
