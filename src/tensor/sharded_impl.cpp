#include <tensor/sharded_impl.h>

#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>
#include <tensor/dispatch.h>
#include <tensor/execute.h>
#include <tensor/movement.h>

namespace tessera::detail {

namespace {

// Reaches TensorImpl's protected key set, which has no setter.
struct ImplAccess : c10::TensorImpl {
  static c10::DispatchKeySet c10::TensorImpl::*key_set() {
    return &ImplAccess::key_set_;
  }
};

// All wrappers of a device have one key set, so that they can stand in for each
// other (set_data, module->clone()).
c10::DispatchKeySet backend_keys(const at::Tensor& local) {
  return c10::DispatchKeySet(kShardedKey) |
         c10::getAutocastRelatedKeySetFromBackend(
             local.key_set().highestBackendKey());
}

const std::string& data_pointer_error() {
  static const auto* text = new std::string(
      "a sharded tensor has no data pointer, since each rank holds only a "
      "part; use tessera::to_local(t) for this rank's part or "
      "tessera::full_tensor(t) for the whole");
  return *text;
}

void attach(
    c10::TensorImpl* impl, const at::Tensor& local, const SpecPtr& spec,
    c10::intrusive_ptr<ShardedMeta> meta) {
  if (spec->is_replicated() && spec->has_shard()) {
    impl->set_sizes_and_strides(
        local.sizes(), local.strides(), local.storage_offset());
  } else {
    impl->set_sizes_and_strides(spec->shape(), spec->strides());
  }
  impl->release_storage_and_set_meta_custom_data_ptr_error_msg_(
      data_pointer_error());
  impl->set_backend_meta(std::move(meta));
}

at::Tensor make_wrapper(
    const at::Tensor& local, const SpecPtr& spec,
    c10::intrusive_ptr<ShardedMeta> meta) {
  ensure_registered();
  auto t = at::detail::make_tensor<c10::TensorImpl>(
      backend_keys(local), local.dtype(), local.device());
  auto* impl = t.unsafeGetTensorImpl();
  attach(impl, local, spec, std::move(meta));
  impl->_set_conj(local.is_conj());
  impl->_set_neg(local.is_neg());
  const auto& whole =
      static_cast<ShardedMeta*>(impl->get_backend_meta())->whole;
  if (!whole && !t.is_inference() && !local.is_inference()) {
    impl->set_version_counter(local.unsafeGetTensorImpl()->version_counter());
  }
  return t;
}

at::Tensor gather_whole(const at::Tensor& local, const DTensorSpec& spec) {
  at::Tensor value = move_shard(local, spec, replicated(spec.mesh()));
  const bool own_memory = !value.is_same(local);
  if (own_memory && value.strides() == at::IntArrayRef(spec.strides())) {
    return value;
  }
  // Views compute with the global strides, so the copy must have them.
  return at::empty_strided(spec.shape(), spec.strides(), value.options())
      .copy_(value);
}

void refresh(Whole& whole) {
  const ShardCell& shard = *whole.shard;
  if (whole.is_stale()) {
    whole.value.copy_(gather_whole(shard.local, *shard.spec));
    whole.generation = shard.generation();
  }
}

void check_shard(const at::Tensor& local, const DTensorSpec& spec) {
  TORCH_INTERNAL_ASSERT_DEBUG_ONLY(
      local.sizes() == at::IntArrayRef(spec.local_shape()), "shard of ",
      to_string(spec), " has shape ", local.sizes());
}

}  // namespace

at::Tensor wrap(
    const at::Tensor& local, const SpecPtr& spec,
    std::shared_ptr<Whole> whole) {
  check_shard(local, *spec);
  return make_wrapper(
      local, spec,
      c10::make_intrusive<ShardedMeta>(local, spec, std::move(whole)));
}

at::Tensor wrap_replicated(
    const at::Tensor& local, const DeviceMesh& mesh,
    std::shared_ptr<Whole> whole) {
  return wrap(
      local,
      DTensorSpec::make(
          mesh, replicated(mesh), local.sizes().vec(), local.strides().vec(),
          local.scalar_type()),
      std::move(whole));
}

void settle(const ShardedMeta& meta) {
  meta.pending->shard.settle();
  meta.pending.reset();
}

at::Tensor wrap_shared(const at::Tensor& t) {
  auto meta = c10::static_intrusive_pointer_cast<ShardedMeta>(
      t.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr());
  const at::Tensor& local = meta->local;
  const SpecPtr& spec = meta->spec;
  at::Tensor shared = make_wrapper(local, spec, meta);
  follow_source(shared, t);
  return shared;
}

void follow_source(const at::Tensor& view, const at::Tensor& source) {
  if (view.is_inference() && !source.is_inference()) {
    auto* impl = view.unsafeGetTensorImpl();
    impl->*ImplAccess::key_set() = source.key_set();
    impl->set_version_counter(c10::VariableVersion(0));
  }
}

void install(
    const at::Tensor& t, const at::Tensor& local, const SpecPtr& spec) {
  ensure_registered();
  check_shard(local, *spec);
  auto* impl = t.unsafeGetTensorImpl();
  auto keys = backend_keys(local);
  if (!t.is_inference()) {
    keys = keys | c10::getAutogradRelatedKeySetFromBackend(
                      c10::BackendComponent::PrivateUse3Bit);
  }
  impl->*ImplAccess::key_set() = keys;
  if (!t.is_inference() && !local.is_inference()) {
    local.unsafeGetTensorImpl()->set_version_counter(impl->version_counter());
  }
  attach(
      impl, local, spec,
      c10::make_intrusive<ShardedMeta>(local, spec, nullptr));
}

const at::Tensor& fresh_local(const at::Tensor& t) {
  const ShardedMeta& meta = meta_of(t);
  if (meta.whole) {
    refresh(*meta.whole);
  }
  return meta.local;
}

std::shared_ptr<Whole> whole_of(const at::Tensor& t) {
  const ShardedMeta& meta = meta_of(t);
  if (!meta.cell) {
    meta.cell =
        std::make_shared<ShardCell>(ShardCell{meta.local, meta.spec, 0, {}});
  }
  // Gathers even where a view keeps a copy that is up to date: views may live
  // longer on one rank than on another, and all must communicate alike.
  at::Tensor value = gather_whole(meta.cell->local, *meta.spec);
  std::shared_ptr<Whole> whole = meta.cell->whole.lock();
  if (whole) {
    whole->value.copy_(value);
    whole->generation = meta.cell->generation();
  } else {
    whole = std::make_shared<Whole>(
        Whole{std::move(value), meta.cell, meta.cell->generation()});
    meta.cell->whole = whole;
  }
  return whole;
}

void after_write(const at::Tensor& t) {
  const ShardedMeta& meta = meta_of(t);
  if (meta.whole) {
    after_write(*meta.whole);
  } else if (meta.cell) {
    ++meta.cell->writes;
  }
}

void after_write(Whole& whole) {
  ShardCell& shard = *whole.shard;
  shard.local.copy_(cut_shard(whole.value, *shard.spec));
  ++shard.writes;
  whole.generation = shard.generation();
}

at::Tensor replicated_value(const at::Tensor& t) {
  const ShardedMeta& meta = meta_of(t);
  return meta.spec->is_replicated() ? fresh_local(t)
                                    : gather_whole(meta.local, *meta.spec);
}

}  // namespace tessera::detail
