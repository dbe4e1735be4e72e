#include <tensor/sharded_impl.h>

#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>
#include <tensor/dispatch.h>
#include <tensor/execute.h>
#include <tensor/movement.h>
#include <tensor/strides.h>

namespace tessera::detail {

namespace {

// Reaches what TensorImpl protects and has no setter, or a costly one: new
// wrappers are made at every call.
struct ImplAccess : c10::TensorImpl {
  static c10::DispatchKeySet c10::TensorImpl::*key_set() {
    return &ImplAccess::key_set_;
  }
  static std::unique_ptr<c10::ExtraMeta> c10::TensorImpl::*extra_meta() {
    return &ImplAccess::extra_meta_;
  }
  static void (c10::TensorImpl::*refuse_storage())() {
    return &ImplAccess::set_storage_access_should_throw;
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

void set_shape(
    c10::TensorImpl* impl, const at::Tensor& local, const DTensorSpec& spec) {
  if (spec.is_replicated() && spec.has_shard()) {
    impl->set_sizes_and_strides(
        local.sizes(), local.strides(), local.storage_offset());
  } else {
    impl->set_sizes_and_strides(spec.shape(), spec.strides());
  }
}

at::Tensor make_wrapper(
    const at::Tensor& local, const DTensorSpec& spec,
    c10::intrusive_ptr<ShardedMeta> meta) {
  ensure_registered();
  auto t = at::detail::make_tensor<c10::TensorImpl>(
      backend_keys(local), local.dtype(), local.device());
  auto* impl = t.unsafeGetTensorImpl();
  set_shape(impl, local, spec);
  if (!meta->copy && !t.is_inference() && !local.is_inference()) {
    impl->set_version_counter(local.unsafeGetTensorImpl()->version_counter());
  }
  auto extra = std::make_unique<c10::ExtraMeta>();
  extra->custom_data_ptr_error_msg_ = data_pointer_error();
  extra->custom_storage_error_msg_ = data_pointer_error();
  extra->backend_meta_ = std::move(meta);
  impl->*ImplAccess::extra_meta() = std::move(extra);
  (impl->*ImplAccess::refuse_storage())();
  if (local.is_conj()) {
    impl->_set_conj(true);
  }
  if (local.is_neg()) {
    impl->_set_neg(true);
  }
  return t;
}

// Views compute with strides, so a copy of a whole tensor has the tensor's, and
// one of a part is dense in the same order of dims.
at::Tensor moved(
    const at::Tensor& local, const DTensorSpec& spec,
    const Placements& target) {
  at::Tensor value = move_shard(local, spec, target);
  const bool own_memory = !value.is_same(local);
  const bool whole = value.sizes() == at::IntArrayRef(spec.shape());
  const std::vector<int64_t> strides =
      whole ? spec.strides() : dense_strides(value.sizes(), spec.strides());
  if (own_memory && value.strides() == at::IntArrayRef(strides)) {
    return value;
  }
  return at::empty_strided(value.sizes(), strides, value.options())
      .copy_(value);
}

void refresh(Copy& copy) {
  const ShardCell& shard = *copy.shard;
  if (copy.is_stale()) {
    if (shard.of) {
      refresh(*shard.of);
    }
    copy.value.copy_(moved(shard.local, *shard.spec, copy.spec->placements()));
    copy.generation = shard.generation();
  }
}

const ShardedMeta& root_of(const ShardedMeta& meta) {
  return meta.base ? *meta.base : meta;
}

std::shared_ptr<ShardCell> cell_of(const ShardedMeta& meta) {
  if (!meta.cell) {
    std::shared_ptr<uint64_t> writes;
    if (meta.base) {
      writes = cell_of(*meta.base)->writes;
    } else if (meta.copy) {
      writes = meta.copy->shard->writes;
    } else {
      writes = std::make_shared<uint64_t>(0);
    }
    meta.cell = std::make_shared<ShardCell>(
        ShardCell{meta.local, meta.spec, std::move(writes), {}, meta.copy});
  }
  return meta.cell;
}

void check_shard(const at::Tensor& local, const DTensorSpec& spec) {
  TORCH_INTERNAL_ASSERT_DEBUG_ONLY(
      local.sizes() == at::IntArrayRef(spec.local_shape()), "shard of ",
      to_string(spec), " has shape ", local.sizes());
}

}  // namespace

at::Tensor wrap(const at::Tensor& local, const SpecPtr& spec, Shown shown) {
  check_shard(local, *spec);
  return make_wrapper(
      local, *spec,
      c10::make_intrusive<ShardedMeta>(
          local, spec, std::move(shown.copy), std::move(shown.base)));
}

at::Tensor wrap_replicated(
    const at::Tensor& local, const DeviceMesh& mesh, Shown shown) {
  return wrap(
      local,
      DTensorSpec::make(
          mesh, replicated(mesh), local.sizes().vec(), local.strides().vec(),
          local.scalar_type()),
      std::move(shown));
}

at::Tensor wrap_view(
    const at::Tensor& local, const SpecPtr& spec, const at::Tensor& source,
    std::shared_ptr<Copy> copy) {
  auto meta = c10::static_intrusive_pointer_cast<ShardedMeta>(
      source.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr());
  if (!local.is_inference() && !meta->local.is_inference()) {
    local.unsafeGetTensorImpl()->set_version_counter(
        meta->local.unsafeGetTensorImpl()->version_counter());
  }
  Shown shown;
  shown.copy = copy ? std::move(copy) : meta->copy;
  if (!shown.copy) {
    shown.base = meta->base ? meta->base : std::move(meta);
  }
  at::Tensor view = wrap(local, spec, std::move(shown));
  follow_source(view, source);
  return view;
}

void settle(const ShardedMeta& meta) {
  meta.pending->shard.settle();
  meta.pending.reset();
}

at::Tensor wrap_shared(const at::Tensor& t) {
  auto meta = c10::static_intrusive_pointer_cast<ShardedMeta>(
      t.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr());
  at::Tensor shared = make_wrapper(meta->local, *meta->spec, meta);
  follow_source(shared, t);
  return shared;
}

void follow_source(const at::Tensor& view, const at::Tensor& source) {
  if (view.is_inference() && !source.is_inference()) {
    auto* impl = view.unsafeGetTensorImpl();
    const at::Tensor& local = moving_meta_of(view).local;
    impl->*ImplAccess::key_set() = source.key_set();
    impl->_set_conj(local.is_conj());
    impl->_set_neg(local.is_neg());
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
  set_shape(impl, local, *spec);
  impl->release_storage_and_set_meta_custom_data_ptr_error_msg_(
      data_pointer_error());
  impl->set_backend_meta(
      c10::make_intrusive<ShardedMeta>(local, spec, nullptr, nullptr));
}

const at::Tensor& fresh_local(const at::Tensor& t) {
  const ShardedMeta& meta = meta_of(t);
  if (meta.copy) {
    refresh(*meta.copy);
  }
  return meta.local;
}

std::shared_ptr<Copy> copy_of(const at::Tensor& t, const Placements& target) {
  const ShardedMeta& meta = meta_of(t);
  const std::shared_ptr<ShardCell> cell = cell_of(meta);
  // Copies even where a view keeps a copy that is up to date: views may live
  // longer on one rank than on another, and all must communicate alike.
  at::Tensor value = moved(fresh_local(t), *meta.spec, target);
  std::erase_if(
      cell->copies, [](const auto& known) { return known.expired(); });
  for (const auto& known : cell->copies) {
    const std::shared_ptr<Copy> copy = known.lock();
    if (copy && copy->spec->placements() == target) {
      copy->value.copy_(value);
      copy->generation = cell->generation();
      return copy;
    }
  }
  SpecPtr spec = DTensorSpec::make(
      meta.spec->mesh(), target, meta.spec->shape(), meta.spec->strides(),
      meta.spec->dtype());
  auto copy = std::make_shared<Copy>(
      Copy{std::move(value), std::move(spec), cell, cell->generation()});
  cell->copies.push_back(copy);
  return copy;
}

void after_write(const at::Tensor& t) {
  const ShardedMeta& meta = meta_of(t);
  if (meta.copy) {
    return after_write(*meta.copy);
  }
  if (const auto& cell = root_of(meta).cell) {
    ++*cell->writes;
  }
}

void after_write(Copy& copy) {
  ShardCell& shard = *copy.shard;
  shard.local.copy_(
      move_shard(copy.value, *copy.spec, shard.spec->placements()));
  if (shard.of) {
    after_write(*shard.of);
  } else {
    ++*shard.writes;
  }
  copy.generation = shard.generation();
}

at::Tensor replicated_value(const at::Tensor& t) {
  const ShardedMeta& meta = meta_of(t);
  return meta.spec->is_replicated()
             ? fresh_local(t)
             : moved(fresh_local(t), *meta.spec, replicated(meta.spec->mesh()));
}

}  // namespace tessera::detail
