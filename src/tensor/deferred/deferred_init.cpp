#include <tessera/tensor/deferred_init.h>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <tensor/deferred/become_plain.h>
#include <tensor/deferred/record.h>
#include <tensor/deferred/replay.h>
#include <tensor/state/dispatch_keys.h>
#include <tensor/state/late_operators.h>
#include <tessera/comm/world.h>

namespace tessera {

namespace detail::inline tensor_layer {

class DeferredInitImpl {
 public:
  DeferredInitImpl() : draws_(init().random_counters()), include_(kUseKey) {
    begin_deferral();
  }
  ~DeferredInitImpl() { end_deferral(); }
  DeferredInitImpl(const DeferredInitImpl&) = delete;
  DeferredInitImpl& operator=(const DeferredInitImpl&) = delete;

 private:
  UnshardedRandom draws_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

}  // namespace detail::inline tensor_layer

DeferredInit::DeferredInit() {
  detail::ensure_registered();
  impl_ = std::make_unique<detail::DeferredInitImpl>();
}

DeferredInit::~DeferredInit() = default;

bool is_deferred(const at::Tensor& tensor) {
  return detail::deferred_storage(tensor) != nullptr;
}

void materialize(const at::Tensor& tensor) {
  detail::DeferredStorage* storage = detail::deferred_storage(tensor);
  if (storage == nullptr) {
    return;
  }
  TORCH_CHECK_VALUE(
      tensor.is_leaf(),
      "materialize: the tensor must be a leaf, since its "
      "history has no values; detach() it under the guard; got shape ",
      tensor.sizes());
  const detail::Replaying replaying;
  const detail::Geometry geometry(tensor);
  if (!storage->values.defined()) {
    storage->values = detail::replay(storage->version, geometry);
  }
  detail::become_plain(tensor, detail::tensor_over(storage->values, geometry));
}

}  // namespace tessera
