// Processes joined by Gloo's connections.
//
// Note [Why messages only]
// Of Gloo only its messages are used: the wait for a message can be ended from
// outside, that for one of its collectives only by a timeout. So a channel that
// is closed lets go of every buffer at once, whatever the other ranks do.
// A thread of the channel makes the connections and then carries the transfers
// out one after the other; messages have a thread each, since their order among
// each other is free.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/engine/c10d/gloo_mesh.h"

namespace tessera::detail::inline comm_layer {

/// Joins `size` processes as make_gloo_mesh() does, but connects them when
/// first needed: all by the first transfer, two by the first message between
/// them, since the others need not come.
std::unique_ptr<Channel> make_gloo_channel(
    StorePtr store, GlooDevices devices, int64_t group_rank, int64_t size);

}  // namespace tessera::detail::inline comm_layer
