#include <algorithm>
#include <charconv>
#include <limits>
#include <ostream>
#include <string_view>

#include <c10/util/Exception.h>
#include <tessera/sharded_tensor/remote_device.h>

#include "base/hash.h"

namespace tessera::sharded_tensor {

namespace {

constexpr std::string_view kRankPrefix = "rank:";

// The parser of devices keeps the low bits of an index that is too large.
c10::Device parse_device(const std::string& text) {
  const c10::Device device(text);
  const size_t colon = text.find(':');
  TORCH_CHECK(
      colon == std::string::npos ||
          text.substr(colon + 1) == std::to_string(device.index()),
      "RemoteDevice: the index of a device is at most ",
      static_cast<int>(std::numeric_limits<c10::DeviceIndex>::max()), "; got '",
      text, "'");
  return device;
}

std::optional<c10::Device> try_parse_device(const std::string& text) {
  try {
    return parse_device(text);
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

// Parses the digits of "rank:N".
std::optional<int64_t> parse_rank(std::string_view owner) {
  if (!owner.starts_with(kRankPrefix)) {
    return std::nullopt;
  }
  const std::string_view digits = owner.substr(kRankPrefix.size());
  int64_t rank = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  const bool exact =
      error == std::errc() && end == digits.data() + digits.size();
  return exact && digits[0] != '-' ? std::optional(rank) : std::nullopt;
}

}  // namespace

RemoteDevice::RemoteDevice(const std::string& text) {
  const auto slashes = std::count(text.begin(), text.end(), '/');
  TORCH_CHECK_VALUE(
      slashes <= 1, "RemoteDevice: a text has at most one '/'; got '", text,
      "'; write OWNER/DEVICE, OWNER or DEVICE");
  std::string owner = text.substr(0, text.find('/'));
  if (slashes == 1) {
    device_ = parse_device(text.substr(owner.size() + 1));
  } else if (const auto device = try_parse_device(text)) {
    device_ = *device;
    return;
  }
  rank_ = parse_rank(owner);
  if (rank_) {
    return;
  }
  TORCH_CHECK_VALUE(
      !owner.empty() && owner.find(':') == std::string::npos,
      "RemoteDevice: an owner is rank:N or the name of a worker without ':'; "
      "got '",
      text, "'");
  worker_name_ = std::move(owner);
}

RemoteDevice::RemoteDevice(int64_t rank, c10::Device device)
    : rank_(rank), device_(device) {
  TORCH_CHECK_VALUE(
      rank >= 0, "RemoteDevice: a rank is not negative; got ", rank);
}

RemoteDevice RemoteDevice::with_device(c10::Device device) const {
  RemoteDevice result = *this;
  result.device_ = device;
  return result;
}

std::string to_string(const RemoteDevice& device) {
  const std::string local = device.device().str();
  if (device.rank()) {
    return std::string(kRankPrefix) + std::to_string(*device.rank()) + '/' +
           local;
  }
  return device.worker_name() ? *device.worker_name() + '/' + local : local;
}

std::ostream& operator<<(std::ostream& out, const RemoteDevice& device) {
  return out << to_string(device);
}

}  // namespace tessera::sharded_tensor

size_t std::hash<tessera::sharded_tensor::RemoteDevice>::operator()(
    const tessera::sharded_tensor::RemoteDevice& d) const {
  using tessera::base::hash_combine;
  size_t seed = std::hash<c10::Device>{}(d.device());
  seed = hash_combine(seed, std::hash<std::optional<int64_t>>{}(d.rank()));
  return hash_combine(
      seed, std::hash<std::optional<std::string>>{}(d.worker_name()));
}
