// Philox 4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw
// ("Parallel random numbers: as easy as 1, 2, 3", SC 2011).
//
// Note [How an element finds its words]
// A RandomOffset has a key, mixed from seed, stream and operation. A key and a
// counter give a block of four 32-bit words. The element with linear index i
// (in the row-major order of the global shape) reads words of one block, which
// the key and i alone decide:
//
// clang-format off
//   scheme       block                   words of the block   used for
//   kNarrow      {i >> 2, part, 0}       i & 3                f32, f16, bf16, bool
//   kWide        {i >> 1, part, 1}       2 (i & 1), and next  f64, integers
//   kFullBlock   {i, part, 2 + attempt}  0 1 2 3              rejection sampling
// clang-format on
//
// A block's counter is {low 32 bits, high 32 bits of the first number, part,
// scheme}. `part` tells the draws of one operation apart.
// Example: element 6 of a narrow draw reads word 2 of counter {1, 0, 0, 0}.
#pragma once

#include <array>
#include <cstdint>

namespace tessera::detail::inline tensor_layer {

using PhiloxBlock = std::array<uint32_t, 4>;

constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53;
constexpr uint32_t kPhiloxMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9;
constexpr uint32_t kPhiloxWeyl1 = 0xBB67AE85;
constexpr int kPhiloxRounds = 10;

/// The key of a draw.
struct PhiloxKey {
  uint32_t low = 0;
  uint32_t high = 0;
};

/// Returns the block at a counter.
constexpr PhiloxBlock philox(PhiloxBlock counter, PhiloxKey key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t a = uint64_t{kPhiloxMultiplier0} * counter[0];
    const uint64_t b = uint64_t{kPhiloxMultiplier1} * counter[2];
    counter = {
        static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key.low,
        static_cast<uint32_t>(b),
        static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key.high,
        static_cast<uint32_t>(a)};
    key.low += kPhiloxWeyl0;
    key.high += kPhiloxWeyl1;
  }
  return counter;
}

/// The published vectors, checked when this is compiled.
static_assert(
    philox({0, 0, 0, 0}, {0, 0}) ==
    PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});

/// The last two words of a counter.
struct CounterTail {
  uint32_t part = 0;
  uint32_t scheme = 0;
};
constexpr uint32_t kNarrow = 0;
constexpr uint32_t kWide = 1;
constexpr uint32_t kFullBlock = 2;

/// Returns the block that `number` and `tail` name.
constexpr PhiloxBlock philox_block(
    uint64_t number, CounterTail tail, PhiloxKey key) {
  return philox(
      {static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32),
       tail.part, tail.scheme},
      key);
}

}  // namespace tessera::detail::inline tensor_layer
