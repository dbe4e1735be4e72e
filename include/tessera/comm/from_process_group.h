// A Communicator over a process group that the program has: one that it made
// in C++, or that of Python's torch.distributed in the same process.
//
// Not the ProcessGroup of sharded_tensor/process_group.h, which is a list of
// our ranks. docs/04_launching.md shows both ways in.
#pragma once

#include <chrono>

#include <c10/util/intrusive_ptr.h>
#include <tessera/comm/communicator.h>
#include <tessera/export.h>

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace tessera {

/// Returns a communicator of all ranks of a ready group (Gloo, NCCL, MPI, UCC,
/// a vendor's), in a world of its own whose ranks are those of the group: 0 to
/// n-1. Every rank of the group calls it, as often as the others; each call
/// makes a new world. DeviceMesh::from_group() makes meshes on it, split()
/// smaller groups.
///
/// Where the group has a store, connections are made beside it: the group
/// itself is used for nothing, and a failure here leaves it whole. NCCL is
/// split, and calls are staged through its device. Without a store the group's
/// backend carries the calls, and should not be used after a failure. Example:
/// from_process_group(c10d::resolve_process_group("0"));
TESSERA_API Communicator from_process_group(
    c10::intrusive_ptr<c10d::ProcessGroup> group,
    std::chrono::milliseconds deadline = std::chrono::minutes(5));

}  // namespace tessera
