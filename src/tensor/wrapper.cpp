#include <tensor/wrapper.h>

#include <typeinfo>

#include <c10/core/InferenceMode.h>
#include <tensor/dispatch_cache.h>
#include <tensor/torch_compat.h>

namespace tessera::detail {

namespace {

// All wrappers of a device have one key set, so that they can stand in for each
// other (set_data, module->clone()).
c10::DispatchKeySet backend_keys(const at::Tensor& local) {
  return c10::DispatchKeySet(kShardedKey) |
         c10::getAutocastRelatedKeySetFromBackend(
             local.key_set().highestBackendKey());
}

c10::DispatchKeySet keys_of(const at::Tensor& local, bool inference) {
  static const auto autograd = c10::getAutogradRelatedKeySetFromBackend(
      c10::BackendComponent::PrivateUse3Bit);
  return inference ? backend_keys(local) : backend_keys(local) | autograd;
}

const std::string& data_pointer_error() {
  static const auto* text = new std::string(
      "a sharded tensor has no data pointer, since each rank holds only a "
      "part; use tessera::to_local(t) for this rank's part or "
      "tessera::full_tensor(t) for the whole");
  return *text;
}

std::unique_ptr<c10::ExtraMeta> take_meta() {
  auto& spare = ThreadDispatch::here().spare_extras;
  if (!spare.empty()) {
    std::unique_ptr<c10::ExtraMeta> meta = std::move(spare.back());
    spare.pop_back();
    return meta;
  }
  auto meta = std::make_unique<c10::ExtraMeta>();
  meta->custom_data_ptr_error_msg_ = data_pointer_error();
  meta->custom_storage_error_msg_ = data_pointer_error();
  return meta;
}

void give_meta(std::unique_ptr<c10::ExtraMeta> meta) {
  auto& spare = ThreadDispatch::here().spare_extras;
  if (spare.size() < kMostSpare && !meta->symbolic_shape_meta_ &&
      meta->custom_storage_error_msg_) {
    forget_tensor(*meta);
    spare.push_back(std::move(meta));
  }
}

void take_shape(
    c10::TensorImpl* impl, const at::Tensor& local, const DTensorSpec& spec) {
  if (spec.is_replicated() && spec.has_shard()) {
    impl->set_sizes_and_strides(
        local.sizes(), local.strides(), local.storage_offset());
  } else {
    impl->set_sizes_and_strides(spec.shape(), spec.strides());
  }
}

class ShardedImpl final : public c10::TensorImpl {
 public:
  static void* operator new(size_t size) {
    return ThreadDispatch::here().spare_wrappers.take(size);
  }
  static void operator delete(void* block) {
    ThreadDispatch::here().spare_wrappers.give(block);
  }

  // As a tensor of inference mode at first: only that has no version counter
  // of its own, which would be made and dropped.
  ShardedImpl(const at::Tensor& local, c10::Storage of_local)
      : TensorImpl(
            VIEW, std::move(of_local), backend_keys(local), local.dtype()) {
    storage_ = {};
    device_opt_ = local.device();
  }
  // For a shard without memory (zeros of a derivative formula).
  explicit ShardedImpl(const at::Tensor& local)
      : TensorImpl(backend_keys(local), local.dtype(), local.device()) {}
  ShardedImpl(const ShardedImpl&) = delete;
  ShardedImpl& operator=(const ShardedImpl&) = delete;
  ~ShardedImpl() override {
    if (extra_meta_) {
      give_meta(std::move(extra_meta_));
    }
  }

  // Takes sizes and strides, and what set_sizes_and_strides() finds out.
  void copy_shape(const ShardedImpl& like, int64_t storage_offset) {
    sizes_and_strides_ = like.sizes_and_strides_;
    storage_offset_ = storage_offset;
    numel_ = like.numel_;
    is_contiguous_ = like.is_contiguous_;
    is_channels_last_ = like.is_channels_last_;
    is_channels_last_contiguous_ = like.is_channels_last_contiguous_;
    is_channels_last_3d_ = like.is_channels_last_3d_;
    is_channels_last_3d_contiguous_ = like.is_channels_last_3d_contiguous_;
    is_non_overlapping_and_dense_ = like.is_non_overlapping_and_dense_;
  }

