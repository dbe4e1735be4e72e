// What the benchmarks share.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tessera::cli {

/// Returns the middle value; the upper one of two.
double median(std::vector<double> values);
/// Returns the median over rounds of above[i] / below[i].
double median_ratio(
    const std::vector<double>& above, const std::vector<double>& below);
/// Prints a number with printf's words.
std::string formatted(const char* format, double value);

/// A figure against its bound.
struct Target {
  std::string text;  // how it is missed: "add 0.90 us ..., above 0.50"
  bool met = false;
};

/// Returns the texts of the targets that are not met.
std::vector<std::string> missed(const std::vector<Target>& targets);
/// Prints what is missed, or that nothing is.
std::string targets_text(const std::vector<Target>& targets);

/// Adds `bench checkpoint`.
void add_bench_checkpoint(CLI::App& bench, int& exit_code);
/// Adds `bench clip`.
void add_bench_clip(CLI::App& bench, int& exit_code);
/// Adds `bench comm`.
void add_bench_comm(CLI::App& bench, int& exit_code);
/// Adds `bench dispatch`.
void add_bench_dispatch(CLI::App& bench, int& exit_code);
/// Adds `bench operators`.
void add_bench_operators(CLI::App& bench, int& exit_code);
/// Adds `bench init`.
void add_bench_init(CLI::App& bench, int& exit_code);
/// Adds `bench fsdp`.
void add_bench_fsdp(CLI::App& bench, int& exit_code);
/// Adds `bench recompute`.
void add_bench_recompute(CLI::App& bench, int& exit_code);
/// Adds `bench step`.
void add_bench_step(CLI::App& bench, int& exit_code);
/// Adds `bench train`.
void add_bench_train(CLI::App& bench, int& exit_code);
/// Runs `bench dispatch --misses`, with the Python named or the one found.
int run_misses(const std::string& python, bool json);

}  // namespace tessera::cli
