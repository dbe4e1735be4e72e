// share_from_first(): what random operators need until every rank can draw the
// same numbers by itself.
#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>
#include <tensor/movement.h>

namespace tessera::detail {

namespace {

constexpr int64_t kMaxDims = 24;
// defined, dtype, ndim, on the CPU, sizes, strides
constexpr int64_t kSizes = 4;
constexpr int64_t kStrides = kSizes + kMaxDims;
constexpr int64_t kHeader = kStrides + kMaxDims;

// Describes one tensor in a fixed number of integers.
void write_header(int64_t* header, const at::Tensor& t) {
  header[0] = t.defined() ? 1 : 0;
  if (!t.defined()) {
    return;
  }
  TORCH_CHECK_VALUE(
      t.dim() <= kMaxDims, "a random operator's result may have at most ",
      kMaxDims, " dims; got ", t.dim());
  header[1] = static_cast<int64_t>(t.scalar_type());
  header[2] = t.dim();
  header[3] = t.is_cpu() ? 1 : 0;
  std::memcpy(
      header + kSizes, t.sizes().data(), t.sizes().size() * sizeof(int64_t));
  std::memcpy(
      header + kStrides, t.strides().data(),
      t.strides().size() * sizeof(int64_t));
}

at::Tensor read_header(const int64_t* header, c10::Device device) {
  if (header[0] == 0) {
    return {};
  }
  const auto ndim = static_cast<size_t>(header[2]);
  return at::empty_strided(
      at::IntArrayRef(header + kSizes, ndim),
      at::IntArrayRef(header + kStrides, ndim),
      at::TensorOptions(header[3] == 1 ? c10::Device(at::kCPU) : device)
          .dtype(static_cast<c10::ScalarType>(header[1])));
}

}  // namespace

bool share_from_first(
    std::vector<at::Tensor>& tensors, const DeviceMesh& mesh,
    c10::Device device, bool ok) {
  const Communicator all = mesh.whole();
  const bool first = all.rank() == 0;
  at::Tensor count = at::empty({1}, at::kLong);
  *count.mutable_data_ptr<int64_t>() =
      ok ? static_cast<int64_t>(tensors.size()) : -1;
  all.broadcast(count, 0);
  if (*count.const_data_ptr<int64_t>() < 0) {
    return false;
  }
  tensors.resize(static_cast<size_t>(*count.const_data_ptr<int64_t>()));
  at::Tensor headers =
      at::empty({static_cast<int64_t>(tensors.size()) * kHeader}, at::kLong);
  int64_t* header = headers.mutable_data_ptr<int64_t>();
  for (size_t i = 0; first && i < tensors.size(); ++i) {
    write_header(header + static_cast<int64_t>(i) * kHeader, tensors[i]);
  }
  all.broadcast(headers, 0);
  for (size_t i = 0; i < tensors.size(); ++i) {
    at::Tensor& t = tensors[i];
    if (!first) {
      t = read_header(header + static_cast<int64_t>(i) * kHeader, device);
    }
    if (!t.defined()) {
      continue;
    }
    at::Tensor flat = t.contiguous();
    all.broadcast(flat, 0);
    if (!first && !flat.is_same(t)) {
      t.copy_(flat);
    }
  }
  return true;
}

}  // namespace tessera::detail
