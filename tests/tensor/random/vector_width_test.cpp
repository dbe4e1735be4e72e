// Random numbers have the same bits however wide the host's vectors are, and
// those of the version before.
#include <cstring>

#include <tensor/random/fill/fill.h>
#include <tensor/random/fill/vector_loops.h>
#include <tensor/random/philox/philox_blocks.h>
#include <tensor/random/random_ops.h>

namespace tessera {
namespace {

using detail::Distribution;
using detail::VectorWidth;
using Kind = Distribution::Kind;

constexpr detail::PhiloxKey kKey{123, 456};

std::vector<VectorWidth> widths_here() {
  std::vector<VectorWidth> all{VectorWidth::kAny};
  for (const VectorWidth width : {VectorWidth::kAvx2, VectorWidth::kAvx512}) {
    if (width <= detail::widest_vectors()) {
      all.push_back(width);
    }
  }
  return all;
}

std::vector<uint32_t> words_of(int64_t blocks, VectorWidth width) {
  std::vector<uint32_t> words(static_cast<size_t>(4 * blocks) + 1, 42);
  detail::philox_blocks(kKey, {3, 1}, 0xfffffff0, blocks, words.data(), width);
  return words;
}

TEST(VectorWidth, PhiloxBlocksAreThoseOneByOne) {
  for (const VectorWidth width : widths_here()) {
    for (const int64_t blocks : {0, 1, 7, 8, 15, 16, 17, 31, 32, 40, 49}) {
      const auto words = words_of(blocks, width);
      EXPECT_EQ(words.back(), 42U);
      for (int64_t i = 0; i < blocks; ++i) {
        const auto block = detail::philox_block(
            0xfffffff0 + static_cast<uint64_t>(i), {3, 1}, kKey);
        EXPECT_EQ(
            std::memcmp(
                block.data(), words.data() + 4 * i,
                sizeof(detail::PhiloxBlock)),
            0)
            << i << " of " << blocks << ", width " << static_cast<int>(width);
      }
    }
  }
}

// Runs `loop(words, n, out, width)` in all widths.
template <class T, class Loop>
void expect_equal_widths(const std::string& name, const Loop& loop) {
  const auto words = words_of(2100, VectorWidth::kAny);
  for (const int64_t n : {1, 2, 3, 7, 8, 16, 33, 511, 512, 513, 1500}) {
    std::vector<T> want(static_cast<size_t>(2 * n) + 1, T(7));
    loop(words.data(), n, want.data(), VectorWidth::kAny);
    EXPECT_EQ(want.back(), T(7));
    for (const VectorWidth width : widths_here()) {
      std::vector<T> got(want.size(), T(7));
      loop(words.data(), n, got.data(), width);
      EXPECT_EQ(
          std::memcmp(got.data(), want.data(), sizeof(T) * want.size()), 0)
          << name << ", " << n << ", width " << static_cast<int>(width);
    }
  }
}

TEST(VectorWidth, LoopsGiveTheSameBits) {
  expect_equal_widths<double>(
      "narrow", [](auto... all) { detail::normals_of_narrow(all...); });
  expect_equal_widths<double>(
      "wide", [](auto... all) { detail::normals_of_wide(all...); });
  expect_equal_widths<double>(
      "log", [](const uint32_t* words, int64_t n, double* out, VectorWidth w) {
        for (int64_t i = 0; i < n; ++i) {
          out[i] = (words[i] + 0.5) * 0x1p-32;
        }
        detail::log_all(out, n, w);
      });
  expect_equal_widths<float>(
      "uniform",
      [](const uint32_t* words, int64_t n, float* out, VectorWidth w) {
        detail::uniforms_of(
            words, n, {8, 0x1p-24, 0.06, -0.03, 0.0299999F}, out, w);
      });
  expect_equal_widths<float>(
      "scaled",
      [](const uint32_t* words, int64_t n, float* out, VectorWidth w) {
        std::vector<double> values(words, words + n);
        detail::scale_to_floats(values.data(), n, 0.1, -3, out, w);
      });
}

// FNV-1a.
uint64_t hash_of(const at::Tensor& t) {
  uint64_t hash = 14695981039346656037ULL;
  const auto* bytes = static_cast<const uint8_t*>(t.const_data_ptr());
  for (size_t i = 0; i < t.nbytes(); ++i) {
    hash = (hash ^ bytes[i]) * 1099511628211ULL;
  }
  return hash;
}

struct Recorded {
  Kind kind;
  at::ScalarType dtype;
  uint64_t hash;
};

// Programs rely on a seed's numbers: these never change.
TEST(VectorWidth, ValuesAreThoseThatWereRecorded) {
  const std::vector<Recorded> all = {
      {Kind::kUniform, at::kFloat, 0x69915639c97972d9ULL},
      {Kind::kUniform, at::kDouble, 0x453ee503f1486036ULL},
      {Kind::kUniform, at::kHalf, 0x9c45d760f1cbffbfULL},
      {Kind::kUniform, at::kBFloat16, 0xf6168cffe2204b8fULL},
      {Kind::kInteger, at::kFloat, 0xc4297b9e8734453eULL},
      {Kind::kInteger, at::kDouble, 0x34912651fa233cd7ULL},
      {Kind::kInteger, at::kHalf, 0x3af41d3eba15eedfULL},
      {Kind::kInteger, at::kBFloat16, 0xba20eb2b66a2004bULL},
      {Kind::kBernoulli, at::kFloat, 0x4959b4bd62d174f5ULL},
      {Kind::kBernoulli, at::kDouble, 0x057c94e54c6260c5ULL},
      {Kind::kBernoulli, at::kHalf, 0x08e5ed24a2c8e3bdULL},
      {Kind::kBernoulli, at::kBFloat16, 0xb6dbc52bd2d7e0adULL},
      {Kind::kNormal, at::kFloat, 0xcef34e763c39d9b5ULL},
      {Kind::kNormal, at::kDouble, 0xeb15b591a10f21f5ULL},
      {Kind::kNormal, at::kHalf, 0xf00bb44c1fe71e4dULL},
      {Kind::kNormal, at::kBFloat16, 0xcabb9ee7fc7e4badULL},
      {Kind::kExponential, at::kFloat, 0xbaa86114ee9dd4ceULL},
      {Kind::kExponential, at::kDouble, 0x5e44fffe0761b074ULL},
      {Kind::kExponential, at::kHalf, 0xd40a1a2e47791d25ULL},
      {Kind::kExponential, at::kBFloat16, 0x89c2c850acf3ca2dULL},
  };
  const auto parameters = [](Kind kind) {
    return kind == Kind::kUniform     ? std::pair(-0.03, 0.03)
           : kind == Kind::kBernoulli ? std::pair(0.3, 1.0)
           : kind == Kind::kNormal    ? std::pair(0.1, 2.0)
                                      : std::pair(2.0, 1.0);
  };
  for (const Recorded& one : all) {
    const auto [a, b] = parameters(one.kind);
    const at::Tensor values = detail::draw_values(
        detail::GlobalIndexRanges(at::IntArrayRef({10007})), one.dtype,
        at::kCPU, {.kind = one.kind, .a = a, .b = b, .low = -5, .range = 1000},
        kKey, 7);
    EXPECT_EQ(hash_of(values), one.hash)
        << static_cast<int>(one.kind) << " " << one.dtype;
  }
}

}  // namespace
}  // namespace tessera
