#include "comm/call/strided_copy.h"

#include "base/copy_bytes.h"
#include "base/stream_copy.h"

namespace tessera::detail::inline comm_layer {

namespace {

// Copies on the CPU, dim by dim; what is contiguous on both sides at once.
class HostCopy {
 public:
  HostCopy(const StridedCopy& strided, int64_t width, bool streams)
      : strided_(strided), width_(width), streams_(streams) {
    const size_t dims = strided.sizes.size();
    if (dims > 0 && strided.from_strides[dims - 1] == 1 &&
        strided.to_strides[dims - 1] == 1) {
      loops_ = dims - 1;
      run_ = static_cast<size_t>(width * strided.sizes[dims - 1]);
    } else {
      loops_ = dims;
      run_ = static_cast<size_t>(width);
    }
  }

  void copy(const char* from, char* to, size_t dim = 0) const {
    if (dim == loops_) {
      streams_ ? base::stream_copy(to, from, run_)
               : base::copy_bytes(to, from, run_);
      return;
    }
    const int64_t from_step = width_ * strided_.from_strides[dim];
    const int64_t to_step = width_ * strided_.to_strides[dim];
    for (int64_t i = 0; i < strided_.sizes[dim]; ++i) {
      copy(from + i * from_step, to + i * to_step, dim + 1);
    }
  }

 private:
  const StridedCopy& strided_;
  int64_t width_;
  bool streams_;
  size_t loops_;
  size_t run_;
};

at::Tensor view_of(
    const at::Tensor& t, int64_t offset, const StridedCopy& strided,
    const std::vector<int64_t>& strides) {
  return t.as_strided(strided.sizes, strides, t.storage_offset() + offset);
}

}  // namespace

void run_copies(
    const StridedCopies& copies, const at::Tensor& from, int64_t from_offset,
    const at::Tensor& to, int64_t to_offset) {
  if (!from.is_cpu() || !to.is_cpu()) {
    for (const StridedCopy& strided : copies) {
      view_of(to, to_offset + strided.to, strided, strided.to_strides)
          .copy_(view_of(
              from, from_offset + strided.from, strided, strided.from_strides));
    }
    return;
  }
  if (copies.empty()) {
    return;
  }
  const auto width = static_cast<int64_t>(from.element_size());
  const bool streams = static_cast<int64_t>(to.nbytes()) >= base::kStreamBytes;
  const auto* source = static_cast<const char*>(from.const_data_ptr());
  auto* target = static_cast<char*>(to.mutable_data_ptr());
  for (const StridedCopy& strided : copies) {
    HostCopy(strided, width, streams)
        .copy(
            source + width * (from_offset + strided.from),
            target + width * (to_offset + strided.to));
  }
  if (streams) {
    base::stream_fence();
  }
}

}  // namespace tessera::detail::inline comm_layer
