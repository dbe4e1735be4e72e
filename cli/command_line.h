// The words of a command line, parsed and carried out. Input that is wrong ends
// with one clear message and exit code 2, never with a stack trace.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tessera::cli {

inline constexpr const char* kCommandTitle =
    "Tessera: sharded tensors for LibTorch.";

/// Parses `words` by the subcommands of `app`, one of which does the work and
/// leaves `exit_code`; returns that, or the code of what is wrong.
int run_command_line(
    CLI::App& app, const std::vector<std::string>& words, const int& exit_code);

}  // namespace tessera::cli
