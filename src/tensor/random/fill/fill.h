// Fills tensors with random values: each rank makes its own elements, and
// nothing is communicated.
#pragma once

#include <ATen/core/Tensor.h>
#include <tensor/random/fill/distribution.h>
#include <tensor/random/fill/index_ranges.h>

namespace tessera::detail::inline tensor_layer {

/// Returns new plain values of the shape of the index ranges. `part` keeps the
/// draws of one operation apart.
at::Tensor draw_values(
    const GlobalIndexRanges& ranges, at::ScalarType dtype, c10::Device device,
    const Distribution& distribution, PhiloxKey key, uint32_t part = 0);

/// Fills a tensor, plain or sharded in any way, with values that depend on its
/// global shape and dtype, the distribution and the key only. A Partial tensor
/// gets partial values that reduce to them.
void fill_tensor(
    const at::Tensor& tensor, const Distribution& distribution, PhiloxKey key,
    uint32_t part = 0);

/// Returns the values of index ranges, made on an accelerator by ATen's integer
/// operators: this library needs no device compiler. Uniforms, integers and
/// Bernoulli values are those of the host; normals and exponentials are
/// computed in f64 there too, and agree after rounding to 1 ulp of f32.
at::Tensor draw_on_device(
    const GlobalIndexRanges& ranges, at::ScalarType dtype, c10::Device device,
    const Distribution& distribution, PhiloxKey key, uint32_t part);

}  // namespace tessera::detail::inline tensor_layer
