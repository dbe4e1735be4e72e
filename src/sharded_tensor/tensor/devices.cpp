// Sharded tensors in other dtypes and on other devices.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <comm/log/call_cause.h>
#include <sharded_tensor/tensor/agreement.h>
#include <sharded_tensor/tensor/devices.h>
#include <sharded_tensor/tensor/state.h>
#include <tessera/comm/world.h>

namespace tessera::detail::inline sharded_tensor_layer {

using sharded_tensor::ProcessGroup;
using sharded_tensor::RemoteDevice;

std::map<int64_t, c10::Device> devices_of_ranks(
    c10::Device mine, const ProcessGroup& group, const char* call) {
  std::map<int64_t, c10::Device> devices;
  if (mine.is_cpu() || mine.is_meta()) {
    for (const int64_t rank : group.ranks()) {
      devices.emplace(rank, c10::Device(mine.type()));
    }
    return devices;
  }
  auto agreement = begin_agreement(call, group);
  agreement.equal("device type", c10::DeviceTypeName(mine.type(), true));
  const auto texts = agreement.collect(mine.str());
  for (size_t r = 0; r < texts.size(); ++r) {
    devices.emplace(group.ranks()[r], c10::Device(texts[r]));
  }
  return devices;
}

c10::Device with_index(c10::Device device) {
  if (device.has_index() || device.is_cpu() || device.is_meta()) {
    return device;
  }
  return c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

}  // namespace tessera::detail::inline sharded_tensor_layer

namespace tessera::sharded_tensor {

namespace {

// The same cut with every owner's own device.
ShardingSpecPtr with_placements(
    const ShardingSpec& spec, const std::vector<ShardMetadata>& shards) {
  if (const ChunkShardingSpec* chunks = detail::exact_chunks(spec)) {
    std::vector<RemoteDevice> placements;
    for (const ShardMetadata& shard : shards) {
      placements.push_back(*shard.placement);
    }
    return std::make_shared<ChunkShardingSpec>(
        chunks->dim(), std::move(placements));
  }
  return std::make_shared<EnumerableShardingSpec>(shards);
}

}  // namespace

ShardedTensor ShardedTensor::to(
    std::optional<c10::Device> device, std::optional<c10::ScalarType> dtype,
    bool copy) const {
  constexpr const char* kCall = "ShardedTensor::to";
  const detail::CallCause cause(kCall);
  std::vector<ShardMetadata> shards = metadata().shards_metadata;
  if (device) {
    const auto devices = detail::devices_of_ranks(
        detail::with_index(*device), process_group(), kCall);
    const auto& tiles = state_->layout->tiles();
    for (size_t i = 0; i < shards.size(); ++i) {
      shards[i].placement =
          shards[i].placement->with_device(devices.at(tiles[i].rank));
    }
  }
  const bool moves = shards != metadata().shards_metadata;
  if (!moves && !copy && dtype.value_or(this->dtype()) == this->dtype()) {
    return *this;
  }
  auto state =
      std::make_shared<detail::ShardedTensorState>(detail::ShardedTensorState{
          .spec =
              moves ? with_placements(sharding_spec(), shards) : state_->spec,
          .metadata = metadata(),
          .group = state_->group});
  state->metadata.shards_metadata = shards;
  // The owners stay, also where names of workers are not known any more.
  std::vector<BoxLayout::Tile> tiles = state_->layout->tiles();
  for (size_t i = 0; i < tiles.size(); ++i) {
    tiles[i].device = shards[i].placement->device().str();
  }
  state->layout = BoxLayout(sizes(), std::move(tiles));
  const auto convert = [&](const at::Tensor& t, c10::Device to) {
    return t.to(
        to, dtype.value_or(this->dtype()), /*non_blocking=*/false, copy);
  };
  std::vector<at::Tensor> tensors;
  for (const ShardMetadata& shard : detail::shards_of(*state, rank())) {
    tensors.push_back(convert(
        local_shards()[tensors.size()].tensor, shard.placement->device()));
  }
  state->anchor = convert(state_->anchor, state_->anchor.device());
  TensorProperties& properties = state->metadata.tensor_properties;
  properties.dtype = state->anchor.scalar_type();
  properties.requires_grad = state->anchor.requires_grad();
  properties.pin_memory = false;
  detail::set_local_tensors(*state, tensors);
  return ShardedTensor(std::move(state));
}

ShardedTensor ShardedTensor::to(c10::Device device, bool copy) const {
  return to(device, std::nullopt, copy);
}

ShardedTensor ShardedTensor::to(c10::ScalarType dtype, bool copy) const {
  return to(std::nullopt, dtype, copy);
}

ShardedTensor ShardedTensor::to(const at::Tensor& like, bool copy) const {
  return to(like.device(), like.scalar_type(), copy);
}

}  // namespace tessera::sharded_tensor
