#include <sharded_tensor/tensor/state.h>

#include <algorithm>
#include <typeinfo>

#include <ATen/ops/empty.h>
#include <base/text.h>
#include <c10/util/Exception.h>
#include <sharded_tensor/spec/placement_owner.h>
#include <tessera/comm/world.h>

namespace tessera::detail::inline sharded_tensor_layer {

using sharded_tensor::ProcessGroup;
using sharded_tensor::Shard;
using sharded_tensor::ShardedTensor;
using sharded_tensor::ShardedTensorMetadata;
using sharded_tensor::ShardingSpec;
using sharded_tensor::ShardMetadata;
using sharded_tensor::TensorProperties;

namespace {

// An empty box may lie behind the end, where chunks of nothing were counted.
Box box_inside(const ShardMetadata& shard, const std::vector<int64_t>& size) {
  Box box = shard.box();
  if (box.ndim() == static_cast<int64_t>(size.size()) && box.empty()) {
    for (size_t d = 0; d < size.size(); ++d) {
      box.sizes[d] = std::min(box.sizes[d], size[d]);
      box.offsets[d] = std::min(box.offsets[d], size[d] - box.sizes[d]);
    }
  }
  return box;
}

}  // namespace

BoxLayout box_layout_of(
    const ShardedTensorMetadata& metadata, const ProcessGroup& group,
    const std::string& call) {
  std::vector<Tile> tiles;
  for (const ShardMetadata& shard : metadata.shards_metadata) {
    TORCH_CHECK_VALUE(
        shard.placement, call, ", rank ", rank(), ": ", to_string(shard),
        " has no placement; write rank:N/DEVICE");
    const int64_t owner = owner_of(*shard.placement, call);
    TORCH_CHECK_VALUE(
        group.contains(owner), call, " in ", to_string(group), ", rank ",
        rank(), ": rank ", owner, ", the owner of ", to_string(shard),
        ", is not a member; placements name global ranks of the group");
    tiles.push_back(
        {box_inside(shard, metadata.size), owner,
         shard.placement->device().str()});
  }
  return BoxLayout(metadata.size, std::move(tiles));
}

const sharded_tensor::ChunkShardingSpec* exact_chunks(
    const ShardingSpec& spec) {
  using sharded_tensor::ChunkShardingSpec;
  return typeid(spec) == typeid(ChunkShardingSpec)
             ? static_cast<const ChunkShardingSpec*>(&spec)
             : nullptr;
}

TensorProperties properties_of(
    const sharded_tensor::ShardedTensorOptions& options) {
  TensorProperties properties{
      .layout = options.layout,
      .requires_grad = options.requires_grad,
      .memory_format = options.memory_format,
      .pin_memory = options.pin_memory};
  properties.dtype = options.dtype.value_or(properties.dtype);
  return properties;
}

StatePtr make_state(
    const ShardingSpec& spec, const std::vector<int64_t>& sizes,
    const TensorProperties& properties, const ProcessGroup& group,
    const std::string& call) {
  for (const int64_t size : sizes) {
    TORCH_CHECK_VALUE(
        size >= 0, call, ", rank ", rank(),
        ": sizes must not be negative; got [", base::join(sizes, ", "), "]");
  }
  TORCH_CHECK_VALUE(
      properties.layout == c10::kStrided, call, ", rank ", rank(),
      ": shards are strided tensors; got layout ", properties.layout);
  TORCH_CHECK_VALUE(
      properties.memory_format == c10::MemoryFormat::Contiguous, call,
      ", rank ", rank(), ": shards are contiguous; got memory format ",
      properties.memory_format);
  auto state = std::make_shared<ShardedTensorState>();
  state->spec = spec.clone();
  state->metadata = spec.build_metadata(sizes, properties);
  state->metadata.size = sizes;
  state->metadata.tensor_properties = properties;
  state->group = group;
  state->layout = box_layout_of(state->metadata, group, call);
  state->anchor = new_anchor(*state);
  return state;
}

ProcessGroup all_ranks() {
  return ProcessGroup(init().communicator());
}

StatePtr new_state(
    const ShardingSpec& spec, const std::vector<int64_t>& sizes,
    const sharded_tensor::ShardedTensorOptions& options,
    const std::string& call) {
  StatePtr state = make_state(
      spec, sizes, properties_of(options), options.process_group,
      call + "(" + to_string(spec) + ")");
  std::vector<at::Tensor> tensors;
  for (const ShardMetadata& shard : shards_of(*state, rank())) {
    tensors.push_back(
        at::empty(
            shard.shard_sizes,
            at::TensorOptions(state->metadata.tensor_properties.dtype)
                .device(shard.placement->device())
                .pinned_memory(options.pin_memory))
            .set_requires_grad(options.requires_grad));
  }
  set_local_tensors(*state, tensors);
  return state;
}

std::vector<ShardMetadata> shards_of(
    const ShardedTensorState& state, int64_t rank) {
  std::vector<ShardMetadata> shards;
  const auto& tiles = state.layout->tiles();
  for (size_t i = 0; i < tiles.size(); ++i) {
    if (tiles[i].rank == rank) {
      shards.push_back(state.metadata.shards_metadata[i]);
    }
  }
  return shards;
}

void set_local_tensors(
    ShardedTensorState& state, const std::vector<at::Tensor>& tensors) {
  std::vector<Shard> shards;
  for (const ShardMetadata& metadata : shards_of(state, rank())) {
    shards.emplace_back(tensors.at(shards.size()), metadata);
  }
  state.local_shards = std::move(shards);
}

std::vector<at::Tensor> local_tensors(const ShardedTensorState& state) {
  std::vector<at::Tensor> tensors;
  for (const Shard& shard : state.local_shards) {
    tensors.push_back(shard.tensor);
  }
  return tensors;
}

at::Tensor new_anchor(const ShardedTensorState& state) {
  const TensorProperties& properties = state.metadata.tensor_properties;
  at::Tensor anchor = at::empty({0}, at::TensorOptions(properties.dtype));
  return anchor.set_requires_grad(properties.requires_grad);
}

at::Tensor anchor_after(const at::Tensor& tensor) {
  // A copy: a view would change its history when the tensor is written.
  return tensor.reshape(-1).slice(0, 0, 0).to(c10::Device(c10::kCPU)).clone();
}

void check_data(
    const char* call, const BoxLayout& source, const BoxLayout& target) {
  for (const BoxLayout* layout : {&source, &target}) {
    for (const Tile& tile : layout->tiles()) {
      TORCH_CHECK_VALUE(
          tile.device != "meta", call, ", rank ", rank(),
          ": shards on the meta device have no data to move; box ", tile.box,
          " of rank ", tile.rank);
    }
  }
}

ShardedTensor with_tensors(
    const ShardedTensorState& like, const std::vector<at::Tensor>& tensors,
    const TensorProperties& properties) {
  auto state = std::make_shared<ShardedTensorState>(ShardedTensorState{
      .spec = like.spec,
      .metadata = like.metadata,
      .group = like.group,
      .layout = like.layout});
  state->metadata.tensor_properties = properties;
  state->anchor = new_anchor(*state);
  set_local_tensors(*state, tensors);
  return ShardedTensor(std::move(state));
}

ShardedTensor map_shards(
    const ShardedTensor& tensor,
    const std::function<at::Tensor(const at::Tensor&)>& f) {
  const ShardedTensorState& state = *tensor.state();
  std::vector<at::Tensor> tensors;
  for (const Shard& shard : state.local_shards) {
    tensors.push_back(f(shard.tensor));
  }
  const at::Tensor anchor = f(state.anchor);
  TensorProperties properties = state.metadata.tensor_properties;
  properties.dtype = anchor.scalar_type();
  properties.requires_grad = anchor.requires_grad();
  ShardedTensor result = with_tensors(state, tensors, properties);
  result.state()->anchor = anchor;
  return result;
}

}  // namespace tessera::detail::inline sharded_tensor_layer
