// The parts of tessera.sharded_tensor, in the order in which they need each
// other.
#pragma once

#include <optional>

#include <c10/core/ScalarType.h>

#include "../bindings.h"

namespace tessera::python {

using MaybeDtype = std::optional<at::ScalarType>;

void bind_sharded_tensor_class(py::module_& family);
void bind_sharded_tensor_makers(py::module_& family);
void bind_sharded_tensor_arithmetic(py::module_& family);
void bind_sharded_tensor_ops(py::module_& family);

}  // namespace tessera::python
