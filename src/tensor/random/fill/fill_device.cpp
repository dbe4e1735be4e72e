#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/log.h>
#include <ATen/ops/round.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <tensor/random/fill/fill.h>

namespace tessera::detail::inline tensor_layer {

namespace {

using Kind = Distribution::Kind;
using Tensors4 = std::array<at::Tensor, 4>;

constexpr int64_t kLow32 = 0xffffffff;
// Bounds what a draw needs beside its result.
constexpr int64_t kChunkBlocks = 1 << 22;
// More ranges than this are looked up element by element.
constexpr int64_t kFewRanges = 8;

at::Tensor high32(const at::Tensor& t) {
  return t.bitwise_right_shift(32).bitwise_and_(kLow32);
}
at::Tensor low32(const at::Tensor& t) {
  return t.bitwise_and(kLow32);
}

// The words of blocks, as int64 tensors of values below 2^32. Products of two
// such values fill 64 bits; as signed numbers they wrap, and keep their bits.
Tensors4 blocks_of(const at::Tensor& number, CounterTail tail, PhiloxKey key) {
  Tensors4 c = {
      low32(number), high32(number),
      at::full_like(number, static_cast<int64_t>(tail.part)),
      at::full_like(number, static_cast<int64_t>(tail.scheme))};
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const at::Tensor a = c[0].mul(static_cast<int64_t>(kPhiloxMultiplier0));
    const at::Tensor b = c[2].mul(static_cast<int64_t>(kPhiloxMultiplier1));
    c = {
        high32(b).bitwise_xor_(c[1]).bitwise_xor_(
            static_cast<int64_t>(key.low)),
        low32(b),
        high32(a).bitwise_xor_(c[3]).bitwise_xor_(
            static_cast<int64_t>(key.high)),
        low32(a)};
    key.low += kPhiloxWeyl0;
    key.high += kPhiloxWeyl1;
  }
  return c;
}

struct Halves {
  at::Tensor low;
  at::Tensor high;
};

// The two 64-bit words of each block, in halves: [blocks, 2].
Halves wide_words(const Tensors4& w) {
  return {at::stack({w[0], w[2]}, -1), at::stack({w[1], w[3]}, -1)};
}

at::Tensor uniforms(
    const Tensors4& w, const Distribution& d, at::ScalarType dtype) {
  const int bits = uniform_bits(dtype);
  at::Tensor integer;
  if (dtype == at::kDouble) {
    const Halves word = wide_words(w);
    integer =
        word.high.mul(int64_t{1} << 21).add_(word.low.bitwise_right_shift(11));
  } else {
    integer =
        at::stack({w[0], w[1], w[2], w[3]}, -1).bitwise_right_shift(32 - bits);
  }
  const double most = std::max(largest_below(d.b, dtype), d.a);
  return integer.to(at::kDouble)
      .mul_(std::ldexp(1.0, -bits))
      .mul_(d.b - d.a)
      .add_(d.a)
      .to(dtype)
      .clamp_max_(most);
}

// The high 64 bits of word * range, by halves.
at::Tensor high_product(const Halves& word, uint64_t range) {
  const auto range_low = static_cast<int64_t>(range & kLow32);
  const auto range_high = static_cast<int64_t>(range >> 32);
  const at::Tensor low_low = word.low.mul(range_low);
  const at::Tensor high_low = word.high.mul(range_low);
  const at::Tensor low_high = word.low.mul(range_high);
  const at::Tensor middle =
      high32(low_low).add_(low32(high_low)).add_(low32(low_high));
  return word.high.mul(range_high)
      .add_(high32(high_low))
      .add_(high32(low_high))
      .add_(high32(middle));
}

at::Tensor integers(
    const Tensors4& w, const Distribution& d, at::ScalarType dtype) {
  const Halves word = wide_words(w);
  const at::Tensor offset =
      d.range == 0 ? word.high.bitwise_left_shift(32).bitwise_or_(word.low)
                   : high_product(word, d.range);
  const at::Tensor value = offset.add(d.low);
  if (!c10::isFloatingType(dtype)) {
    return dtype == at::kBool ? value.ne(0) : value.to(dtype);
  }
  return value.to(at::kDouble)
      .to(dtype)
      .clamp_max_(largest_below(upper_bound(d), dtype));
}

at::Tensor open_uniform(const at::Tensor& word) {
  return word.to(at::kDouble).add_(0.5).mul_(0x1p-32);
}

// Box-Muller, with the angle reduced to a quadrant while it is exact.
at::Tensor normals(const Tensors4& w) {
  const at::Tensor radius =
      open_uniform(at::stack({w[0], w[2]}, -1)).log_().mul_(-2.0).sqrt_();
  const at::Tensor x =
      at::stack({w[1], w[3]}, -1).to(at::kDouble).mul_(0x1p-30);
  const at::Tensor nearest = at::round(x);
  const at::Tensor t = x.sub(nearest).mul_(1.5707963267948966);
  const at::Tensor quadrant = nearest.to(at::kLong).bitwise_and_(3);
  const at::Tensor swap = quadrant.bitwise_and(1).ne(0);
  const at::Tensor sine = at::sin(t);
  const at::Tensor cosine = at::cos(t);
  const at::Tensor y = at::where(swap, cosine, sine);
  const at::Tensor z = at::where(swap, sine, cosine);
  const at::Tensor y_sign = at::where(quadrant.ge(2), -1.0, 1.0);
  const at::Tensor z_sign =
      at::where(quadrant.eq(1).logical_or_(quadrant.eq(2)), -1.0, 1.0);
  return at::stack({radius.mul(z.mul(z_sign)), radius.mul(y.mul(y_sign))}, -1)
      .flatten(1);
}

// The values of blocks: [blocks, values per block].
at::Tensor values_of(
    const at::Tensor& number, const Distribution& d, at::ScalarType dtype,
    PhiloxKey key, uint32_t part) {
  const bool wide = reads_wide(d, dtype);
  const Tensors4 w = blocks_of(number, {part, wide ? kWide : kNarrow}, key);
  switch (d.kind) {
    case Kind::kUniform:
      return uniforms(w, d, dtype);
    case Kind::kInteger:
      return integers(w, d, dtype);
    case Kind::kBernoulli:
      return at::stack({w[0], w[1], w[2], w[3]}, -1)
          .lt(static_cast<int64_t>(bernoulli_threshold(d.a)))
          .to(dtype);
    case Kind::kNormal:
      return normals(w).mul_(d.b).add_(d.a).to(at::kFloat).to(dtype);
    case Kind::kLogNormal:
      return normals(w).mul_(d.b).add_(d.a).exp_().to(at::kFloat).to(dtype);
    case Kind::kExponential:
      return open_uniform(at::stack({w[0], w[1], w[2], w[3]}, -1))
          .log_()
          .div_(-d.a)
          .to(at::kFloat)
          .to(dtype);
    case Kind::kCauchy:
    case Kind::kGeometric:
      break;
  }
  TORCH_INTERNAL_ASSERT(false, "the host makes these values");
}

}  // namespace

