// The types of elements that tensors of LibTorch have, by the names of PyTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace tessera::io {

enum class Dtype : uint8_t {
  kBool,
  kUInt8,
  kInt8,
  kUInt16,
  kInt16,
  kUInt32,
  kInt32,
  kUInt64,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex32,
  kComplex64,
  kComplex128,
  kFloat8E4M3FN,
  kFloat8E4M3FNUZ,
  kFloat8E5M2,
  kFloat8E5M2FNUZ,
  kFloat8E8M0FNU,
  kFloat4E2M1FNX2,  // two numbers in an element of one byte
};

/// What the formats call a type.
struct DtypeInfo {
  Dtype dtype;
  std::string_view name;         // torch's: "float32"
  int64_t bytes;                 // of an element
  std::string_view safetensors;  // "F32"; "" where that format has none
  std::string_view storage;      // torch's class "FloatStorage"; "" for none
};

/// Returns all of them, in the order of the enumeration. They are constants: a
/// save that the end of the program waits for reads them after destructors of
/// static objects have begun.
std::span<const DtypeInfo> dtypes();
const DtypeInfo& info_of(Dtype dtype);
inline int64_t element_bytes(Dtype dtype) {
  return info_of(dtype).bytes;
}
/// Finds a type by a name of one of the formats; nothing where none has it.
std::optional<Dtype> find_dtype(std::string_view name);
std::optional<Dtype> find_safetensors_dtype(std::string_view name);
std::optional<Dtype> find_storage_dtype(std::string_view name);

}  // namespace tessera::io
