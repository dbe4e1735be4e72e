// The machine that redistributions are priced for, and what a thread keeps.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/export.h>
#include <tessera/plan/cost.h>

namespace tessera {

/// Returns the model by which this rank chooses its plans.
TESSERA_API const MachineModel& machine_model();

/// Sets it for this rank's thread and the backward passes that it starts. Every
/// rank of a mesh must set the same one: ranks that choose different plans make
/// different calls, which is an error. Example: set_machine_model({.link =
/// {.latency = 2e-6, .bandwidth = 80e9}}).
TESSERA_API void set_machine_model(const MachineModel& model);

/// Returns how many plans this rank's thread keeps; at most 1024.
TESSERA_API size_t cached_plan_count();

/// Returns how many decisions about calls of operators this rank's thread
/// keeps; at most 2048.
TESSERA_API size_t cached_decision_count();
/// Returns how many calls this thread has decided, instead of finding what it
/// decided before. Example: a training loop decides nothing after its second
/// step.
TESSERA_API int64_t decided_call_count();
/// Forgets the plans and decisions that this thread keeps, and with them the
/// meshes, and groups, that they were made for.
/// Example: clear_caches() before a group that was passed to
/// from_process_group() is to end.
TESSERA_API void clear_caches();

/// Returns how many calls on sharded tensors have reached Tessera on this
/// thread, those that composite operators decompose into included.
/// Example: the difference over one linear layer, forward and backward.
TESSERA_API int64_t dispatched_call_count();

}  // namespace tessera
