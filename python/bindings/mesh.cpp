// Device meshes.
#include <memory>
#include <variant>

#include <tessera/comm/device_mesh.h>

#include "bindings.h"
#include "guard.h"

namespace tessera::python {
namespace {

using Names = std::vector<std::string>;
using Dim = std::variant<int64_t, std::string>;

DeviceMesh sub_mesh(const DeviceMesh& self, py::object key) {
  if (py::isinstance<py::str>(key)) {
    return self[key.cast<std::string>()];
  }
  return self.slice(key.cast<Names>());
}

void bind_views(py::class_<DeviceMesh>& mesh) {
  mesh.def("__getitem__", &sub_mesh, py::arg("dims"))
      .def("slice", &DeviceMesh::slice, py::arg("dims"))
      .def(
          "flatten", &DeviceMesh::flatten, py::arg("dims"),
          py::arg("name") = "")
      .def(
          "unflatten",
          py::overload_cast<int64_t, const std::vector<int64_t>&, const Names&>(
              &DeviceMesh::unflatten, py::const_),
          py::arg("dim"), py::arg("sizes"), py::arg("names") = Names())
      .def(
          "unflatten",
          py::overload_cast<
              const std::string&, const std::vector<int64_t>&, const Names&>(
              &DeviceMesh::unflatten, py::const_),
          py::arg("dim"), py::arg("sizes"), py::arg("names") = Names())
      .def_static("concatenate", &DeviceMesh::concatenate, py::arg("meshes"))
      .def_static(
          "from_group",
          [](const std::vector<Communicator>& groups, DeviceTypeArg device,
             const std::optional<at::Tensor>& ranks, const Names& names) {
            return DeviceMesh::from_group(
                groups, device.value, ranks.value_or(at::Tensor()), names);
          },
          py::arg("groups"), py::arg("device_type"),
          py::arg("ranks") = py::none(), py::arg("dim_names") = Names());
}

void bind_groups(py::class_<DeviceMesh>& mesh) {
  mesh.def(
          "communicator",
          [](const DeviceMesh& self, const std::optional<Dim>& dim) {
            if (!dim) {
              return self.communicator();
            }
            return std::visit(
                [&](const auto& d) { return self.communicator(d); }, *dim);
          },
          py::arg("dim") = py::none(), NoGil())
      .def(
          "communicator_over", &DeviceMesh::communicator_over, py::arg("dims"),
          NoGil())
      .def("whole", &DeviceMesh::whole, NoGil())
      .def("world", &DeviceMesh::world);
}

void bind_questions(py::class_<DeviceMesh>& mesh) {
  mesh.def(
          "size",
          [](const DeviceMesh& self, std::optional<Dim> dim) {
            if (!dim) {
              return self.size();
            }
            if (const auto* name = std::get_if<std::string>(&*dim)) {
              return self.size(self.mesh_shape().dim_of(*name));
            }
            return self.size(std::get<int64_t>(*dim));
          },
          py::arg("dim") = py::none())
      .def_property_readonly("ndim", &DeviceMesh::ndim)
      .def_property_readonly(
          "shape",
          [](const DeviceMesh& self) {
            return py::tuple(py::cast(self.shape()));
          })
      .def_property_readonly(
          "dim_names",
          [](const DeviceMesh& self) {
            return py::tuple(py::cast(self.dim_names()));
          })
      .def_property_readonly(
          "device_type",
          [](const DeviceMesh& self) {
            return c10::DeviceTypeName(self.device_type(), /*lower_case=*/true);
          })
      .def_property_readonly("ranks", &DeviceMesh::ranks)
      .def_property_readonly("coordinate", &DeviceMesh::coordinate)
      .def(
          "local_rank",
          [](const DeviceMesh& self, const std::optional<Dim>& dim) {
            if (!dim) {
              return self.local_rank();
            }
            return std::visit(
                [&](const auto& d) { return self.local_rank(d); }, *dim);
          },
          py::arg("dim") = py::none())
      .def("rank", [](const DeviceMesh& self) { return self.world().rank(); })
      .def("__repr__", [](const DeviceMesh& self) { return to_string(self); })
      .def("__hash__", &DeviceMesh::hash)
      .def("__eq__", [](const DeviceMesh& a, py::object b) {
        return py::isinstance<DeviceMesh>(b) &&
               a == b.cast<const DeviceMesh&>();
      });
}

}  // namespace

void bind_mesh(py::module_& module) {
  py::class_<DeviceMesh> mesh(module, "DeviceMesh", R"doc(
An n-d arrangement of ranks of this rank's world, with a communicator per dim.

>>> mesh = tessera.DeviceMesh("cpu", torch.tensor([[0]]), ["dp", "tp"])
>>> mesh.shape, mesh.coordinate, mesh["tp"].shape
((1, 1), [0, 0], (1,)))doc");
  mesh.def(
      py::init([](DeviceTypeArg device, py::object ranks, const Names& names) {
        const py::object tensor =
            py::module_::import("torch").attr("as_tensor")(ranks);
        return DeviceMesh(device.value, tensor.cast<at::Tensor>(), names);
      }),
      py::arg("device_type"), py::arg("ranks"), py::arg("dim_names") = Names());
  bind_questions(mesh);
  bind_views(mesh);
  bind_groups(mesh);
  module.def(
      "init_device_mesh",
      [](DeviceTypeArg device, const std::vector<int64_t>& shape,
         const Names& names) {
        return init_device_mesh(device.value, shape, names);
      },
      py::arg("device_type"), py::arg("shape"), py::arg("dim_names") = Names(),
      NoGil(), R"doc(
Arranges ranks 0 to product(shape) - 1 row-major.

>>> tessera.init_device_mesh("cpu", (1, 1), ("dp", "tp"))
mesh(dp=1, tp=1))doc");
  module.def("current_mesh", &current_mesh, R"doc(
Returns the mesh of the innermost MeshGuard.

>>> with tessera.MeshGuard(mesh):
...     tessera.current_mesh() == mesh
True)doc");
  bind_guard<MeshGuard, DeviceMesh>(module, "MeshGuard", R"doc(
Makes a mesh the current one of this thread inside `with`; calls that name no mesh
use it.

>>> with tessera.MeshGuard(mesh):
...     x = tessera.distribute_tensor(torch.ones(2)))doc")
      .def(py::init<DeviceMesh>(), py::arg("mesh"));
}

}  // namespace tessera::python
