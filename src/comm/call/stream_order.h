// Order between the streams of ranks that share accelerators: who runs a part
// first waits for what every rank had enqueued when it made its call, and every
// rank's later work waits for the parts. Host tensors need none of it.
#pragma once

#include <optional>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "comm/call/shared_memory_collectives.h"

namespace tessera::detail::inline comm_layer {

/// A point in a stream.
struct StreamPoint {
  c10::Stream stream;
  c10::Event event;
};

/// Marks what this thread has enqueued for the call's device; nothing for host
/// memory.
std::optional<StreamPoint> mark_stream(const CollectiveCall& call);

/// Makes this thread's streams wait for the given points, and keeps the calls'
/// memory alive until those streams are done with it.
void enter_chunks(
    const Calls& calls, const std::vector<std::optional<StreamPoint>>& points);

/// Marks the end of parts run by this thread, once per device.
std::vector<StreamPoint> leave_chunks(const Calls& calls);

/// Makes this thread's stream of the call's device wait for the points.
void join_chunks(
    const CollectiveCall& call, const std::vector<StreamPoint>& points);

}  // namespace tessera::detail::inline comm_layer
