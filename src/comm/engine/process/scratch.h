// Memory for partial values, kept from call to call: fresh pages cost more than
// sums.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::detail::inline comm_layer {

/// Not for several threads at once.
class Scratch {
 public:
  /// What is kept at most; memory beyond it goes back to the system.
  static constexpr int64_t kKeptBytes = int64_t{64} << 20;

  /// Returns at least so many bytes on the host, as a tensor of bytes.
  at::Tensor take(int64_t bytes);
  /// Keeps the memory for a later take(); an undefined tensor is nothing.
  void give_back(at::Tensor memory);

 private:
  std::vector<at::Tensor> free_;  // the latest first
};

}  // namespace tessera::detail::inline comm_layer
