#include <checkpoint/write/snapshot.h>

#include <algorithm>
#include <set>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <base/stream_copy.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace tessera::detail::inline checkpoint_layer {

namespace {

constexpr size_t kAlignment = 64;

size_t align(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

size_t bytes_of(const at::Tensor& view) {
  return view.defined() ? view.nbytes() : 0;
}

void copy_view(char* to, const at::Tensor& view) {
  const at::Tensor source = view.resolve_conj().resolve_neg();
  if (is_plain_memory(source)) {
    // Nobody reads the copy soon, so it need not push the tensors of the next
    // step out of the cache.
    base::stream_copy(to, source.const_data_ptr(), source.nbytes());
    return;
  }
  at::from_blob(to, source.sizes(), source.options().device(at::kCPU))
      .copy_(source, /*non_blocking=*/true);
}

void wait_for_devices(const std::vector<at::Tensor>& views) {
  std::set<std::pair<c10::DeviceType, c10::DeviceIndex>> devices;
  for (const at::Tensor& view : views) {
    if (view.defined() && !view.is_cpu()) {
      devices.emplace(view.device().type(), view.device().index());
    }
  }
  for (const auto& [type, index] : devices) {
    c10::impl::VirtualGuardImpl(type).getStream({type, index}).synchronize();
  }
}

}  // namespace

bool is_plain_memory(const at::Tensor& t) {
  return t.is_cpu() && t.is_contiguous() && !t.is_conj() && !t.is_neg();
}

char* Snapshot::reserve(size_t bytes, bool pinned) {
  const bool fits = memory_.defined() && memory_.nbytes() >= bytes &&
                    (!pinned || memory_.is_pinned());
  if (!fits) {
    memory_ = at::Tensor();  // never two of them
    memory_ = at::empty(
        {static_cast<int64_t>(bytes)},
        at::TensorOptions(at::kByte).pinned_memory(pinned));
  }
  return static_cast<char*>(memory_.mutable_data_ptr());
}

std::vector<Snapshot::Bytes> Snapshot::take(
    const std::vector<at::Tensor>& views) {
  const at::NoGradGuard no_grad;
  size_t bytes = 0;
  bool pinned = false;
  for (const at::Tensor& view : views) {
    bytes += align(bytes_of(view));
    pinned = pinned || (view.defined() && view.is_cuda());
  }
  char* next = reserve(bytes, pinned);
  std::vector<Bytes> copies;
  for (const at::Tensor& view : views) {
    copies.push_back({next, bytes_of(view)});
    if (copies.back().size > 0) {
      copy_view(next, view);
    }
    next += align(copies.back().size);
  }
  base::stream_fence();
  wait_for_devices(views);
  return copies;
}

Snapshot::Bytes Snapshot::memory() const {
  return memory_.defined() ? Bytes{memory_.const_data_ptr(), memory_.nbytes()}
                           : Bytes();
}

}  // namespace tessera::detail::inline checkpoint_layer
