#include <tensor/deferred/tape.h>

#include <atomic>
#include <utility>

#include <ATen/ops/empty.h>
#include <tensor/call/op_call.h>
#include <tensor/impl/wrap.h>
#include <tensor/state/dispatch_keys.h>
#include <tensor/state/strides.h>
#include <tensor/state/torch_compat.h>

namespace tessera::detail::inline tensor_layer {

namespace {

std::atomic<int64_t> live{0};

void forget(void* storage) {
  delete static_cast<DeferredStorage*>(storage);
  live.fetch_sub(1, std::memory_order_relaxed);
}

void forbid_addresses(const at::Tensor& t) {
  forbid_address(
      *t.storage().unsafeGetStorageImpl(),
      "DeferredInit: memory of a deferred tensor was asked for, which has "
      "no values yet; put the module in its place first: "
      "parallelize_module(), distribute_module(), make_dtensor_() or "
      "materialize(). Where at::tensor() makes a tensor of a vector, take "
      "at::from_blob(...).clone()");
}

struct DeviceOf : c10::TensorImpl {
  static std::optional<c10::Device> c10::TensorImpl::*member() {
    return &DeviceOf::device_opt_;
  }
};

// What a tensor, and its storage, say of themselves.
void say_device(const at::Tensor& t, const c10::Device& device) {
  t.unsafeGetTensorImpl()->*DeviceOf::member() = device;
  t.storage()
      .unsafeGetStorageImpl()
      ->_mutable_data_ptr_no_checks()
      .unsafe_set_device(device);
}

}  // namespace

Geometry::Geometry(const at::Tensor& t)
    : sizes(t.sizes().vec()),
      strides(t.strides().vec()),
      offset(t.storage_offset()),
      dtype(t.scalar_type()),
      is_conjugated(t.is_conj()),
      is_negated(t.is_neg()) {}

int64_t Geometry::numel() const {
  return c10::multiply_integers(sizes);
}

bool Geometry::is_contiguous() const {
  return at::IntArrayRef(strides) == at::IntArrayRef(contiguous_strides(sizes));
}

StorageVersion::~StorageVersion() {
  thread_local std::vector<std::shared_ptr<const void>>* links = nullptr;
  if (links != nullptr) {
    links->push_back(std::move(call));
    links->push_back(std::move(previous));
    return;
  }
  std::vector<std::shared_ptr<const void>> mine{
      std::move(call), std::move(previous)};
  links = &mine;
  while (!mine.empty()) {
    const std::shared_ptr<const void> link = std::move(mine.back());
    mine.pop_back();
  }
  links = nullptr;
}

std::string RecordedCall::name() const {
  return op ? full_name(op->operator_name()) : "aten::empty";
}

DeferredStorage* deferred_storage(const at::Tensor& t) {
  if (!t.defined() ||
      !t.key_set().has_backend(c10::BackendComponent::MetaBit) ||
      !t.has_storage()) {
    return nullptr;
  }
  const at::DataPtr& data =
      t.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  return data.get_deleter() == &forget
             ? static_cast<DeferredStorage*>(data.get_context())
             : nullptr;
}

bool exists_deferred() {
  return live.load(std::memory_order_relaxed) != 0;
}

void defer(const at::Tensor& t, VersionPtr version, c10::Device device) {
  auto storage = std::make_unique<DeferredStorage>();
  storage->version = std::move(version);
  storage->device = device;
  live.fetch_add(1, std::memory_order_relaxed);
  t.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
      at::DataPtr(nullptr, storage.release(), &forget, c10::kMeta));
  forbid_addresses(t);
  mark_deferred(t);
}

void mark_deferred(const at::Tensor& t) {
  add_key(t, kUseKey);
  say_device(t, deferred_storage(t)->device);
}

uint64_t next_sequence() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

OnMeta::OnMeta(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
  for (const at::Tensor& t : tensors_) {
    say_device(t, c10::kMeta);
    allow_address(*t.storage().unsafeGetStorageImpl());
  }
}

OnMeta::~OnMeta() {
  for (const at::Tensor& t : tensors_) {
    if (deferred_storage(t) != nullptr) {
      forbid_addresses(t);
      say_device(t, deferred_storage(t)->device);
    }
  }
}

}  // namespace tessera::detail::inline tensor_layer
