// Sharded tensors: at::Tensor objects whose sizes are the global ones and whose
// data are spread over a mesh. All of LibTorch works on them; this header is
// how one comes to be and how its pieces are reached.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/comm/device_mesh.h>
#include <tessera/export.h>
#include <tessera/layout/box.h>
#include <tessera/layout/placement.h>
#include <tessera/tensor/dtensor_spec.h>

namespace tessera {

struct DistributeOptions {
  /// The coordinate, along every mesh dim, whose data count. Nothing: every
  /// rank cuts its own data and nothing is communicated.
  std::optional<int64_t> src_data_rank = 0;
};

struct FromLocalOptions {
  /// Compares dtype, shapes, strides, requires_grad and replicas over the mesh
  /// before use.
  bool run_check = false;
  /// The global shape. Left out: every shard is taken to be as large as this
  /// one.
  std::optional<std::vector<int64_t>> shape = std::nullopt;
  /// The global strides; needs the shape. Left out: dense, in the order of dims
  /// of the local tensor where that is dense, else contiguous.
  std::optional<std::vector<int64_t>> stride = std::nullopt;
  /// The placements of the gradient. Left out: those of the tensor, Replicate
  /// where it is Partial.
  std::optional<Placements> grad_placements = std::nullopt;
};

struct ToLocalOptions {
  /// What the gradient of the local tensor is a shard of. Left out: the
  /// tensor's placements, Replicate where it is Partial.
  std::optional<Placements> grad_placements = std::nullopt;
};

struct RedistributeOptions {
  /// Returns before the last message has arrived; the first use of the result
  /// waits for it. All ranks must reach that use, or drop the result; until
  /// then the source must not be written.
  bool async = false;
  /// Converts the shard before it moves; the result has this dtype.
  std::optional<c10::ScalarType> forward_dtype = std::nullopt;
  /// Converts the gradient before it moves back. Left out: the tensor's dtype,
  /// which the gradient has in the end either way.
  std::optional<c10::ScalarType> backward_dtype = std::nullopt;
};

/// Shards a tensor that holds the global value; a new leaf with the same
/// requires_grad. Example: distribute_tensor(w, mesh, {Shard(0)}).
TESSERA_API at::Tensor distribute_tensor(
    const at::Tensor& tensor, const DeviceMesh& mesh,
    const Placements& placements, const DistributeOptions& options = {});
/// Replicates over the current mesh; see MeshGuard.
TESSERA_API at::Tensor distribute_tensor(const at::Tensor& tensor);

/// Makes a sharded tensor of which `local` is this rank's shard, sharing its
/// memory; differentiable. Example: from_local(x, mesh, {Shard(0)}).
TESSERA_API at::Tensor from_local(
    const at::Tensor& local, const DeviceMesh& mesh,
    const Placements& placements, const FromLocalOptions& options = {});

/// Returns this rank's shard, sharing its memory; differentiable.
TESSERA_API at::Tensor to_local(
    const at::Tensor& tensor, const ToLocalOptions& options = {});

/// Returns the global value on every rank, as a plain tensor; differentiable.
TESSERA_API at::Tensor full_tensor(
    const at::Tensor& tensor, const ToLocalOptions& options = {});

/// Returns the same tensor in other placements; differentiable. Where nothing
/// changes, the result shares the shard's memory.
/// Example: redistribute(t, {Replicate()}).
TESSERA_API at::Tensor redistribute(
    const at::Tensor& tensor, const Placements& placements,
    const RedistributeOptions& options = {});
/// Returns the same tensor on another mesh of the same world: other ranks, or
/// the same ranks in another arrangement. Every rank of both meshes must call;
/// on a rank outside the new mesh the result holds nothing. Where each rank
/// names the slice of the tensor's mesh that holds it, every slice gets the
/// tensor. Example: redistribute(t, mesh["tp"], {Shard(0)}).
TESSERA_API at::Tensor redistribute(
    const at::Tensor& tensor, const DeviceMesh& mesh,
    const Placements& placements, const RedistributeOptions& options = {});

/// Turns a plain tensor that holds the global value into a sharded one, in
/// place: every handle to it sees the change, so a module's parameters become
/// sharded without touching its class. An existing gradient is converted too.
/// Nothing happens where the tensor has that layout already; another layout, a
/// view or an inference tensor is an error.
TESSERA_API void make_dtensor_(
    const at::Tensor& tensor, const DeviceMesh& mesh,
    const Placements& placements, const DistributeOptions& options = {});

/// Tells whether a tensor is sharded.
TESSERA_API bool is_dtensor(const at::Tensor& tensor);
/// Returns the spec of a sharded tensor; a plain one is an error.
TESSERA_API const DTensorSpec& spec(const at::Tensor& tensor);
TESSERA_API const DeviceMesh& device_mesh(const at::Tensor& tensor);
TESSERA_API const Placements& placements(const at::Tensor& tensor);

/// Prints the spec and this rank's shard; moves nothing. A plain tensor is
/// printed as LibTorch does. (`std::cout << t` of a sharded one raises: ATen
/// reads a data pointer there.)
TESSERA_API std::string to_string(const at::Tensor& tensor);
/// Prints the same and a newline to std::cout, as at::print() does for plain
/// tensors. Name the namespace: a bare print(t) may find at::print().
/// Example: tessera::print(t);
TESSERA_API void print(const at::Tensor& tensor);

/// One box of a sharded tensor, as checkpoint systems describe it.
struct ChunkStorageMetadata {
  std::vector<int64_t> offsets;
  std::vector<int64_t> sizes;
  friend bool operator==(
      const ChunkStorageMetadata&, const ChunkStorageMetadata&) = default;
};

/// Returns the boxes of this rank's shard; a Partial tensor has none and is an
/// error.
TESSERA_API std::vector<ChunkStorageMetadata> chunk_list(
    const at::Tensor& tensor);

/// While it lives on this thread, plain tensors mixed with sharded ones in one
/// call are taken as Replicate. They must hold equal values on all ranks.
class TESSERA_API ImplicitReplication {
 public:
  ImplicitReplication();
  ~ImplicitReplication();
  ImplicitReplication(const ImplicitReplication&) = delete;
  ImplicitReplication& operator=(const ImplicitReplication&) = delete;
};

}  // namespace tessera
