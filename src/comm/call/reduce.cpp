#include "comm/call/reduce.h"

#include <algorithm>
#include <type_traits>

#include <c10/util/Exception.h>
#include <c10/util/complex.h>

#include "base/copy_bytes.h"
#include "base/stream_copy.h"

namespace tessera::detail::inline comm_layer {
namespace {

// Elements handled at a time: the running result stays in the first-level
// cache while the inputs stream past it.
constexpr int64_t kBlock = 1024;

template <typename T>
struct IsComplex : std::false_type {
  using Real = T;
};
template <typename T>
struct IsComplex<c10::complex<T>> : std::true_type {
  using Real = T;
};

// The type in which T is accumulated.
template <typename T>
struct Accumulate {
  using type = std::conditional_t<
      std::is_arithmetic_v<T> || IsComplex<T>::value, T, float>;
};
template <>
struct Accumulate<c10::complex<c10::Half>> {
  using type = c10::complex<float>;
};

// Integers wrap around, which only unsigned arithmetic may do.
template <typename T>
constexpr bool kWraps = std::is_integral_v<T> && !std::is_same_v<T, bool>;

struct Sum {
  template <typename T>
  static T combine(T a, T b) {
    if constexpr (std::is_same_v<T, bool>) {
      return a || b;
    } else if constexpr (kWraps<T>) {
      return static_cast<T>(
          static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    } else {
      return a + b;
    }
  }
};

struct Product {
  template <typename T>
  static T combine(T a, T b) {
    if constexpr (std::is_same_v<T, bool>) {
      return a && b;
    } else if constexpr (kWraps<T>) {
      return static_cast<T>(
          static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    } else {
      return a * b;
    }
  }
};

// A NaN on either side is the result: `a != a` keeps a left one, and every
// comparison with a right one is false.
struct Max {
  template <typename T>
  static T combine(T a, T b) {
    return a != a || a > b ? a : b;
  }
};

struct Min {
  template <typename T>
  static T combine(T a, T b) {
    return a != a || a < b ? a : b;
  }
};

// Writes a block of results to every output.
template <typename T, typename A>
void store(
    const A* block, int64_t length, const std::vector<void*>& outputs,
    int64_t begin, bool streams) {
  const void* result = block;
  T rounded[kBlock];
  if constexpr (!std::is_same_v<T, A>) {
    std::transform(
        block, block + length, rounded, [](A x) { return static_cast<T>(x); });
    result = rounded;
  }
  const size_t bytes = sizeof(T) * static_cast<size_t>(length);
  for (void* output : outputs) {
    T* to = static_cast<T*>(output) + begin;
    streams ? base::stream_copy(to, result, bytes)
            : base::copy_bytes(to, result, bytes);
  }
}

template <typename T, typename Op>
void reduce(
    const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
    int64_t numel, bool average) {
  using A = typename Accumulate<T>::type;
  const bool streams =
      numel * static_cast<int64_t>(sizeof(T) * outputs.size()) >=
      base::kStreamBytes;
  A block[kBlock];
  for (int64_t begin = 0; begin < numel; begin += kBlock) {
    const int64_t length = std::min(kBlock, numel - begin);
    const T* first = static_cast<const T*>(inputs[0]) + begin;
    std::transform(
        first, first + length, block, [](T x) { return static_cast<A>(x); });
    for (size_t r = 1; r < inputs.size(); ++r) {
      const T* next = static_cast<const T*>(inputs[r]) + begin;
      for (int64_t i = 0; i < length; ++i) {
        block[i] = Op::combine(block[i], static_cast<A>(next[i]));
      }
    }
    if constexpr (!std::is_integral_v<A>) {
      if (average) {
        const auto count =
            static_cast<typename IsComplex<A>::Real>(inputs.size());
        for (int64_t i = 0; i < length; ++i) {
          block[i] = block[i] / count;
        }
      }
    }
    store<T>(block, length, outputs, begin, streams);
  }
  if (streams) {
    base::stream_fence();
  }
}

template <typename T>
void reduce(
    const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
    int64_t numel, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return reduce<T, Sum>(inputs, outputs, numel, op == ReduceOp::kAvg);
    case ReduceOp::kProduct:
      return reduce<T, Product>(inputs, outputs, numel, false);
    case ReduceOp::kMax:
    case ReduceOp::kMin:
      if constexpr (!IsComplex<T>::value) {
        return op == ReduceOp::kMax
                   ? reduce<T, Max>(inputs, outputs, numel, false)
                   : reduce<T, Min>(inputs, outputs, numel, false);
      }
      break;
  }
  TORCH_INTERNAL_ASSERT(false, "no reduction for this dtype");
}

template <typename Function>
bool visit_arithmetic(c10::ScalarType dtype, const Function& function) {
#define TESSERA_CASE(type, name)           \
  if (dtype == c10::ScalarType::name) {    \
    function(static_cast<type*>(nullptr)); \
    return true;                           \
  }
  AT_FORALL_SCALAR_TYPES_WITH_COMPLEX(TESSERA_CASE)
  TESSERA_CASE(uint16_t, UInt16)
  TESSERA_CASE(uint32_t, UInt32)
  TESSERA_CASE(uint64_t, UInt64)
#undef TESSERA_CASE
  return false;
}

}  // namespace

void reduce_on_host(
    const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
    int64_t numel, c10::ScalarType dtype, ReduceOp op) {
  const bool known = visit_arithmetic(dtype, [&](auto* type) {
    reduce<std::remove_pointer_t<decltype(type)>>(inputs, outputs, numel, op);
  });
  TORCH_INTERNAL_ASSERT(known, "dtype without arithmetic reached a reduction");
}

c10::ScalarType accumulate_dtype(c10::ScalarType dtype) {
  if (dtype == c10::kHalf || dtype == c10::kBFloat16 ||
      c10::isFloat8Type(dtype)) {
    return c10::kFloat;
  }
  return dtype == c10::kComplexHalf ? c10::kComplexFloat : dtype;
}

bool has_arithmetic(c10::ScalarType dtype) {
  return visit_arithmetic(dtype, [](auto*) {});
}

}  // namespace tessera::detail::inline comm_layer
