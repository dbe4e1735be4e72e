#include "comm/engine/process/scratch.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>

namespace tessera::detail::inline comm_layer {

at::Tensor Scratch::take(int64_t bytes) {
  const auto fits = std::find_if(
      free_.begin(), free_.end(),
      [&](const at::Tensor& memory) { return memory.numel() >= bytes; });
  if (fits == free_.end()) {
    return at::empty({bytes}, at::kByte);
  }
  at::Tensor taken = std::move(*fits);
  free_.erase(fits);
  return taken;
}

// The latest sizes are the likeliest to be asked for again: the others go.
void Scratch::give_back(at::Tensor memory) {
  if (!memory.defined()) {
    return;
  }
  free_.insert(free_.begin(), std::move(memory));
  int64_t kept = 0;
  free_.erase(
      std::find_if(
          free_.begin(), free_.end(),
          [&](const at::Tensor& t) {
            return (kept += t.numel()) > kKeptBytes;
          }),
      free_.end());
}

}  // namespace tessera::detail::inline comm_layer
