// Whether two tensors of a state are one: tied weights have several names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/checkpoint/state_dict.h>

namespace tessera::detail::inline checkpoint_layer {

/// This rank's part of a tensor, by address. On a rank that holds no element
/// all tensors of one spec are equal: they are one if they are so on all ranks.
struct TensorMemory {
  const void* data = nullptr;
  std::vector<int64_t> strides = {};
  /// Dtype, shape and layout, and what is done to elements when they are read.
  std::string text = {};
  friend auto operator<=>(const TensorMemory&, const TensorMemory&) = default;
};

/// Returns TensorMemory() for what is no tensor of LibTorch.
TensorMemory memory_of(const checkpoint::StateValue& value);

}  // namespace tessera::detail::inline checkpoint_layer
