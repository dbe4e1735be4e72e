#include <parallel/recompute/saved_fingerprint.h>

#include <string>

#include <c10/util/Exception.h>
#include <tensor/impl/sharded_impl.h>
#include <tessera/comm/world.h>
#include <tessera/layout/notation.h>
#include <tessera/tensor/dtensor_spec.h>
#include <torch/csrc/autograd/function.h>

namespace tessera::detail::inline parallel_layer {

namespace {

SpecPtr spec_or_null(const at::Tensor& t) {
  return is_sharded(t) ? meta_nowait(t).spec : nullptr;
}

c10::weak_intrusive_ptr<c10::StorageImpl> memory_of(const at::Tensor& t) {
  const at::Tensor& local = is_sharded(t) ? meta_nowait(t).local : t;
  return c10::weak_intrusive_ptr<c10::StorageImpl>(
      local.has_storage() ? local.storage().getWeakStorageImpl()
                          : c10::weak_intrusive_ptr<c10::StorageImpl>(
                                c10::intrusive_ptr<c10::StorageImpl>()));
}

std::string text_of(
    const SpecPtr& spec, at::IntArrayRef sizes, at::ScalarType dtype) {
  return spec ? to_string(*spec)
              : dtype_name(dtype) + shape_to_string(sizes.vec());
}

std::string origin_of(const at::Tensor& t) {
  return t.grad_fn() ? "the result of " + t.grad_fn()->name()
                     : "a tensor without history";
}

}  // namespace

SavedFingerprint::SavedFingerprint(const at::Tensor& tensor, uint64_t draws)
    : sizes_(tensor.sizes().begin(), tensor.sizes().end()),
      dtype_(tensor.scalar_type()),
      spec_(spec_or_null(tensor)),
      memory_(memory_of(tensor)),
      version_(tensor._version()),
      draws_(draws) {}

void SavedFingerprint::check(
    const at::Tensor& again, uint64_t draws, size_t slot, size_t count) const {
  const SavedFingerprint now(again, draws);
  const auto where = [&] {
    return c10::str(
        "activation_checkpoint, rank ", rank(), ": saved tensor ", slot + 1,
        " of ", count, " (", origin_of(again), ")");
  };
  TORCH_CHECK_VALUE(
      now.draws_ == draws_, where(),
      ": fn must draw as many random numbers each time it runs; it drew ",
      draws_, " times before this tensor in the forward, and ", now.draws_,
      " times in the recomputation; let it depend on its inputs alone");
  TORCH_CHECK_VALUE(
      now.sizes_ == sizes_ && now.dtype_ == dtype_ && now.spec_ == spec_,
      where(), ": fn must compute the same tensors each time it runs; it was ",
      text_of(spec_, sizes_, dtype_), " in the forward, and is ",
      text_of(now.spec_, now.sizes_, now.dtype_),
      " in the recomputation; let fn depend on its inputs alone");
  // Memory that both runs use is not of fn's making.
  const auto before = memory_.lock();
  TORCH_CHECK_VALUE(
      !before || before != now.memory_.lock() || now.version_ == version_,
      where(),
      ": a tensor that fn uses was changed in place after the forward; it had ",
      "version ", version_, " then, and has ", now.version_,
      " in the recomputation; change it after the backward pass, or clone() "
      "it");
}

}  // namespace tessera::detail::inline parallel_layer
