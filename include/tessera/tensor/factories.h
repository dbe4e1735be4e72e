// Sharded tensors made in place: each rank makes its own shard and nothing is
// communicated. Strides are contiguous; requires_grad in `options` counts, and
// of empty() the memory format.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/core/TensorOptions.h>
#include <tessera/comm/device_mesh.h>
#include <tessera/export.h>
#include <tessera/layout/placement.h>

namespace tessera {

/// Fills with zeros. Example: zeros({8, 16}, mesh, {Shard(0)}, at::kDouble).
TESSERA_API at::Tensor zeros(
    at::IntArrayRef sizes, const DeviceMesh& mesh, const Placements& placements,
    at::TensorOptions options = {});
/// Fills with ones; on a Partial dim the partial values combine to one.
TESSERA_API at::Tensor ones(
    at::IntArrayRef sizes, const DeviceMesh& mesh, const Placements& placements,
    at::TensorOptions options = {});
/// Leaves the values undefined.
TESSERA_API at::Tensor empty(
    at::IntArrayRef sizes, const DeviceMesh& mesh, const Placements& placements,
    at::TensorOptions options = {});
/// Fills with one value.
TESSERA_API at::Tensor full(
    at::IntArrayRef sizes, const at::Scalar& value, const DeviceMesh& mesh,
    const Placements& placements, at::TensorOptions options = {});
/// Counts from `start` to before `end` by `step`.
TESSERA_API at::Tensor arange(
    const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
    const DeviceMesh& mesh, const Placements& placements,
    at::TensorOptions options = {});
/// Places `steps` values evenly from `start` to `end`, both included.
TESSERA_API at::Tensor linspace(
    const at::Scalar& start, const at::Scalar& end, int64_t steps,
    const DeviceMesh& mesh, const Placements& placements,
    at::TensorOptions options = {});
/// Places `steps` powers of `base`, exponents evenly from `start` to `end`.
TESSERA_API at::Tensor logspace(
    const at::Scalar& start, const at::Scalar& end, int64_t steps, double base,
    const DeviceMesh& mesh, const Placements& placements,
    at::TensorOptions options = {});
/// Draws from [0, 1). The values depend on the seed, the draws before and the
/// shape only; see tensor/random.h.
TESSERA_API at::Tensor rand(
    at::IntArrayRef sizes, const DeviceMesh& mesh, const Placements& placements,
    at::TensorOptions options = {});
/// Draws from the standard normal distribution.
TESSERA_API at::Tensor randn(
    at::IntArrayRef sizes, const DeviceMesh& mesh, const Placements& placements,
    at::TensorOptions options = {});
/// Draws integers from low to before high.
TESSERA_API at::Tensor randint(
    int64_t low, int64_t high, at::IntArrayRef sizes, const DeviceMesh& mesh,
    const Placements& placements, at::TensorOptions options = {});
/// Orders 0 .. n-1 at random; every rank computes the whole order.
TESSERA_API at::Tensor randperm(
    int64_t n, const DeviceMesh& mesh, const Placements& placements,
    at::TensorOptions options = {});

}  // namespace tessera
