// What a sharded tensor is: its spec, mesh, placements and text.
#include <tessera/tensor/dtensor.h>
#include <tessera/tensor/dtensor_spec.h>
#include <tessera/tensor/xla.h>

#include "bindings.h"

namespace tessera::python {
namespace {

void bind_spec(py::module_& module) {
  py::class_<DTensorSpec, std::shared_ptr<DTensorSpec>>(
      module, "DTensorSpec", R"doc(
Everything about a sharded tensor but its data.

>>> tessera.spec(tessera.zeros([4, 2], mesh, "S(0)"))
f32[4, 2] S(0) @ mesh(1))doc")
      .def_property_readonly("mesh", &DTensorSpec::mesh)
      .def_property_readonly("placements", &DTensorSpec::placements)
      .def_property_readonly("shape", &DTensorSpec::shape)
      .def_property_readonly("strides", &DTensorSpec::strides)
      .def_property_readonly("dtype", &DTensorSpec::dtype)
      .def_property_readonly("local_shape", &DTensorSpec::local_shape)
      .def_property_readonly("layout", &DTensorSpec::layout)
      .def("is_replicated", &DTensorSpec::is_replicated)
      .def("has_shard", &DTensorSpec::has_shard)
      .def("__repr__", [](const DTensorSpec& self) { return to_string(self); });
}

std::shared_ptr<DTensorSpec> spec_of(const at::Tensor& tensor) {
  // Python offers nothing that writes to it.
  return std::const_pointer_cast<DTensorSpec>(spec(tensor).shared_from_this());
}

void bind_questions(py::module_& module) {
  module.def("is_dtensor", &is_dtensor, py::arg("tensor"), R"doc(
Tells whether a tensor is sharded.

>>> tessera.is_dtensor(torch.ones(2))
False)doc");
  module.def("spec", &spec_of, py::arg("tensor"), R"doc(
Returns the spec of a sharded tensor; a plain one is an error.

>>> tessera.spec(tessera.ones([3], mesh, "R")).local_shape
[3])doc");
  module.def("device_mesh", &device_mesh, py::arg("tensor"), R"doc(
Returns the mesh of a sharded tensor.

>>> tessera.device_mesh(tessera.ones([3], mesh, "R")).size()
1)doc");
  module.def("placements", &placements, py::arg("tensor"), R"doc(
Returns the placements of a sharded tensor, one per mesh dim.

>>> tessera.placements(tessera.ones([3], mesh, [tessera.Shard(0)]))
[S(0)])doc");
  module.def(
      "to_string", [](const at::Tensor& tensor) { return to_string(tensor); },
      py::arg("tensor"), NoGil(), R"doc(
Prints the spec and this rank's shard; moves nothing. repr() of a sharded tensor.

>>> print(tessera.to_string(tessera.ones([2], mesh, "S(0)")).split("\n")[0])
f32[2] S(0) @ mesh(1))doc");
}

void bind_chunks(py::module_& module) {
  module.def(
      "chunk_list",
      [](const at::Tensor& tensor) {
        std::vector<Box> boxes;
        for (const ChunkStorageMetadata& chunk : chunk_list(tensor)) {
          boxes.push_back({chunk.offsets, chunk.sizes});
        }
        return boxes;
      },
      py::arg("tensor"), R"doc(
Returns the boxes of this rank's shard, as checkpoint systems describe them.

>>> tessera.chunk_list(tessera.ones([4], mesh, "S(0)"))
[[0:4]])doc");
  module.def(
      "to_hlo_sharding",
      [](const at::Tensor& tensor) { return to_hlo_sharding(spec(tensor)); },
      py::arg("tensor"), R"doc(
Prints the sharding of a tensor as XLA does.

>>> tessera.to_hlo_sharding(tessera.ones([4], mesh, "R"))
'{replicated}')doc");
  module.def(
      "to_shardy",
      [](const at::Tensor& tensor) { return to_shardy(spec(tensor)); },
      py::arg("tensor"), R"doc(
Prints the mesh and the sharding of a tensor as Shardy does.

>>> "sdy" in tessera.to_shardy(tessera.ones([4], mesh, "R"))
True)doc");
}

}  // namespace

void bind_tensor(py::module_& module) {
  bind_spec(module);
  bind_questions(module);
  bind_chunks(module);
}

}  // namespace tessera::python
