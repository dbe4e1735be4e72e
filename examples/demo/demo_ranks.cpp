#include "demo_ranks.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

#include <ATen/ops/zeros.h>
#include <tessera/comm/communicator.h>
#include <tessera/comm/world.h>
#include <tessera/tensor/random.h>

namespace tessera::cli {
namespace {

/// Whether ranks are to be threads of this process, by its environment.
bool makes_threads() {
  const char* engine = std::getenv("TESSERA_ENGINE");
  return engine == nullptr ? std::getenv("TESSERA_NUM_RANKS") != nullptr
                           : std::string(engine) == "threads";
}

}  // namespace

// Some ranks train alone before, which may take longer than a rank usually
// waits, and where they draw random numbers, others do not.
void wait_for_all_ranks(const DemoOptions& options) {
  if (!options.processes) {
    return;
  }
  manual_seed(0);
  const World world = init();
  const auto usual = world.deadline();
  world.set_deadline(std::chrono::hours(24));
  world.communicator().barrier();
  world.set_deadline(usual);
}

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

void on_ranks(
    const DemoOptions& options, int64_t ranks,
    const std::function<void()>& body) {
  if (!options.processes) {
    return run_ranks(static_cast<int>(ranks), body);
  }
  run([&] {
    wait_for_all_ranks(options);
    body();
  });
}

std::string agreed_text(const DemoOptions& options, const std::string& text) {
  if (!options.processes) {
    return text;
  }
  const at::Tensor characters = at::zeros({4096}, at::kChar);
  TORCH_CHECK_VALUE(
      text.size() < 4096, "the path is too long: ", text.size(), " bytes");
  std::memcpy(characters.mutable_data_ptr(), text.data(), text.size());
  init().communicator().broadcast(characters, 0);
  return static_cast<const char*>(characters.const_data_ptr());
}

}  // namespace tessera::cli
