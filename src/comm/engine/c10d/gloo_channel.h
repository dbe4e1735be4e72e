// Processes joined by Gloo's connections.
//
// Note [Why messages only]
// Of Gloo only its messages are used: the wait for a message can be ended from
// outside, that for one of its collectives only by a timeout. So a wire that is
// closed lets go of every buffer at once, whatever the other ranks do.
// A thread of the wire makes the connections and then carries the transfers out
// one after the other; messages have a thread each, since their order among
// each other is free.
#pragma once

#include <memory>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "comm/engine/process/transport.h"

namespace gloo::transport {
class Device;
}  // namespace gloo::transport

namespace tessera::detail {

using StorePtr = c10::intrusive_ptr<::c10d::Store>;
using GlooDevices = std::vector<std::shared_ptr<::gloo::transport::Device>>;

/// Returns the device that listens at an interface ("eth0"); "" is loopback.
GlooDevices gloo_devices(const std::string& interface);

/// Joins `size` processes, each connected with each; does not wait for them.
/// The store's keys belong to this wire alone. It must be closed.
std::shared_ptr<Wire> make_gloo_mesh(
    StorePtr store, GlooDevices devices, int64_t place, int64_t size);

/// The same, where processes are connected when first needed: all by the first
/// transfer, two by the first message between them, since the others need not
/// come.
std::unique_ptr<Wire> make_gloo_wire(
    StorePtr store, GlooDevices devices, int64_t place, int64_t size);

}  // namespace tessera::detail
