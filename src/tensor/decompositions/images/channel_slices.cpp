#include <tensor/decompositions/images/channel_slices.h>

#include <algorithm>

namespace tessera::detail::inline tensor_layer {

namespace {
constexpr int64_t kLeastBytes = int64_t{1} << 20;

int64_t bytes_of(const at::Tensor& t) {
  return t.numel() * static_cast<int64_t>(t.element_size());
}
}  // namespace

std::vector<Run> channel_slices(
    const at::Tensor& images, const at::Tensor& weight, int64_t groups) {
  const int64_t channels = weight.size(0);
  const int64_t most = std::max(bytes_of(images), kLeastBytes);
  if (groups != 1 || !weight.is_cpu() || bytes_of(weight) <= most) {
    return {{0, channels}};
  }
  const int64_t count = (bytes_of(weight) + most - 1) / most;
  const int64_t length = (channels + count - 1) / count;
  std::vector<Run> slices;
  for (int64_t begin = 0; begin < channels; begin += length) {
    slices.push_back({begin, std::min(begin + length, channels)});
  }
  return slices;
}

}  // namespace tessera::detail::inline tensor_layer
