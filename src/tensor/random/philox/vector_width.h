// How wide the vector instructions are that a loop over random numbers uses.
//
// Note [Loops of several widths]
// The library is compiled for every host of its architecture, and chooses as it
// runs: a loop is a struct with run(), which run_loop() holds once per width.
// No width has a fused multiply-add (src/CMakeLists.txt), and the loops call
// nothing but vector_math.h, so all widths give the same bits.
#pragma once

#include <cstdint>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define TESSERA_WITH_AVX 1
#define TESSERA_AVX2 __attribute__((target("avx2")))
#define TESSERA_AVX512 __attribute__((target("avx512f,avx512dq,avx512vl")))
#endif

namespace tessera::detail::inline tensor_layer {

enum class VectorWidth : uint8_t { kAny, kAvx2, kAvx512 };

/// Returns the widest that this host has.
inline VectorWidth widest_vectors() {
#ifdef TESSERA_WITH_AVX
  static const VectorWidth widest = [] {
    if (__builtin_cpu_supports("avx512f") != 0 &&
        __builtin_cpu_supports("avx512dq") != 0 &&
        __builtin_cpu_supports("avx512vl") != 0) {
      return VectorWidth::kAvx512;
    }
    return __builtin_cpu_supports("avx2") != 0 ? VectorWidth::kAvx2
                                               : VectorWidth::kAny;
  }();
  return widest;
#else
  return VectorWidth::kAny;
#endif
}

#ifdef TESSERA_WITH_AVX
template <class Loop, class... Arguments>
TESSERA_AVX2 void run_with_avx2(Arguments... arguments) {
  Loop::run(arguments...);
}
template <class Loop, class... Arguments>
TESSERA_AVX512 void run_with_avx512(Arguments... arguments) {
  Loop::run(arguments...);
}
#endif

/// Runs a loop, whose run() is always inlined, with vectors of a width that the
/// host has.
template <class Loop, class... Arguments>
void run_loop(VectorWidth width, Arguments... arguments) {
#ifdef TESSERA_WITH_AVX
  if (width == VectorWidth::kAvx512) {
    return run_with_avx512<Loop>(arguments...);
  }
  if (width == VectorWidth::kAvx2) {
    return run_with_avx2<Loop>(arguments...);
  }
#endif
  Loop::run(arguments...);
}

}  // namespace tessera::detail::inline tensor_layer
