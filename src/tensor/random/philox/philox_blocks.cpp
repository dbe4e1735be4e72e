#include <tensor/random/philox/philox_blocks.h>

#ifdef TESSERA_WITH_AVX
#include <immintrin.h>
#endif

namespace tessera::detail::inline tensor_layer {

namespace {

void blocks_one_by_one(
    PhiloxKey key, CounterTail tail, uint64_t first, int64_t count,
    uint32_t* words) {
  for (int64_t i = 0; i < count; ++i) {
    const PhiloxBlock block =
        philox_block(first + static_cast<uint64_t>(i), tail, key);
    for (size_t w = 0; w < 4; ++w) {
      words[4 * static_cast<size_t>(i) + w] = block[w];
    }
  }
}

#ifdef TESSERA_WITH_AVX

// Four counters, word w of each in the low halves of the 64-bit lanes of c[w].
// The high halves hold garbage, which the 32-bit multiplication does not read.
struct Four {
  __m256i c[4];
};

#define TESSERA_INLINE_AVX2 TESSERA_AVX2 __attribute__((always_inline)) inline
#define TESSERA_INLINE_AVX512 \
  TESSERA_AVX512 __attribute__((always_inline)) inline

TESSERA_INLINE_AVX2 Four load_four(uint64_t first, CounterTail tail) {
  const __m256i number = _mm256_add_epi64(
      _mm256_set1_epi64x(static_cast<int64_t>(first)),
      _mm256_setr_epi64x(0, 1, 2, 3));
  return {
      {number, _mm256_srli_epi64(number, 32), _mm256_set1_epi64x(tail.part),
       _mm256_set1_epi64x(tail.scheme)}};
}

TESSERA_INLINE_AVX2 void round_of_four(Four& f, __m256i low, __m256i high) {
  const __m256i m0 = _mm256_set1_epi64x(kPhiloxMultiplier0);
  const __m256i m1 = _mm256_set1_epi64x(kPhiloxMultiplier1);
  const __m256i a = _mm256_mul_epu32(f.c[0], m0);
  const __m256i b = _mm256_mul_epu32(f.c[2], m1);
  f.c[0] =
      _mm256_xor_si256(_mm256_srli_epi64(b, 32), _mm256_xor_si256(f.c[1], low));
  f.c[1] = b;
  f.c[2] = _mm256_xor_si256(
      _mm256_srli_epi64(a, 32), _mm256_xor_si256(f.c[3], high));
  f.c[3] = a;
}

// Turns lanes into blocks: 16 words in the order of the counters.
TESSERA_INLINE_AVX2 void store_four(const Four& f, uint32_t* words) {
  const __m256i mask = _mm256_set1_epi64x(0xffffffff);
  const __m256i w01 = _mm256_or_si256(
      _mm256_and_si256(f.c[0], mask), _mm256_slli_epi64(f.c[1], 32));
  const __m256i w23 = _mm256_or_si256(
      _mm256_and_si256(f.c[2], mask), _mm256_slli_epi64(f.c[3], 32));
  const __m256i even = _mm256_unpacklo_epi64(w01, w23);  // blocks 0, 2
  const __m256i odd = _mm256_unpackhi_epi64(w01, w23);   // blocks 1, 3
  auto* out = reinterpret_cast<__m256i*>(words);
  _mm256_storeu_si256(out, _mm256_permute2x128_si256(even, odd, 0x20));
  _mm256_storeu_si256(out + 1, _mm256_permute2x128_si256(even, odd, 0x31));
}

TESSERA_AVX2 void blocks_by_eight(
    PhiloxKey key, CounterTail tail, uint64_t first, int64_t count,
    uint32_t* words) {
  for (int64_t i = 0; i < count; i += 8) {
    Four a = load_four(first + static_cast<uint64_t>(i), tail);
    Four b = load_four(first + static_cast<uint64_t>(i) + 4, tail);
    uint32_t low = key.low;
    uint32_t high = key.high;
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const __m256i k0 = _mm256_set1_epi64x(low);
      const __m256i k1 = _mm256_set1_epi64x(high);
      round_of_four(a, k0, k1);
      round_of_four(b, k0, k1);
      low += kPhiloxWeyl0;
      high += kPhiloxWeyl1;
    }
    store_four(a, words + 4 * i);
    store_four(b, words + 4 * i + 16);
  }
}

// The same with eight counters.
struct Eight {
  __m512i c[4];
};

TESSERA_INLINE_AVX512 Eight load_eight(uint64_t first, CounterTail tail) {
  const __m512i number = _mm512_add_epi64(
      _mm512_set1_epi64(static_cast<int64_t>(first)),
      _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
  return {
      {number, _mm512_srli_epi64(number, 32), _mm512_set1_epi64(tail.part),
       _mm512_set1_epi64(tail.scheme)}};
}

TESSERA_INLINE_AVX512 void round_of_eight(Eight& f, __m512i low, __m512i high) {
  constexpr int kXor = 0x96;  // of all three
  const __m512i m0 = _mm512_set1_epi64(kPhiloxMultiplier0);
  const __m512i m1 = _mm512_set1_epi64(kPhiloxMultiplier1);
  const __m512i a = _mm512_mul_epu32(f.c[0], m0);
  const __m512i b = _mm512_mul_epu32(f.c[2], m1);
  f.c[0] =
      _mm512_ternarylogic_epi64(_mm512_srli_epi64(b, 32), f.c[1], low, kXor);
  f.c[1] = b;
  f.c[2] =
      _mm512_ternarylogic_epi64(_mm512_srli_epi64(a, 32), f.c[3], high, kXor);
  f.c[3] = a;
}

// Puts the low halves of `high` into the high halves of `low`.
TESSERA_INLINE_AVX512 __m512i joined_words(__m512i low, __m512i high) {
  constexpr __mmask16 kHighHalves = 0xaaaa;
  return _mm512_mask_shuffle_epi32(low, kHighHalves, high, _MM_PERM_CCAA);
}

// Turns lanes into blocks: 32 words in the order of the counters.
TESSERA_INLINE_AVX512 void store_eight(const Eight& f, uint32_t* words) {
  const __m512i w01 = joined_words(f.c[0], f.c[1]);
  const __m512i w23 = joined_words(f.c[2], f.c[3]);
  const __m512i first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
  const __m512i last = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
  _mm512_storeu_si512(words, _mm512_permutex2var_epi64(w01, first, w23));
  _mm512_storeu_si512(words + 16, _mm512_permutex2var_epi64(w01, last, w23));
}

TESSERA_AVX512 void blocks_by_sixteen(
    PhiloxKey key, CounterTail tail, uint64_t first, int64_t count,
    uint32_t* words) {
  for (int64_t i = 0; i < count; i += 16) {
    Eight a = load_eight(first + static_cast<uint64_t>(i), tail);
    Eight b = load_eight(first + static_cast<uint64_t>(i) + 8, tail);
    uint32_t low = key.low;
    uint32_t high = key.high;
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const __m512i k0 = _mm512_set1_epi64(low);
      const __m512i k1 = _mm512_set1_epi64(high);
      round_of_eight(a, k0, k1);
      round_of_eight(b, k0, k1);
      low += kPhiloxWeyl0;
      high += kPhiloxWeyl1;
    }
    store_eight(a, words + 4 * i);
    store_eight(b, words + 4 * i + 32);
  }
}

#endif

}  // namespace

