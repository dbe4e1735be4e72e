// What the files of the Python module share: one function per part of the API,
// and how Python's values become arguments.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/ivalue.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <tessera/layout/mesh_shape.h>
#include <tessera/layout/placement.h>
#include <torch/csrc/utils/pybind.h>

namespace tessera::python {

namespace py = pybind11;

/// Lets other ranks that are threads run Python while this one waits.
using NoGil = py::call_guard<py::gil_scoped_release>;

void bind_layout(py::module_& module);
void bind_world(py::module_& module);
void bind_ranks(py::module_& module);
void bind_communicator(py::module_& module);
void bind_mesh(py::module_& module);
void bind_tensor(py::module_& module);
void bind_movement(py::module_& module);
void bind_factories(py::module_& module);
void bind_random(py::module_& module);
void bind_modes(py::module_& module);
void bind_explain(py::module_& module);
void bind_comm_log(py::module_& module);
void bind_indexing(py::module_& module);
void bind_rules(py::module_& module);
void bind_visualize(py::module_& module);
void bind_checkpoint(py::module_& module);
void bind_training(py::module_& module);
void bind_parallel(py::module_& module);
void bind_fully_shard(py::module_& module);
void bind_plan(py::module_& module);
void bind_sharded_tensor(py::module_& module);

/// A list of placements, one placement, or the notation: "S(0) R".
struct PlacementsArg {
  Placements value;
};
/// A mesh, or its shape in the notation: "mesh(dp=2, tp=4)", "2x4".
struct MeshShapeArg {
  MeshShape value;
};
/// "cpu", "cuda", or a torch.device.
struct DeviceTypeArg {
  c10::DeviceType value = c10::DeviceType::CPU;
};
/// A bool, int, float or complex.
struct ScalarArg {
  c10::Scalar value;
};
/// "sum", "avg", "max", "min" or "product".
struct ReduceOpArg {
  ReduceOp value = ReduceOp::kSum;
};

Placements placements_from(py::handle object);
MeshShape mesh_shape_from(py::handle object);
ReduceOp reduce_op_from(const std::string& name);

/// Returns what an operator takes for a value of Python; `call` is named in
/// errors.
c10::IValue argument_from(py::handle value, const char* call);

/// Converts seconds; nothing stays nothing.
std::chrono::milliseconds milliseconds_of(double seconds);

inline std::optional<Placements> value_of(
    const std::optional<PlacementsArg>& argument) {
  return argument ? std::make_optional(argument->value) : std::nullopt;
}

}  // namespace tessera::python

namespace pybind11::detail {

template <>
struct type_caster<tessera::python::PlacementsArg> {
  PYBIND11_TYPE_CASTER(tessera::python::PlacementsArg, _("Placements"));
  bool load(handle source, bool) {
    if (source.is_none()) {
      return false;
    }
    value.value = tessera::python::placements_from(source);
    return true;
  }
};

template <>
struct type_caster<tessera::python::MeshShapeArg> {
  PYBIND11_TYPE_CASTER(tessera::python::MeshShapeArg, _("DeviceMesh | str"));
  bool load(handle source, bool) {
    value.value = tessera::python::mesh_shape_from(source);
    return true;
  }
};

template <>
struct type_caster<tessera::python::DeviceTypeArg> {
  PYBIND11_TYPE_CASTER(tessera::python::DeviceTypeArg, _("str | torch.device"));
  bool load(handle source, bool) {
    if (isinstance<str>(source)) {
      value.value = c10::Device(source.cast<std::string>()).type();
      return true;
    }
    make_caster<c10::Device> device;
    if (!device.load(source, true)) {
      return false;
    }
    value.value = cast_op<c10::Device>(device).type();
    return true;
  }
};

template <>
struct type_caster<tessera::python::ScalarArg> {
  PYBIND11_TYPE_CASTER(tessera::python::ScalarArg, _("Number"));
  bool load(handle source, bool) {
    if (isinstance<bool_>(source)) {
      value.value = source.cast<bool>();
    } else if (isinstance<int_>(source)) {
      value.value = source.cast<int64_t>();
    } else if (isinstance<float_>(source)) {
      value.value = source.cast<double>();
    } else if (PyComplex_Check(source.ptr())) {
      value.value = source.cast<c10::complex<double>>();
    } else {
      return false;
    }
    return true;
  }
};

template <>
struct type_caster<tessera::python::ReduceOpArg> {
  PYBIND11_TYPE_CASTER(tessera::python::ReduceOpArg, _("str"));
  bool load(handle source, bool) {
    if (!isinstance<str>(source)) {
      return false;
    }
    value.value = tessera::python::reduce_op_from(source.cast<std::string>());
    return true;
  }
};

}  // namespace pybind11::detail
