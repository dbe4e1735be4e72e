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

/// Adds `bench comm`.
void add_bench_comm(CLI::App& bench, int& exit_code);
/// Adds `bench dispatch`.
void add_bench_dispatch(CLI::App& bench, int& exit_code);
/// Runs `bench dispatch --misses`, with the Python named or the one found.
int run_misses(const std::string& python, bool json);

}  // namespace tessera::cli
