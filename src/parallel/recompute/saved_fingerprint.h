// What must be equal of a saved tensor when it is made again.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>
#include <tensor/state/spec_fwd.h>

namespace tessera::detail::inline parallel_layer {

struct SavedFingerprint {
  /// `draws`: the random numbers that were drawn before.
  SavedFingerprint(const at::Tensor& tensor, uint64_t draws);

  /// Throws, naming the tensor that is saved as number `slot` of `count`, where
  /// this, of the forward, is not that of the recomputation.
  void check(
      const at::Tensor& again, uint64_t draws, size_t slot, size_t count) const;

 private:
  c10::SmallVector<int64_t, 4> sizes_;
  at::ScalarType dtype_;
  SpecPtr spec_;  // of a sharded tensor
  // The memory, where it outlives the forward, and how often it was written.
  c10::weak_intrusive_ptr<c10::StorageImpl> memory_;
  int64_t version_;
  uint64_t draws_;
};

}  // namespace tessera::detail::inline parallel_layer
