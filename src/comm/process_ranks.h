// The rank that this process is, where a launcher started several.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include <tessera/comm/world.h>

#include "comm/engine/launch.h"
#include "comm/engine/process/process_world.h"

namespace tessera::detail::inline comm_layer {

/// Returns the world of this process among those that its launcher started,
/// made by the first call; nullptr where it runs alone. `engine` may force one.
std::shared_ptr<ProcessWorld> this_process(
    Engine engine = Engine::kAuto,
    std::chrono::milliseconds deadline = InitOptions().deadline);

/// Returns the world of the run_process_ranks() that is under way, else that of
/// this_process().
std::shared_ptr<ProcessWorld> current_process_world();

/// Runs `body` on the first `n` processes of the job, as a world of its own;
/// the others wait. What fails on one rank is thrown on all processes, as
/// run_ranks() does. Every process calls it.
void run_process_ranks(
    int64_t n, const std::function<void()>& body,
    std::chrono::milliseconds deadline);

/// Runs `body` as this process's rank: an exception is told to the others
/// before it leaves.
void run_as_process(ProcessWorld& world, const std::function<void()>& body);

/// Opens the engine of a name ("mpi", "gloo"); an error where it is not there,
/// or where a rank that it needs does not start within the deadline.
std::unique_ptr<Transport> load_transport(
    const std::string& engine, const Launch& launch,
    std::chrono::milliseconds deadline);

}  // namespace tessera::detail::inline comm_layer
