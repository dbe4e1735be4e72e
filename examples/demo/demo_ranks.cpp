#include "demo_ranks.h"

#include <chrono>
#include <cstdlib>
#include <string>

#include <tessera/comm/world.h>

namespace tessera::cli {
namespace {

/// Whether ranks are to be threads of this process, by its environment.
bool makes_threads() {
  const char* engine = std::getenv("TESSERA_ENGINE");
  return engine == nullptr ? std::getenv("TESSERA_NUM_RANKS") != nullptr
                           : std::string(engine) == "threads";
}

// Rank 0 trains alone before, which may take longer than a rank usually waits.
void wait_for_all_ranks() {
  const World world = init();
  const auto usual = world.deadline();
  world.set_deadline(std::chrono::hours(24));
  world.communicator().barrier();
  world.set_deadline(usual);
}

}  // namespace

LaunchedAs launched_as() {
  const char* threads = std::getenv("TESSERA_NUM_RANKS");
  if (threads != nullptr && makes_threads()) {
    return {.rank = 0, .ranks = std::atoi(threads), .processes = false};
  }
  const World world = init();
  return {
      .rank = static_cast<int>(world.rank()),
      .ranks = static_cast<int>(world.size()),
      .processes = world.engine() != "threads"};
}

void on_ranks(const DemoOptions& options, const std::function<void()>& body) {
  if (!options.processes) {
    return run_ranks(static_cast<int>(options.mesh.ranks()), body);
  }
  run([&] {
    wait_for_all_ranks();
    body();
  });
}

}  // namespace tessera::cli
