#include <parallel/fully_shard/unsharded_parameter.h>

#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <tensor/move/cpu_block_cache.h>
#include <tensor/move/redistribute_shard.h>

namespace tessera::detail::inline parallel_layer {

namespace {

// The storage that autograd's tensors share keeps its identity.
void set_memory(const at::Tensor& t, at::DataPtr memory, size_t bytes) {
  c10::StorageImpl* storage = t.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(std::move(memory));
  storage->set_nbytes(bytes);
}

size_t size_of(const at::Tensor& t) {
  return static_cast<size_t>(t.numel()) * t.itemsize();
}

at::DataPtr new_memory(const at::Tensor& like) {
  at::Tensor fresh = empty_cached({like.numel()}, like.options());
  c10::StorageImpl* storage = fresh.storage().unsafeGetStorageImpl();
  storage->set_nbytes(0);
  return std::exchange(
      storage->_mutable_data_ptr_no_checks(),
      at::DataPtr(nullptr, like.device()));
}

// Not an inference tensor, whatever mode made it: backward passes need it.
at::Tensor without_memory(const at::Tensor& shard, const SpecPtr& spec) {
  const c10::InferenceMode normal(false);
  const c10::AutoGradMode no_grad(false);
  at::Tensor local = at::empty({0}, shard.options().dtype(spec->dtype()));
  if (spec->has_shard()) {
    local.unsafeGetTensorImpl()->set_sizes_and_strides(
        spec->local_shape(), strides_of_shard(*spec));
  }
  if (!shard.is_inference()) {
    local.unsafeGetTensorImpl()->set_version_counter(
        shard.unsafeGetTensorImpl()->version_counter());
  }
  return local;
}

}  // namespace

UnshardedParameter::UnshardedParameter(const at::Tensor& shard, Place place)
    : GatheredMemory(shard),
      place_(std::move(place)),
      local_(without_memory(shard, place_.unsharded)) {}

void UnshardedParameter::fill() {
  const auto owner = place_.owner.lock();
  TORCH_CHECK(
      owner != nullptr,
      "fully_shard: a gathered parameter is used again, and its module is "
      "gone; "
      "keep the module until the backward pass is over");
  owner->fill(place_.group);
  TORCH_CHECK(
      is_filled(),
      "fully_shard: a gathered parameter is used again, and its parameter got "
      "another shard since, as by module->to(); call backward() before that");
}

void UnshardedParameter::write_back() {
  const c10::InferenceMode normal(false);
  const c10::AutoGradMode no_grad(false);
  at::AutoDispatchBelowADInplaceOrView below;
  at::Tensor target = shard();
  target.copy_(redistribute_shard(
      local_, *place_.unsharded, place_.sharded->placements()));
}

void UnshardedParameter::note_backward() {
  if (const auto owner = place_.owner.lock()) {
    owner->note_backward();
  }
}

int64_t UnshardedParameter::bytes() const {
  return static_cast<int64_t>(size_of(local_));
}

void UnshardedParameter::make_room() {
  if (local_.storage().nbytes() == 0 && local_.numel() > 0) {
    set_memory(local_, new_memory(local_), size_of(local_));
  }
}

void UnshardedParameter::release() {
  set_filled(std::nullopt);
  if (!handed_out_) {
    set_memory(local_, at::DataPtr(nullptr, local_.device()), 0);
  }
}

}  // namespace tessera::detail::inline parallel_layer
