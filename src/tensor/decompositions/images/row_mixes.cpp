#include <tensor/decompositions/images/row_mixes.h>

#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/native/UpSample.h>

namespace tessera::detail::inline tensor_layer {

namespace {

template <class Real>
Mix cubic_mix(Real place, int64_t rows) {
  const Real first = std::floor(place);
  std::array<Real, 4> weights{};
  at::native::get_cubic_upsample_coefficients<Real>(
      weights.data(), place - first);
  Mix mix;
  for (int64_t k = 0; k < 4; ++k) {
    mix.rows.push_back(
        std::clamp<int64_t>(static_cast<int64_t>(first) - 1 + k, 0, rows - 1));
    mix.weights.push_back(weights[static_cast<size_t>(k)]);
  }
  return mix;
}

template <class Real>
Mix interpolated(const DimMix& d, int64_t i) {
  const auto step = at::native::area_pixel_compute_scale<Real>(
      d.rows, d.results, d.aligns_corners, d.scale);
  if (d.kind == MixKind::kNearest || d.kind == MixKind::kNearestExact) {
    const Real at = static_cast<Real>(i) +
                    static_cast<Real>(d.kind == MixKind::kNearest ? 0 : 0.5);
    return {
        {std::min(static_cast<int64_t>(std::floor(at * step)), d.rows - 1)},
        {}};
  }
  const bool cubic = d.kind == MixKind::kCubic;
  const Real place = at::native::area_pixel_compute_source_index<Real>(
      step, i, d.aligns_corners, cubic);
  if (cubic) {
    return cubic_mix(place, d.rows);
  }
  if (d.rows == d.results) {
    return {{i, i}, {1, 0}};  // whatever the scale says
  }
  const int64_t first =
      std::min(static_cast<int64_t>(std::floor(place)), d.rows - 1);
  const Real second = std::clamp<Real>(place - static_cast<Real>(first), 0, 1);
  return {{first, std::min(first + 1, d.rows - 1)}, {1 - second, second}};
}

}  // namespace

Mix DimMix::of(int64_t i) const {
  if (kind == MixKind::kReflection) {
    const int64_t row = std::abs(i - before);
    return {{row < rows ? row : 2 * (rows - 1) - row}, {}};
  }
  if (kind == MixKind::kReplication) {
    return {{std::clamp<int64_t>(i - before, 0, rows - 1)}, {}};
  }
  return is_double ? interpolated<double>(*this, i)
                   : interpolated<float>(*this, i);
}

Run DimMix::read_by(const Run& run) const {
  Run read{rows, 0};
  for (int64_t i = run.begin; i < run.end; ++i) {
    const Mix mix = of(i);
    for (const int64_t row : mix.rows) {
      read.begin = std::min(read.begin, row);
      read.end = std::max(read.end, row + 1);
    }
  }
  return read;
}

}  // namespace tessera::detail::inline tensor_layer
