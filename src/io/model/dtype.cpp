#include <io/model/dtype.h>

namespace tessera::io {

namespace {

// clang-format off
constexpr DtypeInfo kDtypes[] = {
  {Dtype::kBool,           "bool",             1, "BOOL", "BoolStorage"},
  {Dtype::kUInt8,          "uint8",            1, "U8",   "ByteStorage"},
  {Dtype::kInt8,           "int8",             1, "I8",   "CharStorage"},
  {Dtype::kUInt16,         "uint16",           2, "U16",  ""},
  {Dtype::kInt16,          "int16",            2, "I16",  "ShortStorage"},
  {Dtype::kUInt32,         "uint32",           4, "U32",  ""},
  {Dtype::kInt32,          "int32",            4, "I32",  "IntStorage"},
  {Dtype::kUInt64,         "uint64",           8, "U64",  ""},
  {Dtype::kInt64,          "int64",            8, "I64",  "LongStorage"},
  {Dtype::kFloat16,        "float16",          2, "F16",  "HalfStorage"},
  {Dtype::kBFloat16,       "bfloat16",         2, "BF16", "BFloat16Storage"},
  {Dtype::kFloat32,        "float32",          4, "F32",  "FloatStorage"},
  {Dtype::kFloat64,        "float64",          8, "F64",  "DoubleStorage"},
  {Dtype::kComplex32,      "complex32",        4, "",     ""},
  {Dtype::kComplex64,      "complex64",        8, "C64",  "ComplexFloatStorage"},
  {Dtype::kComplex128,     "complex128",      16, "",     "ComplexDoubleStorage"},
  {Dtype::kFloat8E4M3FN,   "float8_e4m3fn",    1, "F8_E4M3",     ""},
  {Dtype::kFloat8E4M3FNUZ, "float8_e4m3fnuz",  1, "F8_E4M3FNUZ", ""},
  {Dtype::kFloat8E5M2,     "float8_e5m2",      1, "F8_E5M2",     ""},
  {Dtype::kFloat8E5M2FNUZ, "float8_e5m2fnuz",  1, "F8_E5M2FNUZ", ""},
  {Dtype::kFloat8E8M0FNU,  "float8_e8m0fnu",   1, "F8_E8M0",     ""},
  {Dtype::kFloat4E2M1FNX2, "float4_e2m1fn_x2", 1, "F4",          ""},
};
// clang-format on

}  // namespace

std::span<const DtypeInfo> dtypes() {
  return kDtypes;
}

const DtypeInfo& info_of(Dtype dtype) {
  return dtypes()[static_cast<size_t>(dtype)];
}

namespace {

std::optional<Dtype> find_by(
    std::string_view DtypeInfo::*member, std::string_view name) {
  for (const DtypeInfo& info : dtypes()) {
    if (!name.empty() && info.*member == name) {
      return info.dtype;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Dtype> find_dtype(std::string_view name) {
  return find_by(&DtypeInfo::name, name);
}

std::optional<Dtype> find_safetensors_dtype(std::string_view name) {
  return find_by(&DtypeInfo::safetensors, name);
}

std::optional<Dtype> find_storage_dtype(std::string_view name) {
  return find_by(&DtypeInfo::storage, name);
}

}  // namespace tessera::io
