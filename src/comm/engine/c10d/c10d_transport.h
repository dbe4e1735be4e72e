// Networks of processes that LibTorch's c10d can make.
#pragma once

#include <chrono>
#include <memory>

#include <c10/util/intrusive_ptr.h>

#include "comm/engine/launch.h"
#include "comm/engine/process/transport.h"

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace tessera::detail::inline comm_layer {

/// Opens Gloo for a job that a launcher started as processes; needs stock
/// LibTorch only. A rank that does not start within the deadline is an error.
std::unique_ptr<Transport> open_gloo_transport(
    const Launch& launch, std::chrono::milliseconds deadline);

/// Opens a network over a ready group; every rank of it calls this. See
/// from_process_group().
std::unique_ptr<Transport> open_group_transport(
    const c10::intrusive_ptr<::c10d::ProcessGroup>& group);

}  // namespace tessera::detail::inline comm_layer
