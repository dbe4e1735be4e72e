#include <io/checksum/crc32.h>

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tessera::detail::inline io_layer {

namespace {

constexpr uint32_t kPolynomial = 0xedb88320;  // bit 31 is x^0

using Table = std::array<std::array<uint32_t, 256>, 16>;

// tables[k][b]: what byte b does to the CRC when k bytes follow it.
constexpr Table make_tables() {
  Table tables = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    }
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < 16; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t crc = tables[k - 1][byte];
      tables[k][byte] = (crc >> 8) ^ tables[0][crc & 255];
    }
  }
  return tables;
}

constexpr Table kTables = make_tables();

// What four bytes do to the CRC when `after` bytes follow them.
inline uint32_t slice(uint32_t bytes, size_t after) {
  return kTables[after + 3][bytes & 255] ^
         kTables[after + 2][(bytes >> 8) & 255] ^
         kTables[after + 1][(bytes >> 16) & 255] ^ kTables[after][bytes >> 24];
}

// Goes on with the register itself, not inverted; 16 bytes at a time.
uint32_t update_by_tables(uint32_t crc, const uint8_t* bytes, size_t size) {
  for (; size >= 16; bytes += 16, size -= 16) {
    uint32_t words[4];
    std::memcpy(words, bytes, sizeof(words));
    crc = slice(words[0] ^ crc, 12) ^ slice(words[1], 8) ^ slice(words[2], 4) ^
          slice(words[3], 0);
  }
  for (; size > 0; ++bytes, --size) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ *bytes) & 255];
  }
  return crc;
}

#if defined(__x86_64__)

// Multiplies both halves of 128 bits by powers of x that move them `distance`
// bits on, modulo the polynomial, and adds what stands there.
__attribute__((target("pclmul,sse4.1"))) inline __m128i fold(
    __m128i value, __m128i distance, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(value, distance, 0x00);
  const __m128i high = _mm_clmulepi64_si128(value, distance, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// Folds four lanes of 16 bytes over the text, then the lanes into one, whose
// CRC (by tables, from 0) is that of all of it. Needs 64 bytes and more; leaves
// the last size % 16.
__attribute__((target("pclmul,sse4.1"))) uint32_t update_by_folding(
    uint32_t crc, const uint8_t* bytes, size_t size) {
  // x^(512+64) and x^512, x^(128+64) and x^128, reflected, times x^-32.
  const __m128i by_64 = _mm_set_epi64x(0x00000001c6e41596, 0x0000000154442bd4);
  const __m128i by_16 = _mm_set_epi64x(0x00000000ccaa009e, 0x00000001751997d0);
  const auto load = [&](size_t lane) __attribute__((target("sse4.1"))) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 16 * lane));
  };
  __m128i a = _mm_xor_si128(load(0), _mm_cvtsi32_si128(static_cast<int>(crc)));
  __m128i b = load(1), c = load(2), d = load(3);
  for (bytes += 64, size -= 64; size >= 64; bytes += 64, size -= 64) {
    a = fold(a, by_64, load(0));
    b = fold(b, by_64, load(1));
    c = fold(c, by_64, load(2));
    d = fold(d, by_64, load(3));
  }
  a = fold(fold(fold(a, by_16, b), by_16, c), by_16, d);
  for (; size >= 16; bytes += 16, size -= 16) {
    a = fold(a, by_16, load(0));
  }
  alignas(16) uint8_t rest[16];
  _mm_store_si128(reinterpret_cast<__m128i*>(rest), a);
  return update_by_tables(update_by_tables(0, rest, 16), bytes, size);
}

bool can_fold() {
  static const bool can = __builtin_cpu_supports("pclmul") != 0 &&
                          __builtin_cpu_supports("sse4.1") != 0;
  return can;
}

#endif

// The product of two polynomials modulo the CRC's; bit 31 is x^0.
uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = 0x80000000; bit != 0; bit >>= 1) {
    product ^= (a & bit) != 0 ? b : 0;
    b = (b >> 1) ^ ((b & 1) != 0 ? kPolynomial : 0);
  }
  return product;
}

// x^(8 * bytes) modulo the CRC's polynomial.
uint32_t power_of_bytes(uint64_t bytes) {
  uint32_t power = 0x80000000;   // x^0
  uint32_t square = 0x00800000;  // x^8
  for (; bytes != 0; bytes >>= 1) {
    power = (bytes & 1) != 0 ? multiply(power, square) : power;
    square = multiply(square, square);
  }
  return power;
}

}  // namespace

uint32_t crc32_by_tables(const void* bytes, size_t size, uint32_t before) {
  return ~update_by_tables(~before, static_cast<const uint8_t*>(bytes), size);
}

uint32_t crc32(const void* bytes, size_t size, uint32_t before) {
#if defined(__x86_64__)
  if (size >= 64 && can_fold()) {
    return ~update_by_folding(
        ~before, static_cast<const uint8_t*>(bytes), size);
  }
#endif
  return crc32_by_tables(bytes, size, before);
}

uint32_t combine_crc32(uint32_t first, uint32_t second, uint64_t second_size) {
  return multiply(power_of_bytes(second_size), first) ^ second;
}

}  // namespace tessera::detail::inline io_layer
