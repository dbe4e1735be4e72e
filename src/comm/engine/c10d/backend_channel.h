// A channel over a backend that the program has made: NCCL, MPI, UCC, a
// vendor's.
#pragma once

#include <memory>

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "comm/engine/process/transport.h"

namespace tessera::detail::inline comm_layer {

/// Says how a BackendChannel treats its backend when it is closed.
enum class BackendOwner : uint8_t {
  kProgram,  // left as it is
  kChannel,  // aborted, which ends what others wait for
};

/// Makes a channel over all ranks of a backend, which moves tensors of
/// `device`. Transfers go through tensors of the channel's own: the backend
/// never sees the memory of a call, which is free as soon as the channel is
/// closed. Messages take another channel of the same ranks, since some backends
/// know no tags (NCCL); without one they are an error.
std::unique_ptr<Channel> make_backend_channel(
    c10::intrusive_ptr<::c10d::Backend> backend, c10::Device device,
    BackendOwner owner, std::unique_ptr<Channel> messages);

}  // namespace tessera::detail::inline comm_layer