at::Tensor draw_on_device(
    const GlobalIndexRanges& ranges, at::ScalarType dtype, c10::Device device,
    const Distribution& distribution, PhiloxKey key, uint32_t part) {
  const auto longs = at::TensorOptions(at::kLong).device(device);
  const int64_t per_block = reads_wide(distribution, dtype) ? 2 : 4;
  const auto draw = [&](const at::Tensor& number) {
    return values_of(number, distribution, dtype, key, part);
  };
  std::vector<at::Tensor> pieces = {
      at::empty({0}, at::TensorOptions(dtype).device(device))};
  if (ranges.range_count() > kFewRanges) {
    const at::Tensor linear_indices = ranges.linear_indices(device);
    for (const at::Tensor& some : linear_indices.split(kChunkBlocks)) {
      const at::Tensor lane = some.remainder(per_block).unsqueeze(-1);
      const at::Tensor number = some.div(per_block, /*rounding_mode=*/"floor");
      pieces.push_back(draw(number).gather(-1, lane).flatten());
    }
  } else {
    ranges.for_each_range([&](const IndexRange& range) {
      const int64_t end = range.begin + range.count;
      for (int64_t linear_index = range.begin; linear_index < end;) {
        const int64_t first = linear_index / per_block;
        const int64_t stop = std::min(end, (first + kChunkBlocks) * per_block);
        const int64_t last = (stop + per_block - 1) / per_block;
        pieces.push_back(
            draw(at::arange(first, last, longs))
                .flatten()
                .narrow(
                    0, linear_index - first * per_block, stop - linear_index));
        linear_index = stop;
      }
    });
  }
  return at::cat(pieces).view(ranges.shape());
}

}  // namespace tessera::detail::inline tensor_layer
