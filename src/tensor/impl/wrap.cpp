#include <tensor/impl/wrap.h>

#include <typeinfo>

#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/impl/wrapper_error.h>
#include <tensor/state/dispatch_keys.h>
#include <tensor/state/late_operators.h>
#include <tensor/state/replicated.h>
#include <tensor/state/thread_state.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// All wrappers of a device have one key set: set_data() and module->clone()
// require that of a tensor and its replacement.
c10::DispatchKeySet backend_keys(const at::Tensor& local) {
  return c10::DispatchKeySet(kShardedKey) |
         c10::getAutocastRelatedKeySetFromBackend(
             local.key_set().highestBackendKey());
}

c10::DispatchKeySet keys_of(const at::Tensor& local, bool inference) {
  return inference ? backend_keys(local) : backend_keys(local) | kAutogradKeys;
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
      ThreadState::here().pools);
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

// `offset` is that in the global strides; a whole shard has its own.
at::Tensor make_from_template(
    at::Tensor&& local, const WrapperTemplate& wrapper_template, int64_t offset,
    bool inference, c10::intrusive_ptr<ShardedMeta> base) {
  WrapperPools& pools = ThreadState::here().pools;
  const c10::TensorImpl* shard = local.unsafeGetTensorImpl();
  auto impl = c10::make_intrusive<ShardedImpl>(
      static_cast<const ShardedImpl&>(wrapper_template.like()),
      wrapper_template.is_unsharded() ? shard->storage_offset() : offset,
      pools);
  if (!inference) [[likely]] {
    impl->become_normal(version_of(local));
  }
  impl->set_meta(
      c10::make_intrusive<ShardedMeta>(
          std::move(local), wrapper_template.spec(), nullptr, std::move(base)),
      pools);
  return at::Tensor(std::move(impl));
}

void check_shard(const at::Tensor& local, const DTensorSpec& spec) {
  TORCH_INTERNAL_ASSERT(
      local.sizes() == at::IntArrayRef(spec.local_shape()), "shard of ",
      to_string(spec), " has shape ", local.sizes());
}

}  // namespace

WrapperTemplate::WrapperTemplate(
    const at::Tensor& local, SpecPtr spec, ViewStart start)
    : spec_(std::move(spec)),
      like_(make_impl(local, *spec_)),
      sizes_(local.sizes()),
      strides_(local.strides()),
      keys_(inference_keys(local.key_set())),
      dtype_(local.dtype()),
      device_(local.device()),
      unsharded_(spec_->is_replicated() && spec_->has_shard()),
      start_(start) {}

// As of plain tensors, fresh results of inference mode are inference tensors,
// which the shard knows, and views are what their source is.
at::Tensor wrap(at::Tensor&& local, const WrapperTemplate& wrapper_template) {
  const bool inference = local.is_inference();
  return make_from_template(
      std::move(local), wrapper_template, 0, inference, {});
}

at::Tensor wrap_view(
    at::Tensor&& local, const WrapperTemplate& wrapper_template,
    const at::Tensor& source) {
  auto meta = c10::static_intrusive_pointer_cast<ShardedMeta>(
      source.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr());
  share_version(local, *meta);
  InheritedState state;
  if (meta->has_state()) [[unlikely]] {
    state = inherited_state(*meta);
  }
  constexpr auto offset = ShardedImpl::storage_offset_of();
  at::Tensor view = make_from_template(
      std::move(local), wrapper_template,
      offset_of_view(
          wrapper_template.start(), source.unsafeGetTensorImpl()->*offset,
          wrapper_template.like()),
      source.is_inference(), meta->base ? meta->base : std::move(meta));
  if (state) [[unlikely]] {
    take_state(view, std::move(state));
  }
  return view;
}

void take_offset(
    const at::Tensor& view, const ViewStart& start, const at::Tensor& source) {
  c10::TensorImpl* impl = view.unsafeGetTensorImpl();
  impl->set_storage_offset(
      offset_of_view(start, source.storage_offset(), *impl));
}

