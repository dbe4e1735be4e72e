// The subcommands: each file adds one to the program and says what to run.
#pragma once

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

// Each adds its subcommand; parsing it stores the exit code of the work.
void add_show(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
void add_ops(CLI::App& app, int& exit_code);
/// `program` is what followed "--".
void add_run(
    CLI::App& app, const std::vector<std::string>& program, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);
void add_demo(CLI::App& app, int& exit_code);
/// In a program of its own, tessera-bench.
void add_bench(CLI::App& app, int& exit_code);
inline constexpr const char* kBenchTitle = "Measure Tessera, beside PyTorch";

}  // namespace tessera::cli
