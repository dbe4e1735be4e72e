// What the handles of one sharded tensor share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/layout/box_layout.h>
#include <tessera/sharded_tensor/sharded_tensor.h>

namespace tessera::detail::inline sharded_tensor_layer {

class RemoteEntry;

struct ShardedTensorState {
  sharded_tensor::ShardingSpecPtr spec;
  sharded_tensor::ShardedTensorMetadata metadata;
  /// One per tile of this rank, in the order of the metadata; all that there
  /// are where there is no group.
  std::vector<sharded_tensor::Shard> local_shards = {};
  /// Both or neither: without a group nothing is communicated.
  std::optional<sharded_tensor::ProcessGroup> group = std::nullopt;
  std::optional<BoxLayout> layout = std::nullopt;
  /// No elements, but a place in autograd's graph for ranks without shards.
  at::Tensor anchor = {};
  /// Set where the shards are those of an at::Tensor with placements.
  at::Tensor dtensor = {};
  std::shared_ptr<RemoteEntry> remote = nullptr;
};
using StatePtr = std::shared_ptr<ShardedTensorState>;

/// Returns the boxes with their owners and devices. Throws for an owner outside
/// the group, and where the boxes do not cover the tensor.
BoxLayout box_layout_of(
    const sharded_tensor::ShardedTensorMetadata& metadata,
    const sharded_tensor::ProcessGroup& group, const std::string& call);

/// Returns the spec where it is exactly a ChunkShardingSpec, whose chunks are
/// known; nullptr for others, derived ones too, which may cut differently.
const sharded_tensor::ChunkShardingSpec* exact_chunks(
    const sharded_tensor::ShardingSpec& spec);

/// Returns what options say about each shard.
sharded_tensor::TensorProperties properties_of(
    const sharded_tensor::ShardedTensorOptions& options);

/// Returns a tensor without shards yet: the spec's metadata and their boxes.
StatePtr make_state(
    const sharded_tensor::ShardingSpec& spec, const std::vector<int64_t>& sizes,
    const sharded_tensor::TensorProperties& properties,
    const sharded_tensor::ProcessGroup& group, const std::string& call);

/// Returns a tensor whose shards are allocated, uninitialised.
StatePtr new_state(
    const sharded_tensor::ShardingSpec& spec, const std::vector<int64_t>& sizes,
    const sharded_tensor::ShardedTensorOptions& options,
    const std::string& call);

/// Returns the metadata of the shards that a rank owns, in order.
std::vector<sharded_tensor::ShardMetadata> shards_of(
    const ShardedTensorState& state, int64_t rank);

/// Gives the state one tensor per shard that this rank owns, in order.
void set_local_tensors(
    ShardedTensorState& state, const std::vector<at::Tensor>& tensors);
/// Returns the tensors of the local shards.
std::vector<at::Tensor> local_tensors(const ShardedTensorState& state);
/// Returns a tensor of no elements that needs a gradient where the state does.
at::Tensor new_anchor(const ShardedTensorState& state);
/// Returns a tensor of no elements with the history of another.
at::Tensor anchor_after(const at::Tensor& tensor);

/// Throws where shards without data (of the meta device) would be read, which
/// all ranks can tell.
void check_data(
    const char* call, const BoxLayout& source, const BoxLayout& target);

/// Returns a tensor cut alike with other local tensors and properties.
sharded_tensor::ShardedTensor with_tensors(
    const ShardedTensorState& like, const std::vector<at::Tensor>& tensors,
    const sharded_tensor::TensorProperties& properties);
/// The same with a function of each local tensor.
sharded_tensor::ShardedTensor map_shards(
    const sharded_tensor::ShardedTensor& tensor,
    const std::function<at::Tensor(const at::Tensor&)>& f);

/// Returns what `make` makes. With `init_remote`, the local shards are readable
/// for other ranks then: collective over `makers`, and what `make` throws on
/// one rank is thrown on all.
StatePtr create_published(
    const char* call, bool init_remote,
    const sharded_tensor::ProcessGroup& makers,
    const std::function<StatePtr()>& make);
/// Returns all ranks: those that make a tensor of a group together, since a
/// rank outside may describe it.
sharded_tensor::ProcessGroup all_ranks();
/// Says that the local shards are other tensors now; collective likewise.
void publish_again(ShardedTensorState& state);

}  // namespace tessera::detail::inline sharded_tensor_layer
