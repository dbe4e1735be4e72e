// local_map: a function of plain tensors, applied to shards.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/comm/device_mesh.h>
#include <tessera/export.h>
#include <tessera/layout/placement.h>

namespace tessera {

/// Maps this rank's parts of some tensors to its parts of others.
using LocalFn =
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

struct LocalMapOptions {
  /// Arguments in other placements than `in_placements` are moved; otherwise
  /// they are an error.
  bool redistribute_inputs = false;
  /// The placements of the gradients of the local arguments; see to_local().
  std::vector<std::optional<Placements>> in_grad_placements = {};
  /// The global shapes of results. Left out: every rank's part is taken to be
  /// as large as this one's, which an unevenly cut argument forbids.
  std::vector<std::vector<int64_t>> out_shapes = {};
};

/// Returns a function of sharded tensors that calls `fn` on the shards and puts
/// its results together. An argument whose in-placements are nothing is plain
/// and is passed on as it is. Differentiable. Example:
///   auto f = local_map([](auto& t) { return std::vector{my_kernel(t[0])}; },
///                      {{Shard(0)}}, {Placements{Shard(0)}}, mesh);
///   at::Tensor y = f({x})[0];
TESSERA_API LocalFn local_map(
    LocalFn fn, std::vector<Placements> out_placements,
    std::vector<std::optional<Placements>> in_placements,
    const DeviceMesh& mesh, LocalMapOptions options = {});

}  // namespace tessera
