// Messages of a rank to itself, which no channel need carry.
#pragma once

#include <memory>

#include "comm/engine/process/transport.h"

namespace tessera::detail::inline comm_layer {

/// Returns the channel with messages from `group_rank` to itself kept in this
/// process; a send is complete at once, since it leaves a copy.
std::unique_ptr<Channel> with_self_messages(
    std::unique_ptr<Channel> channel, int64_t group_rank);

}  // namespace tessera::detail::inline comm_layer
