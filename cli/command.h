// The commands of `tessera`, and what each executable has of them.
//
// Note [Executables of the command]
// `tessera` needs no LibTorch, whose loading takes 0.2 s and can fail: show,
// plan, ckpt and run start at once, and doctor can tell what is wrong. A
// command that needs LibTorch lives in a second executable beside it, and
// `tessera NAME` becomes that one by exec, so that options, output, signals and
// exit codes are its own. All executables share main.cpp.
//
// A command is a row of kCommands and a source with a Command of that name. A
// Command without a row is for other commands to call in its executable, and
// help does not list it.
#pragma once

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tessera::cli {

inline constexpr int kExitUsage = 2;    // the user's input is wrong
inline constexpr int kExitFailure = 1;  // the input is right, the work failed

/// A mistake in the command line that parsing alone does not find.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A line of `tessera --help`, and the executable that has the command.
struct CommandRow {
  const char* name;
  const char* title;
  const char* executable = "tessera";
};

/// In the order of `tessera --help`.
inline constexpr std::array kCommands = {
    CommandRow{"show", "Draw which rank holds which part of a tensor"},
    CommandRow{
        "plan", "Show how a tensor is brought from one layout to another"},
    CommandRow{
        "ops", "List how each operator runs on sharded tensors",
        "tessera-torch"},
    CommandRow{
        "ckpt", "List, verify, convert, reshard and compare checkpoints"},
    CommandRow{"run", "Run a program on N ranks: run -n N -- PROGRAM [ARGS]"},
    CommandRow{"doctor", "Check LibTorch, engines and devices on this machine"},
    CommandRow{
        "demo", "Train a small GPT on a mesh of ranks beside the plain run",
        "tessera-demo"},
    CommandRow{"bench", "Measure Tessera, beside PyTorch", "tessera-bench"},
};

/// What a command is given beside its options, and what it leaves.
struct Invocation {
  std::vector<std::string> program;  // what followed "--" of `run`
  int exit_code = 0;
};

/// A command of this executable. Each is a constant of the source that
/// implements it.
class Command {
 public:
  /// Adds options to the subcommand, and a callback that does the work and sets
  /// the exit code; `invocation` outlives both.
  using Setup = void (*)(CLI::App& command, Invocation& invocation);

  Command(const char* name, Setup setup) noexcept;
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  const char* name() const { return name_; }
  void set_up(CLI::App& command, Invocation& invocation) const {
    setup_(command, invocation);
  }

  /// Returns the commands of this executable.
  static std::vector<const Command*> all();

 private:
  const char* name_;
  Setup setup_;
  const Command* next_;
};

/// Runs `tessera ARGUMENTS`: here, or by becoming the executable that has the
/// command. Returns the exit code; one clear message and no stack trace where
/// something is wrong.
int run_command(const std::vector<std::string>& arguments);

}  // namespace tessera::cli
