// A copy of what this rank writes, in host memory that is kept from save to
// save: fresh memory costs more than the copy, one page fault per 4 KiB.
#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::detail::inline checkpoint_layer {

/// Tells whether a tensor's memory holds its elements as a file does: on the
/// host, row-major, no value to be computed.
bool is_plain_memory(const at::Tensor& t);

/// Not for two threads at once: who writes the copy to files has ended before
/// the next one is taken (WritingThread::join()).
class Snapshot {
 public:
  /// Where the elements of one view lie, row-major.
  struct Bytes {
    const void* memory = nullptr;
    size_t size = 0;
  };

  /// Copies views, of which undefined ones have no bytes, and returns where
  /// they lie until the next call. On return the copy is complete, for views on
  /// accelerators too; their memory is pinned.
  std::vector<Bytes> take(const std::vector<at::Tensor>& views);
  /// Returns the memory that is kept.
  Bytes memory() const;

 private:
  char* reserve(size_t bytes, bool pinned);

  at::Tensor memory_;  // bytes
};

}  // namespace tessera::detail::inline checkpoint_layer
