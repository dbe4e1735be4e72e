// Which elements of a global tensor a shard holds, as ranges of their row-major
// places.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <plan/transfer/region.h>
#include <tensor/state/spec_fwd.h>
#include <tessera/layout/box.h>

namespace tessera::detail::inline tensor_layer {

/// Neighbouring elements: places begin .. begin + count - 1, stored one after
/// the other from `stored` on.
struct IndexRange {
  int64_t begin;
  int64_t count;
  int64_t stored;
};

/// The elements of a shard in storage order. Partial counts as Replicate.
class GlobalIndexRanges {
 public:
  /// The whole of a plain tensor.
  explicit GlobalIndexRanges(at::IntArrayRef shape);
  /// A box of a global shape.
  GlobalIndexRanges(const std::vector<int64_t>& shape, const Box& box);
  /// This rank's shard; nothing on a rank outside the mesh.
  explicit GlobalIndexRanges(const DTensorSpec& spec);

  /// Returns the shape of the shard.
  const std::vector<int64_t>& shape() const { return local_shape_; }
  int64_t numel() const { return numel_; }
  /// Returns the same with one more dim, innermost and not cut: the real and
  /// imaginary parts of complex numbers.
  GlobalIndexRanges with_inner(int64_t size) const;

  /// Returns how many ranges there are.
  int64_t range_count() const;
  /// Calls f(IndexRange) for every range, in storage order.
  template <class F>
  void for_each_range(F f) const {
    if (numel_ > 0) {
      walk(0, 0, 0, f);
    }
  }
  /// Returns the places as an int64 tensor of numel() elements.
  at::Tensor linear_indices(c10::Device device) const;

 private:
  GlobalIndexRanges() = default;
  void finish();
  template <class F>
  int64_t walk(size_t d, int64_t begin, int64_t stored, F& f) const {
    const int64_t stride = strides_[d];
    for (const Run& run : region_[d]) {
      if (d + 1 == sharded_dims_) {
        const int64_t count = run.length() * stride;
        f(IndexRange{begin + run.begin * stride, count, stored});
        stored += count;
        continue;
      }
      for (int64_t i = run.begin; i < run.end; ++i) {
        stored = walk(d + 1, begin + i * stride, stored, f);
      }
    }
    return stored;
  }

  std::vector<int64_t> global_shape_;
  std::vector<int64_t> local_shape_;
  Region region_;
  std::vector<int64_t> strides_;  // of the global shape, contiguous
  size_t sharded_dims_ = 0;       // dims from here on are whole
  int64_t numel_ = 0;
};

}  // namespace tessera::detail::inline tensor_layer
