// A benchmark's ranks on an engine: started by `tessera run`, they run the same
// subcommand with --worker FILE, and rank 0 leaves what it measured there.
#pragma once

#include <c10/util/Exception.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace tessera::cli {

/// Runs this program's `argv` as ranks of an engine, to their end, and returns
/// what rank 0 wrote; nothing, and why, where the engine is not there. Throws
/// std::runtime_error where it fails.
std::optional<std::string> run_on_engine(
    const std::string& engine, int ranks, const std::vector<std::string>& argv,
    std::string& absence);

/// Calls `measure` as a rank: only an engine that is not there ends with
/// kExitUsage, not one that fails.
template <class F>
auto measure_as_rank(const F& measure) {
  try {
    return measure();
  } catch (const c10::NotImplementedError&) {
    throw;  // this build does not have it
  } catch (const c10::Error& error) {
    throw std::runtime_error(error.what_without_backtrace());
  }
}

}  // namespace tessera::cli
