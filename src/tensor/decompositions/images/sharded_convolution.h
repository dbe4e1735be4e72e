// What a convolution, also a transposed one, over sharded spatial dims
// exchanges and runs on each rank.
#pragma once

#include <vector>

#include <tensor/decompositions/windowed_call.h>

namespace tessera::detail::inline tensor_layer {

/// The first spatial dim of images, and of weights.
inline constexpr int64_t kFirstSpatialDim = 2;

/// The static arguments of a convolution, one number per spatial dim.
struct ConvArguments {
  /// `get(name)` returns a list of the call: one number, or one for each dim.
  template <class Get>
  ConvArguments(
      const Get& get, c10::IntArrayRef weight, bool is_transposed,
      int64_t group_count)
      : shape(weight.vec()),
        stride(per_dim(get("stride"), weight.size())),
        padding(per_dim(get("padding"), weight.size())),
        dilation(per_dim(get("dilation"), weight.size())),
        output_padding(per_dim(get("output_padding"), weight.size())),
        transposed(is_transposed),
        groups(group_count) {}

  Window along(size_t dim) const {
    return {shape[dim], stride[dim - 2], padding[dim - 2], dilation[dim - 2]};
  }
  /// Returns the channels of the result.
  int64_t channels() const { return transposed ? shape[1] * groups : shape[0]; }
  std::vector<int64_t> result_shape(std::vector<int64_t> input) const;
  /// Returns the rows of the input, which has `rows`, that results read.
  Run read_by(size_t dim, const Run& results, int64_t rows) const;

  std::vector<int64_t> shape;  // of the weight
  std::vector<int64_t> stride;
  std::vector<int64_t> padding;
  std::vector<int64_t> dilation;
  std::vector<int64_t> output_padding;
  bool transposed;
  int64_t groups;

 private:
  static std::vector<int64_t> per_dim(std::vector<int64_t> list, size_t ndim) {
    return list.size() == 1 ? std::vector<int64_t>(ndim - 2, list[0]) : list;
  }
};

/// A convolution whose input is sharded along spatial dims.
struct ShardedConvolution {
  explicit ShardedConvolution(const DecomposedCall& decomposed);

  /// Returns a list of the call, with zeros along the dims that are sharded:
  /// the halo has the padding, and no row of the result is left over.
  std::vector<int64_t> local(std::vector<int64_t> list) const;
  /// What a transposed convolution of a halo makes begins and ends elsewhere
  /// than this rank's rows of the result. Returns how many rows to add before
  /// and after each dim, negative to drop some, as constant_pad_nd takes them.
  std::vector<int64_t> pads_to_result(
      const Halo& halo, const std::vector<int64_t>& coordinate) const;

  ConvArguments arguments;
  WindowedCall windows;
};

}  // namespace tessera::detail::inline tensor_layer
