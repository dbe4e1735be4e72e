#include <tensor/impl/wrap.h>

#include <typeinfo>

#include <c10/core/InferenceMode.h>
#include <tensor/fast/decision_cache.h>
#include <tensor/state/torch_compat.h>
#include <tensor/uses/parameter_use.h>

namespace tessera::detail {

namespace {

// What autograd asks of normal tensors.
constexpr auto kAutogradKeys =
    c10::inplace_or_view_ks | c10::DispatchKeySet(kShardedAutogradKey);

// All wrappers of a device have one key set, so that they can stand in for each
// other (set_data, module->clone()).
c10::DispatchKeySet backend_keys(const at::Tensor& local) {
  return c10::DispatchKeySet(kShardedKey) |
         c10::getAutocastRelatedKeySetFromBackend(
             local.key_set().highestBackendKey());
}

c10::DispatchKeySet keys_of(const at::Tensor& local, bool inference) {
  return inference ? backend_keys(local) : backend_keys(local) | kAutogradKeys;
}

const std::string& data_pointer_error() {
  static const auto* text = new std::string(
      "a sharded tensor has no data pointer, since each rank holds only a "
      "part; use tessera::to_local(t) for this rank's part or "
      "tessera::full_tensor(t) for the whole, tessera::print(t) or "
      "tessera::to_string(t) to print it");
  return *text;
}

// Without the keys of autograd.
c10::DispatchKeySet inference_keys(c10::DispatchKeySet keys) {
  return keys - c10::autograd_dispatch_keyset_with_ADInplaceOrView;
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
  static void* operator new(size_t) {
    return ThreadDispatch::here().spare.wrappers.take();
  }
  static void operator delete(void* memory) {
    ThreadDispatch::here().spare.wrappers.give(memory);
  }

  // Has keys and dtype, and neither shape nor meta. A tensor of inference mode
  // at first: only that has no version counter of its own, which would be made
  // and dropped.
  ShardedImpl(
      c10::DispatchKeySet keys, caffe2::TypeMeta dtype, c10::Device device,
      WrapperParts& spare)
      : TensorImpl(
            VIEW, std::move(spare.storage), inference_keys(keys), dtype) {
    spare.storage = std::move(storage_);
    device_opt_ = device;
  }
  // Has all that wrappers share, the shape too.
  ShardedImpl(
      const ShardedImpl& like, int64_t storage_offset, WrapperParts& spare)
      : ShardedImpl(like.key_set_, like.data_type_, *like.device_opt_, spare) {
    copy_shape(like, storage_offset);
  }
  ShardedImpl(const ShardedImpl&) = delete;
  ShardedImpl& operator=(const ShardedImpl&) = delete;
  ~ShardedImpl() override {
    if (extra_meta_ && !extra_meta_->symbolic_shape_meta_ &&
        extra_meta_->custom_storage_error_msg_) {
      forget_tensor(*extra_meta_);
      ThreadDispatch::here().spare.texts.give(extra_meta_.release());
    }
  }

  // Makes it a tensor that autograd may follow.
  void become_normal(c10::VariableVersion version) {
    key_set_ = key_set_ | kAutogradKeys;
    version_counter_ = std::move(version);
  }

  void forget_use() { key_set_ = key_set_.remove(kUseKey); }

  void set_meta(c10::intrusive_ptr<ShardedMeta> meta, WrapperParts& spare) {
    extra_meta_.reset(spare.texts.take());
    extra_meta_->backend_meta_ = std::move(meta);
    storage_access_should_throw_ = true;
  }

  static c10::DispatchKeySet TensorImpl::*key_set() {
    return &ShardedImpl::key_set_;
  }
  static constexpr int64_t TensorImpl::*storage_offset_of() {
    return &ShardedImpl::storage_offset_;
  }

 private:
  // Takes sizes and strides, and what set_sizes_and_strides() finds out.
  void copy_shape(const ShardedImpl& __restrict like, int64_t storage_offset) {
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
};

// A tensor that became sharded later is of another class.
const ShardedImpl* as_sharded_impl(const c10::TensorImpl* impl) {
  return typeid(*impl) == typeid(ShardedImpl)
             ? static_cast<const ShardedImpl*>(impl)
             : nullptr;
}

// Makes an impl without a meta from scratch.
c10::intrusive_ptr<ShardedImpl> make_impl(
    const at::Tensor& local, const DTensorSpec& spec) {
  auto impl = c10::make_intrusive<ShardedImpl>(
      backend_keys(local), local.dtype(), local.device(),
      ThreadDispatch::here().spare);
  take_shape(impl.get(), local, spec);
  impl->_set_conj(local.is_conj());
  impl->_set_neg(local.is_neg());
  return impl;
}

// The version counter of a wrapper: see Note [Versions].
c10::VariableVersion version_of(const at::Tensor& local) {
  return local.is_inference() ? c10::VariableVersion(0)
                              : local.unsafeGetTensorImpl()->version_counter();
}
c10::VariableVersion version_of(const ShardedMeta& meta) {
  return meta.copy ? c10::VariableVersion(0) : version_of(meta.local);
}

at::Tensor make_formed(
    at::Tensor&& local, const WrapperForm& form, bool inference,
    c10::intrusive_ptr<ShardedMeta> base) {
  WrapperParts& spare = ThreadDispatch::here().spare;
  const c10::TensorImpl* shard = local.unsafeGetTensorImpl();
  auto impl = c10::make_intrusive<ShardedImpl>(
      static_cast<const ShardedImpl&>(form.like()),
      form.is_whole() ? shard->storage_offset() : 0, spare);
  if (!inference) [[likely]] {
    impl->become_normal(version_of(local));
  }
  impl->set_meta(
      c10::make_intrusive<ShardedMeta>(
          std::move(local), form.spec(), nullptr, std::move(base)),
      spare);
  return at::Tensor(std::move(impl));
}

}  // namespace

ShardedMeta::~ShardedMeta() = default;

void* ShardedMeta::operator new(size_t) {
  return ThreadDispatch::here().spare.metas.take();
}
void ShardedMeta::operator delete(void* memory) {
  ThreadDispatch::here().spare.metas.give(memory);
}

void* WrapperMemory::make() {
  return ::operator new(sizeof(ShardedImpl));
}
void WrapperMemory::drop(void* memory) {
  ::operator delete(memory);
}
void* MetaMemory::make() {
  return ::operator new(sizeof(ShardedMeta));
}
void MetaMemory::drop(void* memory) {
  ::operator delete(memory);
}
c10::ExtraMeta* ErrorTexts::make() {
  auto texts = std::make_unique<c10::ExtraMeta>();
  texts->custom_data_ptr_error_msg_ = data_pointer_error();
  texts->custom_storage_error_msg_ = data_pointer_error();
  return texts.release();
}
void ErrorTexts::drop(c10::ExtraMeta* texts) {
  delete texts;
}
WrapperParts::WrapperParts()
    : storage(
          c10::Storage::use_byte_size_t{}, 0,
          c10::DataPtr(nullptr, c10::Device(c10::kCPU))) {}

WrapperForm::WrapperForm(const at::Tensor& local, SpecPtr spec, ViewStart start)
    : spec_(std::move(spec)),
      like_(make_impl(local, *spec_)),
      sizes_(local.sizes()),
      strides_(local.strides()),
      keys_(inference_keys(local.key_set())),
      dtype_(local.dtype()),
      device_(local.device()),
      whole_(spec_->is_replicated() && spec_->has_shard()),
      start_(start) {}

// As of plain tensors, fresh results of inference mode are inference tensors,
// which the shard knows, and views are what their source is.
at::Tensor wrap(at::Tensor&& local, const WrapperForm& form) {
  const bool inference = local.is_inference();
  return make_formed(std::move(local), form, inference, {});
}

at::Tensor wrap_view(
    at::Tensor&& local, const WrapperForm& form, const at::Tensor& source) {
  auto meta = c10::static_intrusive_pointer_cast<ShardedMeta>(
      source.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr());
  share_version(local, *meta);
  const auto use = meta->use;
  at::Tensor view = make_formed(
      std::move(local), form, source.is_inference(),
      meta->base ? meta->base : std::move(meta));
  if (!form.is_whole()) {
    constexpr auto offset = ShardedImpl::storage_offset_of();
    view.unsafeGetTensorImpl()->*offset = offset_of_view(
        form.start(), source.unsafeGetTensorImpl()->*offset,
        static_cast<int64_t>(form.like().itemsize()));
  }
  if (use) {
    take_use(view, use);
  }
  return view;
}

void take_offset(
    const at::Tensor& view, const ViewStart& start, const at::Tensor& source) {
  view.unsafeGetTensorImpl()->set_storage_offset(offset_of_view(
      start, source.storage_offset(),
      static_cast<int64_t>(view.element_size())));
}

at::Tensor make_wrapper(c10::intrusive_ptr<ShardedMeta> meta) {
  ensure_registered();
  auto impl = make_impl(meta->local, *meta->spec);
  if (!c10::InferenceMode::is_enabled()) {
    impl->become_normal(version_of(*meta));
  }
  impl->set_meta(std::move(meta), ThreadDispatch::here().spare);
  return at::Tensor(std::move(impl));
}

at::Tensor wrap_shared(const at::Tensor& t) {
  WrapperParts& spare = ThreadDispatch::here().spare;
  auto meta = c10::static_intrusive_pointer_cast<ShardedMeta>(
      t.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr());
  const auto* like = as_sharded_impl(t.unsafeGetTensorImpl());
  auto impl = like != nullptr ? c10::make_intrusive<ShardedImpl>(
                                    *like, like->storage_offset(), spare)
                              : make_impl(meta->local, *meta->spec);
  if (like == nullptr) {
    impl->set_storage_offset(t.storage_offset());
  }
  impl->forget_use();
  if (!t.is_inference()) {
    impl->become_normal(version_of(*meta));
  }
  impl->set_meta(std::move(meta), spare);
  return at::Tensor(std::move(impl));
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

void share_version(const at::Tensor& local, const ShardedMeta& source) {
  if (!local.is_inference() && !source.local.is_inference()) {
    local.unsafeGetTensorImpl()->set_version_counter(
        source.local.unsafeGetTensorImpl()->version_counter());
  }
}

void take_use(
    const at::Tensor& view, const std::shared_ptr<const ParameterUse>& use) {
  moving_meta_of(view).use = use;
  add_key(view, kUseKey);
}

void add_key(const at::Tensor& t, c10::DispatchKey key) {
  auto& keys = t.unsafeGetTensorImpl()->*ShardedImpl::key_set();
  keys = keys.add(key);
}

void follow_source(const at::Tensor& view, const at::Tensor& source) {
  if (view.is_inference() == source.is_inference()) {
    return;
  }
  auto* impl = view.unsafeGetTensorImpl();
  const at::Tensor& local = moving_meta_of(view).local;
  impl->*ShardedImpl::key_set() = source.key_set();
  impl->_set_conj(local.is_conj());
  impl->_set_neg(local.is_neg());
  impl->set_version_counter(
      source.is_inference()
          ? c10::VariableVersion(c10::VariableVersion::DISABLED)
          : c10::VariableVersion(0));
}

}  // namespace tessera::detail
