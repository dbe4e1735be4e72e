// Copies of more than a cache holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <base/copy_bytes.h>

namespace tessera::base {

/// Results of at least this many bytes leave the cache before they are read
/// again, so writing them past it spares reading their lines first: 64 MiB from
/// 16 MiB take half the time of memcpy.
inline constexpr int64_t kStreamBytes = int64_t{2} << 20;

/// Copies like memcpy, past the cache where the machine can. Call
/// stream_fence() before another thread reads the result.
inline void stream_copy(void* to, const void* from, size_t bytes) {
#if defined(__SSE2__)
  constexpr size_t kLine = 64;
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  const size_t head =
      (kLine - reinterpret_cast<uintptr_t>(out) % kLine) % kLine;
  if (bytes < head + kLine) {
    copy_bytes(out, in, bytes);
    return;
  }
  std::memcpy(out, in, head);
  const size_t lines = (bytes - head) / kLine;
  for (size_t i = 0; i < lines; ++i) {
    const auto* source =
        reinterpret_cast<const __m128i*>(in + head + i * kLine);
    auto* target = reinterpret_cast<__m128i*>(out + head + i * kLine);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  const size_t done = head + lines * kLine;
  std::memcpy(out + done, in + done, bytes - done);
#else
  copy_bytes(to, from, bytes);
#endif
}

/// Orders streamed writes before what follows.
inline void stream_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace tessera::base
