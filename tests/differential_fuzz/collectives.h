// Steps that talk through a Communicator: every collective on the world, on a
// mesh dim, on a split; at once or overlapping; messages between pairs. Each
// result is compared with what the definition says, to the last bit.
#pragma once

#include <string>

#include <tessera/comm/device_mesh.h>

#include "differential_fuzz/data.h"
#include "differential_fuzz/program.h"

namespace tessera::programs {

/// Plays a step of kind kCollective, kOverlap or kMessages; adds what this rank
/// received to `hash` and returns what was done: "all_gather_v over mesh dim
/// 0". `between` runs while the works of kOverlap are under way.
std::string play_communication(
    const Step& step, const DeviceMesh& mesh, Hash& hash,
    const std::function<void()>& between);

}  // namespace tessera::programs
