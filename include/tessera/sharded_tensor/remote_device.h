// RemoteDevice: a device and the rank, or the named worker, that has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include <c10/core/Device.h>
#include <tessera/export.h>

namespace tessera::sharded_tensor {

/// Where a shard lives: "rank:0/cuda:0", "worker1/cpu", or a device alone.
class TESSERA_API RemoteDevice {
 public:
  // Implicit, so that lists of placements are lists of texts.
  // NOLINTBEGIN(google-explicit-constructor)

  /// Parses "OWNER/DEVICE", "OWNER" (on the CPU) or "DEVICE"; OWNER is
  /// "rank:N" or the name of a worker. Example: RemoteDevice("rank:0/cpu").
  RemoteDevice(const std::string& text);
  RemoteDevice(const char* text) : RemoteDevice(std::string(text)) {}
  /// A device that belongs to nobody.
  RemoteDevice(c10::Device device) : device_(device) {}
  // NOLINTEND(google-explicit-constructor)

  /// A device of a rank.
  RemoteDevice(int64_t rank, c10::Device device);

  const std::optional<std::string>& worker_name() const { return worker_name_; }
  /// Returns the global rank.
  const std::optional<int64_t>& rank() const { return rank_; }
  c10::Device device() const { return device_; }
  /// Returns the same owner with another device.
  RemoteDevice with_device(c10::Device device) const;

  friend bool operator==(const RemoteDevice&, const RemoteDevice&) = default;

 private:
  std::optional<std::string> worker_name_;
  std::optional<int64_t> rank_;
  c10::Device device_ = c10::Device(c10::kCPU);
};

/// Prints what the constructor parses.
TESSERA_API std::string to_string(const RemoteDevice& device);
TESSERA_API std::ostream& operator<<(
    std::ostream& out, const RemoteDevice& device);

}  // namespace tessera::sharded_tensor

template <>
struct TESSERA_API std::hash<tessera::sharded_tensor::RemoteDevice> {
  size_t operator()(const tessera::sharded_tensor::RemoteDevice& d) const;
};
