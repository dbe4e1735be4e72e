// ShardedTensor: a tensor cut by a ShardingSpec, and the shards that this rank
// has of it: none, one or several.
//
// Where it differs from at::Tensor with placements (tessera/tensor/dtensor.h):
// any disjoint boxes that cover the tensor will do, a rank may have several of
// them, each on its own device. Operators are in ops.h; to_dtensor() leads to
// all of LibTorch's where the shards form a mesh.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/export.h>
#include <tessera/layout/box_layout.h>
#include <tessera/sharded_tensor/metadata.h>
#include <tessera/sharded_tensor/process_group.h>
#include <tessera/sharded_tensor/shard.h>
#include <tessera/sharded_tensor/sharding_spec.h>

namespace tessera::detail::inline sharded_tensor_layer {
struct ShardedTensorState;
}  // namespace tessera::detail::inline sharded_tensor_layer

namespace tessera::sharded_tensor {

/// What functions that make sharded tensors may be told.
struct ShardedTensorOptions {
  /// Left out: LibTorch's default dtype.
  std::optional<c10::ScalarType> dtype = std::nullopt;
  c10::Layout layout = c10::kStrided;
  bool requires_grad = false;
  bool pin_memory = false;
  c10::MemoryFormat memory_format = c10::MemoryFormat::Contiguous;
  ProcessGroup process_group = {};
  /// Makes remote_shards() work; then construction is collective.
  bool init_remote = false;
};

/// Spec, metadata and shards without a group: what tools for checkpoints need.
/// It may hold the shards of many ranks, and communicates nothing. A handle:
/// copies share the tensor.
class TESSERA_API ShardedTensorBase {
 public:
  /// Describes a tensor; no shards.
  ShardedTensorBase(
      const ShardingSpec& spec, const std::vector<int64_t>& sizes,
      const TensorProperties& properties = {});
  /// Makes a tensor of shards and what is known about all of them. The spec is
  /// inferred where none is given.
  static ShardedTensorBase init_from_local_shards_and_global_metadata(
      std::vector<Shard> local_shards, const ShardedTensorMetadata& metadata,
      ShardingSpecPtr spec = nullptr);

  const ShardedTensorMetadata& metadata() const;
  const ShardingSpec& sharding_spec() const;
  /// Returns this rank's shards, in the order of the metadata.
  const std::vector<Shard>& local_shards() const;

  const std::vector<int64_t>& sizes() const;
  const std::vector<int64_t>& size() const { return sizes(); }
  /// Returns the size of one dim; negative ones count from the end.
  int64_t size(int64_t dim) const;
  int64_t dim() const;
  int64_t ndim() const { return dim(); }
  int64_t numel() const;
  c10::ScalarType dtype() const;
  c10::Layout layout() const;
  bool requires_grad() const;
  bool is_floating_point() const;
  /// Tells whether all shards of this rank are; views made by from_dtensor() or
  /// put into a ShardedTensorBase need not be.
  bool is_contiguous() const;
  /// Returns what the metadata says.
  bool is_pinned() const;
  /// Returns the elements of one shard.
  static int64_t shard_size(const ShardMetadata& shard);
  /// Returns the elements of this rank's shards.
  int64_t shard_size() const;
  /// Returns an identity: equal for handles of one tensor.
  size_t hash() const;

 protected:
  explicit ShardedTensorBase(std::shared_ptr<detail::ShardedTensorState> state);
  std::shared_ptr<detail::ShardedTensorState> state_;
};

/// A shard on another rank.
class TESSERA_API RemoteShard {
 public:
  const ShardMetadata& metadata() const { return metadata_; }
  /// Returns a copy of the data as they are now, on this rank's device of the
  /// same kind. Throws when the owner has dropped the tensor. The owner must
  /// not write meanwhile.
  at::Tensor fetch() const;

