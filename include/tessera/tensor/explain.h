// explain(): what a call would communicate, without communicating.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <tessera/comm/device_mesh.h>
#include <tessera/export.h>
#include <tessera/layout/placement.h>
#include <tessera/tensor/dtensor.h>

namespace tessera {

namespace detail::inline tensor_layer {

TESSERA_API std::string explain_call(
    const std::string& call, std::vector<c10::IValue> arguments);

template <class T>
c10::IValue as_argument(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value;
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    return static_cast<int64_t>(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<double>(value);
  } else {
    return c10::IValue(value);
  }
}

}  // namespace detail::inline tensor_layer

/// Says how a call of an operator would run: on the shards, on whole values or
/// in a way of its own; what would move, by which steps, with how many bytes on
/// this rank; and the layouts of the results. Nothing moves and no element is
/// computed. Arguments stand in the order of the schema, and those with a
/// default may be left out, as may the overload where the arguments tell it.
/// A call that ATen decomposes is explained call by call, as far as no value
/// decides.
/// Example: explain("aten::add.Tensor", a, b), explain("mm", a, b).
template <class... Arguments>
std::string explain(const std::string& call, const Arguments&... arguments) {
  return detail::explain_call(call, {detail::as_argument(arguments)...});
}

/// Says how redistribute(tensor, placements) would run: steps, bytes on this
/// rank, cost, peak memory. Example: explain("redistribute", t, {Shard(1)}).
TESSERA_API std::string explain(
    const std::string& call, const at::Tensor& tensor,
    const Placements& placements, const RedistributeOptions& options = {});
/// The same for a target on another mesh.
TESSERA_API std::string explain(
    const std::string& call, const at::Tensor& tensor, const DeviceMesh& mesh,
    const Placements& placements, const RedistributeOptions& options = {});

}  // namespace tessera
