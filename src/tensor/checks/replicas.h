// Do the ranks that should hold equal data hold equal data?
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/tensor/dtensor_spec.h>

namespace tessera::detail::inline tensor_layer {

/// One rank's copy of data that other ranks hold too.
struct Replica {
  /// What the reader of an error knows it by.
  std::string what;
  /// This rank's shard; undefined where it has none.
  at::Tensor local;
  SpecPtr spec;
};

/// Tells whether some rank should hold what another one holds.
bool has_replicas(const DTensorSpec& spec);

/// Returns one line per replica that differs from the first of its kind; the
/// same lines on all ranks of the mesh. Every rank passes the same list. Equal
/// data cost one gather of 24 bytes per replica. Elements are equal when their
/// values are, NaN to NaN too, or differ by at most `tolerance` times the
/// larger one.
std::vector<std::string> replica_differences(
    const std::vector<Replica>& replicas, const DeviceMesh& mesh,
    double tolerance);

}  // namespace tessera::detail::inline tensor_layer