at::Tensor make_wrapper(c10::intrusive_ptr<ShardedMeta> meta) {
  ensure_registered();
  auto impl = make_impl(meta->local, *meta->spec);
  if (!c10::InferenceMode::is_enabled()) {
    impl->become_normal(version_of(*meta));
  }
  impl->set_meta(std::move(meta), ThreadState::here().pools);
  return at::Tensor(std::move(impl));
}

at::Tensor wrap_shared(const at::Tensor& t) {
  WrapperPools& pools = ThreadState::here().pools;
  auto meta = c10::static_intrusive_pointer_cast<ShardedMeta>(
      t.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr());
  const auto* like = as_sharded_impl(t.unsafeGetTensorImpl());
  auto impl = like != nullptr ? c10::make_intrusive<ShardedImpl>(
                                    *like, like->storage_offset(), pools)
                              : make_impl(meta->local, *meta->spec);
  if (like == nullptr) {
    impl->set_storage_offset(t.storage_offset());
  }
  impl->forget_use();
  if (!t.is_inference()) {
    impl->become_normal(version_of(*meta));
  }
  impl->set_meta(std::move(meta), pools);
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

InheritedState inherited_state(const ShardedMeta& source) {
  const MetaState& state = source.state();
  return {state.use, source.copy ? nullptr : state.memory};
}

void take_state(const at::Tensor& view, InheritedState state) {
  MetaState& its = meta_nowait(view).change();
  its.memory = std::move(state.memory);
  if (state.use) {
    its.use = std::move(state.use);
    add_key(view, kUseKey);
  }
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
  const at::Tensor& local = meta_nowait(view).local;
  impl->*ShardedImpl::key_set() = source.key_set();
  impl->_set_conj(local.is_conj());
  impl->_set_neg(local.is_neg());
  impl->set_version_counter(
      source.is_inference()
          ? c10::VariableVersion(c10::VariableVersion::DISABLED)
          : c10::VariableVersion(0));
}

at::Tensor wrap(at::Tensor local, const SpecPtr& spec, ViewOf shown) {
  check_shard(local, *spec);
  if (local._is_zerotensor()) {
    // Zeros of a derivative formula, which have no memory.
    local = at::zeros(local.sizes(), local.options());
  }
  return make_wrapper(c10::make_intrusive<ShardedMeta>(
      std::move(local), spec, std::move(shown.copy), std::move(shown.base)));
}

at::Tensor wrap_replicated(
    const at::Tensor& local, const DeviceMesh& mesh, ViewOf shown) {
  return wrap(
      local,
      DTensorSpec::make(
          mesh, replicated(mesh), local.sizes().vec(), local.strides().vec(),
          local.scalar_type()),
      std::move(shown));
}

at::Tensor wrap_view(
    at::Tensor local, const SpecPtr& spec, const at::Tensor& source,
    std::shared_ptr<ViewCopy> copy) {
  auto meta = c10::static_intrusive_pointer_cast<ShardedMeta>(
      source.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr());
  share_version(local, *meta);
  InheritedState state = inherited_state(*meta);
  ViewOf shown;
  shown.copy = copy ? std::move(copy) : meta->copy;
  if (shown.copy) {
    state.memory = nullptr;
  } else {
    shown.base = meta->base ? meta->base : std::move(meta);
  }
  at::Tensor view = wrap(std::move(local), spec, std::move(shown));
  if (state) {
    take_state(view, std::move(state));
  }
  follow_source(view, source);
  return view;
}

void install(
    const at::Tensor& t, const at::Tensor& local, const SpecPtr& spec) {
  check_shard(local, *spec);
  become_wrapper(
      t, c10::make_intrusive<ShardedMeta>(local, spec, nullptr, nullptr));
}

}  // namespace tessera::detail::inline tensor_layer
