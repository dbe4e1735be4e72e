#include <tensor/random/fill/fill.h>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/move/redistribute_shard.h>
#include <tensor/move/view_copies.h>

namespace tessera::detail::inline tensor_layer {

namespace {

using Kind = Distribution::Kind;

constexpr int64_t kGrain = 1 << 16;
// Below this, the host makes and copies values faster than an accelerator
// starts the operators that make them.
constexpr int64_t kFewOnDevice = 1 << 14;

// Elements know their places, so how a range is split does not matter.
void fill_host(
    const at::Tensor& values, const GlobalIndexRanges& ranges,
    const Distribution& distribution, PhiloxKey key, uint32_t part) {
  char* data = static_cast<char*>(values.mutable_data_ptr());
  const at::ScalarType dtype = values.scalar_type();
  const auto size = static_cast<int64_t>(values.element_size());
  ranges.for_each_range([&](const IndexRange& range) {
    at::parallel_for(0, range.count, kGrain, [&](int64_t begin, int64_t end) {
      const int64_t stored = range.stored + begin;
      fill_range(
          data + stored * size, dtype,
          {range.begin + begin, end - begin, stored}, distribution, key, part);
    });
  });
}

at::Tensor draw_on_host(
    const GlobalIndexRanges& ranges, at::ScalarType dtype,
    const Distribution& distribution, PhiloxKey key, uint32_t part) {
  at::Tensor values =
      at::empty(ranges.shape(), at::TensorOptions(dtype).device(at::kCPU));
  fill_host(values, ranges, distribution, key, part);
  return values;
}

// The choice must not depend on the shard's size where the results would.
bool wants_device(
    const GlobalIndexRanges& ranges, at::ScalarType dtype,
    const Distribution& distribution) {
  switch (distribution.kind) {
    case Kind::kUniform:
    case Kind::kInteger:
    case Kind::kBernoulli:
      return ranges.numel() > kFewOnDevice;
    case Kind::kNormal:
    case Kind::kLogNormal:
    case Kind::kExponential:
      return dtype != at::kDouble;
    case Kind::kCauchy:
    case Kind::kGeometric:
      return false;
  }
  return false;
}

// Complex numbers are pairs of reals; the parts of a normal one share its
// variance.
Distribution of_parts(Distribution distribution) {
  if (distribution.kind == Kind::kNormal) {
    distribution.b *= 0.70710678118654752440;
  }
  return distribution;
}

}  // namespace

at::Tensor draw_values(
    const GlobalIndexRanges& ranges, at::ScalarType dtype, c10::Device device,
    const Distribution& distribution, PhiloxKey key, uint32_t part) {
  if (c10::isComplexType(dtype)) {
    return at::view_as_complex(draw_values(
        ranges.with_inner(2), c10::toRealValueType(dtype), device,
        of_parts(distribution), key, part));
  }
  if (device.is_meta()) {
    return at::empty(ranges.shape(), at::TensorOptions(dtype).device(device));
  }
  if (!device.is_cpu() && wants_device(ranges, dtype, distribution)) {
    return draw_on_device(ranges, dtype, device, distribution, key, part);
  }
  at::Tensor values = draw_on_host(ranges, dtype, distribution, key, part);
  return device.is_cpu() ? values : values.to(device);
}

void fill_tensor(
    const at::Tensor& tensor, const Distribution& distribution, PhiloxKey key,
    uint32_t part) {
  const bool sharded = is_sharded(tensor);
  const GlobalIndexRanges ranges = sharded ? GlobalIndexRanges(spec_of(tensor))
                                           : GlobalIndexRanges(tensor.sizes());
  const at::Tensor local = sharded ? refreshed_shard(tensor) : tensor;
  const at::ScalarType dtype = tensor.scalar_type();
  const bool partial = sharded && spec_of(tensor).layout().has_partial();
  if (local.is_cpu() && local.is_contiguous() && !partial &&
      !c10::isComplexType(dtype) && !local.is_neg()) {
    fill_host(local, ranges, distribution, key, part);
  } else {
    at::Tensor values =
        draw_values(ranges, dtype, local.device(), distribution, key, part);
    if (partial && spec_of(tensor).has_shard()) {
      values = to_partial(values, spec_of(tensor));
    }
    local.copy_(values);
  }
  if (sharded) {
    after_write(tensor);
  }
}

}  // namespace tessera::detail::inline tensor_layer
