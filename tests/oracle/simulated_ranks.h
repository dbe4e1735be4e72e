// Ranks without threads: a tensor is cut into what every rank of a mesh would
// hold, and put together again from what every rank computed.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/layout/layout.h>

namespace tessera::oracle {

using Coordinate = std::vector<int64_t>;

/// Returns all coordinates of a mesh, row-major.
std::vector<Coordinate> coordinates_of(const MeshShape& mesh);

/// Returns integers in [low, high], the same for the same seed.
at::Tensor random_integers(
    at::IntArrayRef shape, int64_t low, int64_t high, uint64_t seed);

/// Returns what each rank holds of a tensor, row-major over the mesh. What is
/// Partial is split so that no rank's addend is the value: sums into addends
/// that differ, maxima so that another rank wins at each element.
std::vector<at::Tensor> cut(
    const at::Tensor& whole, const Layout& layout, uint64_t seed);

/// Puts the parts of all ranks together. Says what is wrong in `problem`: parts
/// of another shape than the layout gives them, replicas that differ.
at::Tensor assemble(
    const std::vector<at::Tensor>& parts, const Layout& layout,
    std::string& problem);

/// Compares two tensors and says where they differ first; "" where they do not.
/// Integers must be equal; floats to the last few bits where every expected
/// value is a multiple of 1/64, which no order of additions rounds; else up to
/// rounding.
/// Where `finite_only`, elements that must be infinite or NaN may be either: so
/// are their addends, of both signs.
std::string difference(
    const at::Tensor& got, const at::Tensor& want, bool finite_only = false);

}  // namespace tessera::oracle