  void finish(c10::intrusive_ptr<ShardedMeta> meta) {
    const at::Tensor& local = meta->local;
    const bool inference = c10::InferenceMode::is_enabled();
    key_set_ = keys_of(local, inference);
    if (!inference) {
      version_counter_ = meta->copy || local.is_inference()
                             ? c10::VariableVersion(0)
                             : local.unsafeGetTensorImpl()->version_counter();
    }
    if (local.is_conj()) {
      _set_conj(true);
    }
    if (local.is_neg()) {
      _set_neg(true);
    }
    extra_meta_ = take_meta();
    extra_meta_->backend_meta_ = std::move(meta);
    storage_access_should_throw_ = true;
  }

  static c10::DispatchKeySet TensorImpl::*key_set() {
    return &ShardedImpl::key_set_;
  }
};

// A tensor that became sharded later is of another class.
const ShardedImpl* as_sharded_impl(const c10::TensorImpl* impl) {
  return impl != nullptr && typeid(*impl) == typeid(ShardedImpl)
             ? static_cast<const ShardedImpl*>(impl)
             : nullptr;
}

// Makes an impl that has keys and dtype, and neither shape nor meta.
c10::intrusive_ptr<ShardedImpl> make_impl(const at::Tensor& local) {
  const c10::Storage& memory = local.unsafeGetTensorImpl()->unsafe_storage();
  return memory ? c10::make_intrusive<ShardedImpl>(local, memory)
                : c10::make_intrusive<ShardedImpl>(local);
}

}  // namespace

void* ShardedMeta::operator new(size_t size) {
  return ThreadDispatch::here().spare_metas.take(size);
}
void ShardedMeta::operator delete(void* block) {
  ThreadDispatch::here().spare_metas.give(block);
}

at::Tensor make_wrapper(
    c10::intrusive_ptr<ShardedMeta> meta, const c10::TensorImpl* like) {
  ensure_registered();
  auto impl = make_impl(meta->local);
  const auto* known = as_sharded_impl(like);
  if (known != nullptr) {
    const bool whole = meta->spec->is_replicated() && meta->spec->has_shard();
    impl->copy_shape(*known, whole ? meta->local.storage_offset() : 0);
  } else {
    take_shape(impl.get(), meta->local, *meta->spec);
  }
  impl->finish(std::move(meta));
  return at::Tensor(std::move(impl));
}

c10::intrusive_ptr<c10::TensorImpl> wrapper_shape(
    const at::Tensor& local, const DTensorSpec& spec) {
  auto impl = make_impl(local);
  take_shape(impl.get(), local, spec);
  return impl;
}

void become_wrapper(const at::Tensor& t, c10::intrusive_ptr<ShardedMeta> meta) {
  ensure_registered();
  const at::Tensor& local = meta->local;
  auto* impl = t.unsafeGetTensorImpl();
  impl->*ShardedImpl::key_set() = keys_of(local, t.is_inference());
  if (!t.is_inference() && !local.is_inference()) {
    local.unsafeGetTensorImpl()->set_version_counter(impl->version_counter());
  }
  take_shape(impl, local, *meta->spec);
  impl->release_storage_and_set_meta_custom_data_ptr_error_msg_(
      data_pointer_error());
  impl->set_backend_meta(std::move(meta));
}

void add_key(const at::Tensor& t, c10::DispatchKey key) {
  auto& keys = t.unsafeGetTensorImpl()->*ShardedImpl::key_set();
  keys = keys.add(key);
}

void follow_source(const at::Tensor& view, const at::Tensor& source) {
  if (view.is_inference() && !source.is_inference()) {
    auto* impl = view.unsafeGetTensorImpl();
    const at::Tensor& local = moving_meta_of(view).local;
    impl->*ShardedImpl::key_set() = source.key_set();
    impl->_set_conj(local.is_conj());
    impl->_set_neg(local.is_neg());
    impl->set_version_counter(c10::VariableVersion(0));
  }
}

}  // namespace tessera::detail
