// The program of `tessera bench`, called with the words of that command.
#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "command.h"
#include "command_line.h"

int main(int argc, char** argv) {
  CLI::App app{tessera::cli::kCommandTitle, "tessera"};
  app.require_subcommand(1);
  int exit_code = 0;
  tessera::cli::add_bench(app, exit_code);
  return tessera::cli::run_command_line(
      app, std::vector<std::string>(argv + 1, argv + argc), exit_code);
}
