// The store of a job that was started as processes.
#pragma once

#include <chrono>

#include "comm/engine/c10d/store/meeting_point.h"
#include "comm/engine/c10d/store/store_ptr.h"

namespace tessera::detail::inline comm_layer {

/// Opens it; a server listens at the meeting point's address only. A rank 0
/// that does not serve within the deadline is an error that says so.
StorePtr open_job_store(
    const MeetingPoint& point, const Launch& launch,
    std::chrono::milliseconds deadline);

}  // namespace tessera::detail::inline comm_layer
