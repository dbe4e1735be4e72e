#include <checkpoint/dtype.h>

#include <array>
#include <utility>

#include <c10/util/Exception.h>

namespace tessera::detail::inline checkpoint_layer {

namespace {

using Torch = c10::ScalarType;
constexpr std::array<std::pair<io::Dtype, Torch>, 22> kTypes = {{
    {io::Dtype::kBool, Torch::Bool},
    {io::Dtype::kUInt8, Torch::Byte},
    {io::Dtype::kInt8, Torch::Char},
    {io::Dtype::kUInt16, Torch::UInt16},
    {io::Dtype::kInt16, Torch::Short},
    {io::Dtype::kUInt32, Torch::UInt32},
    {io::Dtype::kInt32, Torch::Int},
    {io::Dtype::kUInt64, Torch::UInt64},
    {io::Dtype::kInt64, Torch::Long},
    {io::Dtype::kFloat16, Torch::Half},
    {io::Dtype::kBFloat16, Torch::BFloat16},
    {io::Dtype::kFloat32, Torch::Float},
    {io::Dtype::kFloat64, Torch::Double},
    {io::Dtype::kComplex32, Torch::ComplexHalf},
    {io::Dtype::kComplex64, Torch::ComplexFloat},
    {io::Dtype::kComplex128, Torch::ComplexDouble},
    {io::Dtype::kFloat8E4M3FN, Torch::Float8_e4m3fn},
    {io::Dtype::kFloat8E4M3FNUZ, Torch::Float8_e4m3fnuz},
    {io::Dtype::kFloat8E5M2, Torch::Float8_e5m2},
    {io::Dtype::kFloat8E5M2FNUZ, Torch::Float8_e5m2fnuz},
    {io::Dtype::kFloat8E8M0FNU, Torch::Float8_e8m0fnu},
    {io::Dtype::kFloat4E2M1FNX2, Torch::Float4_e2m1fn_x2},
}};

}  // namespace

io::Dtype to_io(const std::string& what, Torch dtype) {
  for (const auto& [of_file, of_torch] : kTypes) {
    if (of_torch == dtype) {
      return of_file;
    }
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, what, ": no checkpoint format has the dtype ",
      c10::toString(dtype), "; convert the tensor first");
}

Torch from_io(io::Dtype dtype) {
  for (const auto& [of_file, of_torch] : kTypes) {
    if (of_file == dtype) {
      return of_torch;
    }
  }
  TORCH_INTERNAL_ASSERT(false);
}

}  // namespace tessera::detail::inline checkpoint_layer
