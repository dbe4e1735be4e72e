#include <tessera/sharded_tensor/sharded_tensor.h>

#include <algorithm>
#include <ostream>

#include <ATen/WrapDimUtils.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>
#include <sharded_tensor/tensor/state.h>
#include <tessera/comm/world.h>
#include <tessera/sharded_tensor/conversion.h>

namespace tessera::sharded_tensor {

ShardedTensorBase::ShardedTensorBase(
    std::shared_ptr<detail::ShardedTensorState> state)
    : state_(std::move(state)) {}

ShardedTensorBase::ShardedTensorBase(
    const ShardingSpec& spec, const std::vector<int64_t>& sizes,
    const TensorProperties& properties)
    : state_(std::make_shared<detail::ShardedTensorState>()) {
  state_->spec = spec.clone();
  state_->metadata = spec.build_metadata(sizes, properties);
}

const ShardedTensorMetadata& ShardedTensorBase::metadata() const {
  return state_->metadata;
}

const ShardingSpec& ShardedTensorBase::sharding_spec() const {
  return *state_->spec;
}

const std::vector<Shard>& ShardedTensorBase::local_shards() const {
  return state_->local_shards;
}

const std::vector<int64_t>& ShardedTensorBase::sizes() const {
  return state_->metadata.size;
}

int64_t ShardedTensorBase::size(int64_t d) const {
  return sizes()[static_cast<size_t>(
      c10::maybe_wrap_dim(d, dim(), /*wrap_scalar=*/false))];
}

int64_t ShardedTensorBase::dim() const {
  return static_cast<int64_t>(sizes().size());
}

int64_t ShardedTensorBase::numel() const {
  return c10::multiply_integers(sizes());
}

c10::ScalarType ShardedTensorBase::dtype() const {
  return state_->metadata.tensor_properties.dtype;
}

c10::Layout ShardedTensorBase::layout() const {
  return state_->metadata.tensor_properties.layout;
}

bool ShardedTensorBase::requires_grad() const {
  return state_->metadata.tensor_properties.requires_grad;
}

bool ShardedTensorBase::is_floating_point() const {
  return c10::isFloatingType(dtype());
}

bool ShardedTensorBase::is_contiguous() const {
  return std::all_of(
      local_shards().begin(), local_shards().end(),
      [](const Shard& shard) { return shard.tensor.is_contiguous(); });
}

bool ShardedTensorBase::is_pinned() const {
  return state_->metadata.tensor_properties.pin_memory;
}

int64_t ShardedTensorBase::shard_size(const ShardMetadata& shard) {
  return c10::multiply_integers(shard.shard_sizes);
}

int64_t ShardedTensorBase::shard_size() const {
  int64_t sum = 0;
  for (const Shard& shard : local_shards()) {
    sum += shard_size(shard.metadata);
  }
  return sum;
}

size_t ShardedTensorBase::hash() const {
  return std::hash<const void*>{}(state_.get());
}

ShardedTensor::ShardedTensor(std::shared_ptr<detail::ShardedTensorState> state)
    : ShardedTensorBase(std::move(state)) {}

ShardedTensor::ShardedTensor(
    const ShardingSpec& spec, const std::vector<int64_t>& sizes,
    const ShardedTensorOptions& options)
    : ShardedTensorBase(detail::create_published(
          "ShardedTensor", options.init_remote, detail::all_ranks(), [&] {
            return detail::new_state(spec, sizes, options, "ShardedTensor");
          })) {}

const ProcessGroup& ShardedTensor::process_group() const {
  return *state_->group;
}

at::Tensor ShardedTensor::local_tensor() const {
  TORCH_CHECK_NOT_IMPLEMENTED(
      local_shards().size() == 1, "local_tensor, rank ", rank(),
      ": there must be exactly one local shard; got ", local_shards().size(),
      "; local_shards() has them all");
  return local_shards()[0].tensor;
}

c10::Device ShardedTensor::device() const {
  return local_shards().empty()
             ? metadata().shards_metadata.at(0).placement->device()
             : local_shards()[0].tensor.device();
}

bool ShardedTensor::is_meta() const {
  return device().is_meta();
}

const at::Tensor& ShardedTensor::graph_anchor() const {
  return state_->anchor;
}

std::optional<ShardedTensor> ShardedTensor::grad() const {
  if (state_->dtensor.defined()) {
    const at::Tensor& gradient = state_->dtensor.grad();
    return gradient.defined()
               ? std::optional(from_dtensor(gradient, process_group()))
               : std::nullopt;
  }
  std::vector<at::Tensor> gradients;
  for (const Shard& shard : local_shards()) {
    if (!shard.tensor.grad().defined()) {
      return std::nullopt;
    }
    gradients.push_back(shard.tensor.grad());
  }
  TensorProperties properties = metadata().tensor_properties;
  properties.requires_grad = false;
  return detail::with_tensors(*state_, gradients, properties);
}

std::string to_string(const ShardedTensorBase& tensor) {
  return "ShardedTensor(" + to_string(tensor.metadata()) + ")";
}

std::ostream& operator<<(std::ostream& out, const ShardedTensorBase& tensor) {
  return out << to_string(tensor);
}

}  // namespace tessera::sharded_tensor