PhiloxKey key_of(const RandomOffset& offset) {
  // Philox mixes the three; that its outputs are 64 bits here only means that
  // two draws share their numbers with a chance of 2^-64.
  const PhiloxBlock mixed = philox(
      {static_cast<uint32_t>(offset.operation),
       static_cast<uint32_t>(offset.operation >> 32),
       static_cast<uint32_t>(offset.stream),
       static_cast<uint32_t>(offset.stream >> 32)},
      {static_cast<uint32_t>(offset.seed),
       static_cast<uint32_t>(offset.seed >> 32)});
  return {mixed[0], mixed[1]};
}

void philox_blocks(
    PhiloxKey key, CounterTail tail, uint64_t first, int64_t count,
    uint32_t* words, [[maybe_unused]] VectorWidth width) {
  int64_t done = 0;
#ifdef TESSERA_WITH_AVX
  if (width == VectorWidth::kAvx512) {
    done = count / 16 * 16;
    blocks_by_sixteen(key, tail, first, done, words);
  } else if (width == VectorWidth::kAvx2) {
    done = count / 8 * 8;
    blocks_by_eight(key, tail, first, done, words);
  }
#endif
  blocks_one_by_one(
      key, tail, first + static_cast<uint64_t>(done), count - done,
      words + 4 * done);
}

}  // namespace tessera::detail::inline tensor_layer
