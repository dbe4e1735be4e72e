// Placements, boxes and where elements live.
#include <tessera/comm/device_mesh.h>
#include <tessera/layout/box.h>
#include <tessera/layout/layout.h>
#include <tessera/layout/notation.h>

#include "bindings.h"

namespace tessera::python {

Placements placements_from(py::handle object) {
  if (py::isinstance<py::str>(object)) {
    return parse_placements(object.cast<std::string>());
  }
  if (py::isinstance<Placement>(object)) {
    return {object.cast<Placement>()};
  }
  TORCH_CHECK_TYPE(
      py::isinstance<py::sequence>(object),
      "placements: a list of placements or the notation is needed; got ",
      std::string(py::repr(object)),
      "; write [Shard(0), Replicate()] or "
      "\"S(0) R\"");
  Placements placements;
  for (const py::handle item : object) {
    TORCH_CHECK_TYPE(
        py::isinstance<Placement>(item),
        "placements: every item must be a tessera placement; got ",
        std::string(py::repr(item)),
        "; use tessera.Shard and its like, and from_torch() for a DTensor");
    placements.push_back(item.cast<Placement>());
  }
  return placements;
}

MeshShape mesh_shape_from(py::handle object) {
  if (py::isinstance<py::str>(object)) {
    return parse_mesh(object.cast<std::string>());
  }
  TORCH_CHECK_TYPE(
      py::isinstance<DeviceMesh>(object),
      "mesh: a DeviceMesh or the notation is needed; got ",
      std::string(py::repr(object)), "; write \"mesh(dp=2, tp=4)\" or \"2x4\"");
  return object.cast<const DeviceMesh&>().mesh_shape();
}

ReduceOp reduce_op_from(const std::string& name) {
  return parse_placement("P(" + name + ")").reduce_op();
}

namespace {

void bind_placement(py::module_& module) {
  py::class_<Placement>(module, "Placement", R"doc(
What one mesh dim does to a tensor; made by Shard, Replicate and their like.

>>> tessera.Shard(0).is_shard(), str(tessera.Partial("max"))
(True, 'P(max)'))doc")
      .def("is_replicate", &Placement::is_replicate)
      .def("is_partial", &Placement::is_partial)
      .def(
          "is_shard",
          [](const Placement& self, std::optional<int64_t> dim) {
            return dim ? self.is_shard(*dim) : self.is_shard();
          },
          py::arg("dim") = py::none())
      .def_property_readonly("dim", &Placement::dim)
      .def_property_readonly("split_factor", &Placement::split_factor)
      .def_property_readonly("sizes", &Placement::sizes)
      .def_property_readonly("order", &Placement::order)
      .def_property_readonly(
          "reduce_op",
          [](const Placement& self) { return to_string(self.reduce_op()); })
      .def_property_readonly(
          "kind", [](const Placement& self) { return to_string(self.kind()); })
      .def("is_plain_shard", &Placement::is_plain_shard)
      .def("is_chunked", &Placement::is_chunked)
      .def("is_contiguous", &Placement::is_contiguous)
      .def("fits_any_size", &Placement::fits_any_size)
      .def("depends_on_others", &Placement::depends_on_others)
      .def("with_order", &Placement::with_order, py::arg("order"))
      .def("with_dim", &Placement::with_dim, py::arg("dim"))
      .def("__repr__", [](const Placement& self) { return to_string(self); })
      .def(
          "__eq__",
          [](const Placement& a, py::object b) {
            return py::isinstance<Placement>(b) && a == b.cast<Placement>();
          })
      .def("__hash__", [](const Placement& self) { return hash_value(self); })
      .def(py::pickle(
          [](const Placement& self) { return to_string(self); },
          [](const std::string& text) { return parse_placement(text); }));
}

void bind_placement_makers(py::module_& module) {
  module.def("Shard", &Shard, py::arg("dim"), R"doc(
Cuts a tensor dim into ceil chunks: size 10 over 4 gives 3 3 3 1.

>>> tessera.Shard(0)
S(0))doc");
  module.def("Replicate", &Replicate, R"doc(
Holds the whole tensor on every coordinate.

>>> tessera.Replicate()
R)doc");
  module.def(
      "Partial", [](ReduceOpArg op) { return Partial(op.value); },
      py::arg("reduce_op") = "sum", R"doc(
Holds one addend on every coordinate; "sum", "avg", "max", "min" or "product"
combines them.

>>> tessera.Partial()
P(sum))doc");
  module.def(
      "StridedShard", &StridedShard, py::arg("dim"), py::arg("split_factor"),
      R"doc(
Cuts a dim into `split_factor` pieces and each piece into one part per coordinate.

>>> tessera.StridedShard(0, 2)
SS(0,2))doc");
  module.def(
      "RaggedShard", &RaggedShard, py::arg("dim"), py::arg("sizes"), R"doc(
Cuts a dim into runs of the given lengths, one per coordinate; zero is allowed.

>>> tessera.RaggedShard(0, [3, 0, 5])
RS(0,[3,0,5]))doc");
  module.def(
      "parse_placements",
      [](const std::string& text) { return parse_placements(text); },
      py::arg("text"), R"doc(
Parses placements as they are printed.

>>> tessera.parse_placements("S(0) P(max)")
[S(0), P(max)])doc");
}

void bind_geometry(py::module_& module) {
  py::class_<Box>(module, "Box", R"doc(
The region offsets[d] .. offsets[d] + sizes[d] of every dim.

>>> tessera.Box([0, 8], [4, 8])
[0:4, 8:16])doc")
      .def(
          py::init(
              [](std::vector<int64_t> offsets, std::vector<int64_t> sizes) {
                return Box{std::move(offsets), std::move(sizes)};
              }),
          py::arg("offsets"), py::arg("sizes"))
      .def_readonly("offsets", &Box::offsets)
      .def_readonly("sizes", &Box::sizes)
      .def_property_readonly("ndim", &Box::ndim)
      .def("numel", &Box::numel)
      .def("empty", &Box::empty)
      .def("contains", &Box::contains, py::arg("index"))
      .def("__repr__", [](const Box& self) { return to_string(self); })
      .def("__eq__", [](const Box& a, py::object b) {
        return py::isinstance<Box>(b) && a == b.cast<Box>();
      });
  module.def(
      "local_shape",
      [](const std::vector<int64_t>& shape, const MeshShapeArg& mesh,
         const PlacementsArg& placements,
         const std::vector<int64_t>& coordinate) {
        return local_shape(shape, mesh.value, placements.value, coordinate);
      },
      py::arg("shape"), py::arg("mesh"), py::arg("placements"),
      py::arg("coordinate"), R"doc(
Returns the shape of the shard at a coordinate of a mesh.

>>> tessera.local_shape([10], "mesh(4)", "S(0)", [3])
[1])doc");
  module.def(
      "local_box",
      [](const std::vector<int64_t>& shape, const MeshShapeArg& mesh,
         const PlacementsArg& placements,
         const std::vector<int64_t>& coordinate) {
        return local_box(shape, mesh.value, placements.value, coordinate);
      },
      py::arg("shape"), py::arg("mesh"), py::arg("placements"),
      py::arg("coordinate"), R"doc(
Returns which elements the shard at a coordinate of a mesh holds.

>>> tessera.local_box([10], "mesh(4)", "S(0)", [1])
[3:6])doc");
}

}  // namespace

void bind_layout(py::module_& module) {
  bind_placement(module);
  bind_placement_makers(module);
  bind_geometry(module);
}

}  // namespace tessera::python
