// Combining hashes of the parts of a value, and of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace tessera::base {

/// Mixes the hash of one more part into `seed`; the order of parts counts.
inline size_t hash_combine(size_t seed, size_t part) {
  // The finaliser of a 64-bit multiply-xorshift mixer: every bit of either
  // argument reaches the high and the low bits.
  uint64_t x = seed * 0x9e3779b97f4a7c15ULL + part;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ULL;
  return static_cast<size_t>(x ^ (x >> 32));
}

/// Mixes in the length and the elements of a list.
template <typename T>
size_t hash_combine(size_t seed, const std::vector<T>& parts) {
  seed = hash_combine(seed, parts.size());
  for (const T& part : parts) {
    seed = hash_combine(seed, std::hash<T>{}(part));
  }
  return seed;
}

/// Hashes bytes by FNV-1a: equal in every build and version. Pass the result of
/// an earlier call to go on with more bytes.
inline uint64_t hash_bytes(
    std::string_view bytes, uint64_t hash = 0xcbf29ce484222325) {
  for (const char c : bytes) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

}  // namespace tessera::base
