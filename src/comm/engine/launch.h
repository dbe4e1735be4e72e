// How this process was started: alone, or as one rank of several.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tessera::detail::inline comm_layer {

/// One rank of a job, as a launcher describes it. All fields are from one
/// source.
struct Launch {
  std::string source;  // "tessera run", "torchrun", "Open MPI", ...
  int64_t rank = 0;
  int64_t size = 1;
  int64_t local_rank = 0;
  int64_t local_size = 1;  // 0: not known
  /// The engine that suits the launcher: "mpi", "gloo".
  std::string engine;
};

/// Returns a variable of the environment; "" where it is not set.
using Environment = std::function<std::string(const std::string& name)>;
std::string environment(const std::string& name);

/// Finds out who started this process; nothing where nobody says so. A source
/// that is set by half, or has a rank outside its size, is an error that names
/// it. Order: our own variables, RANK and WORLD_SIZE, Open MPI, PMI, Slurm
/// inside a step, PMIx.
std::optional<Launch> find_launch(const Environment& get = environment);

}  // namespace tessera::detail::inline comm_layer
