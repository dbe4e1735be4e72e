// Connections of each process with each, by Gloo.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/engine/c10d/store/store_ptr.h"
#include "comm/engine/process/transport.h"

namespace gloo::transport {
class Device;
}  // namespace gloo::transport

namespace tessera::detail::inline comm_layer {

using GlooDevices = std::vector<std::shared_ptr<::gloo::transport::Device>>;

/// Returns the device that listens at an interface ("eth0"); "" is loopback.
GlooDevices gloo_devices(const std::string& interface);

/// Joins `size` processes, each connected with each; does not wait for them.
/// The store's keys belong to this channel alone. It must be closed.
std::shared_ptr<Channel> make_gloo_mesh(
    StorePtr store, GlooDevices devices, int64_t group_rank, int64_t size);

}  // namespace tessera::detail::inline comm_layer