 private:
  friend class ShardedTensor;
  RemoteShard(ShardMetadata metadata, uint64_t id, size_t index)
      : metadata_(std::move(metadata)), id_(id), index_(index) {}
  ShardMetadata metadata_;
  uint64_t id_;
  size_t index_;
};

/// A sharded tensor of a group of ranks. A handle: copies share the tensor.
class TESSERA_API ShardedTensor : public ShardedTensorBase {
 public:
  /// Allocates this rank's shards, uninitialised. No communication, unless
  /// `init_remote`. A rank outside the group gets metadata and no shards.
  /// Example: ShardedTensor t(spec, {10, 20}, {.dtype = at::kDouble}).
  ShardedTensor(
      const ShardingSpec& spec, const std::vector<int64_t>& sizes,
      const ShardedTensorOptions& options = {});

  const ProcessGroup& process_group() const;
  /// Returns the only shard's tensor; NotImplementedError where this rank has
  /// none or several.
  at::Tensor local_tensor() const;
  /// Returns the device of the first shard; without one, that of the metadata.
  c10::Device device() const;
  bool is_meta() const;
  /// Returns the gradients of the shards, cut alike; nothing where one of this
  /// rank's shards has none.
  std::optional<ShardedTensor> grad() const;

  /// Returns a tensor of no elements with this tensor's place in autograd's
  /// graph: a rank without shards adds its sum to the loss, so that it takes
  /// part in a backward that moves data.
  const at::Tensor& graph_anchor() const;

  // Data movement. Collective over the group: arguments are compared between
  // ranks, and an error on one of them is thrown on all before data move.

  /// Copies the whole tensor into `out` on rank `dst` of the group, which alone
  /// passes it. `dtype` is what `out` must have; left out, anything will do.
  void gather(
      int64_t dst = 0, const at::Tensor& out = {},
      std::optional<c10::ScalarType> dtype = std::nullopt) const;
  /// Cuts the tensor by another spec, in place: all handles see it.
  /// Differentiable. Returns itself. Example: t.reshard(ChunkShardingSpec(1,
  /// places)).
  ShardedTensor& reshard(const ShardingSpec& spec);
  /// The same as a new tensor.
  ShardedTensor resharded(const ShardingSpec& spec) const;
  /// Says what reshard() would move: transfers and bytes on this rank.
  std::string explain_reshard(const ShardingSpec& spec) const;

  /// Returns it in another dtype and on another device, itself where nothing
  /// changes and no copy is asked for. A device with an index is this rank's;
  /// each rank has its own, and they are exchanged.
  ShardedTensor to(
      std::optional<c10::Device> device, std::optional<c10::ScalarType> dtype,
      bool copy = false) const;
  ShardedTensor to(c10::Device device, bool copy = false) const;
  ShardedTensor to(c10::ScalarType dtype, bool copy = false) const;
  /// Takes dtype and device type of a tensor.
  ShardedTensor to(const at::Tensor& like, bool copy = false) const;
  ShardedTensor cpu() const { return to(c10::Device(c10::kCPU)); }
  ShardedTensor cuda() const { return to(c10::Device(c10::kCUDA)); }

  /// Returns the shards of the other ranks, by global rank; ranks without any
  /// are left out. Throws unless made with init_remote.
  std::map<int64_t, std::vector<RemoteShard>> remote_shards() const;

  /// Makes a ShardedTensor of its parts; for the library.
  explicit ShardedTensor(std::shared_ptr<detail::ShardedTensorState> state);
  const std::shared_ptr<detail::ShardedTensorState>& state() const {
    return state_;
  }
};

/// Returns how many tensors with init_remote are alive in this process.
TESSERA_API size_t remote_tensor_count();

/// Prints "ShardedTensor(ShardedTensorMetadata(...))".
TESSERA_API std::string to_string(const ShardedTensorBase& tensor);
TESSERA_API std::ostream& operator<<(
    std::ostream& out, const ShardedTensorBase& tensor);

/// Writes this rank's part of a tensor: shards, metadata, spec, and its place
/// in the group and the world.
TESSERA_API std::string save(const ShardedTensor& tensor);
/// Reads it on the same rank of a group of the same size, that of
/// WithProcessGroup or all ranks; another place is an error. Resharding on load
/// is what checkpoints are for.
TESSERA_API ShardedTensor restore(std::string_view bytes);

}  // namespace tessera::sharded_tensor
