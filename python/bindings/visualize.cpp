// Pictures of layouts and sharded tensors.
#include <tessera/layout/replica_groups.h>
#include <tessera/layout/visualize_sharding.h>
#include <tessera/tensor/visualize_sharding.h>

#include "bindings.h"

namespace tessera::python {
namespace {

VisualizeOptions visualize_options(
    int width, bool ascii, bool color, bool table) {
  VisualizeOptions options;
  options.width = width;
  options.ascii = ascii;
  options.color = color;
  options.table = table;
  return options;
}

void bind_visualize_sharding(py::module_& module) {
  module.def(
      "visualize_sharding",
      [](const at::Tensor& tensor, int width, bool ascii, bool color,
         bool table) {
        return visualize_sharding(
            tensor, visualize_options(width, ascii, color, table));
      },
      py::arg("tensor"), py::kw_only(), py::arg("width") = 80,
      py::arg("ascii") = false, py::arg("color") = false,
      py::arg("table") = false, R"doc(
Returns a picture of who holds what: of a sharded tensor, or of a shape on a mesh that
need not exist. A grid for one and two dims, else a table. Nothing is printed, since the
ranks of a program share one terminal; every rank returns the same text.

>>> x = tessera.ones([4, 2], mesh, "S(0)")
>>> print(tessera.visualize_sharding(x, ascii=True))
        0:2
      +-----+
  0:4 |  0  |
      +-----+
>>> print(tessera.visualize_sharding([4, 4], "mesh(2, 2)", "R S(1)", ascii=True))
        0:2   2:4
      +-----+-----+
  0:4 | 0,2 | 1,3 |
      +-----+-----+
<BLANKLINE>
ranks in one cell hold copies)doc");
  module.def(
      "visualize_sharding",
      [](const std::vector<int64_t>& shape, const MeshShapeArg& mesh,
         const PlacementsArg& placements, int width, bool ascii, bool color,
         bool table) {
        return visualize_sharding(
            Layout(shape, mesh.value, placements.value),
            visualize_options(width, ascii, color, table));
      },
      py::arg("shape"), py::arg("mesh"), py::arg("placements"), py::kw_only(),
      py::arg("width") = 80, py::arg("ascii") = false, py::arg("color") = false,
      py::arg("table") = false);
}

}  // namespace

void bind_visualize(py::module_& module) {
  bind_visualize_sharding(module);
  module.def(
      "visualize_shard",
      [](const std::vector<int64_t>& shape, const MeshShapeArg& mesh,
         const PlacementsArg& placements, int64_t rank) {
        return visualize_shard(
            Layout(shape, mesh.value, placements.value), rank);
      },
      py::arg("shape"), py::arg("mesh"), py::arg("placements"), py::arg("rank"),
      R"doc(
Tells what one rank of a mesh holds, and which ranks hold the same.

>>> print(tessera.visualize_shard([8, 16], "mesh(dp=2, tp=4)", "R S(0)", 3))
rank 3 at dp=0 tp=3: local shape [2, 16], 32 elements of 128
  holds [6:8, 0:16]
  held by 3,7)doc");
  module.def(
      "replica_groups",
      [](const std::vector<int64_t>& shape, const MeshShapeArg& mesh,
         const PlacementsArg& placements) {
        return replica_groups(Layout(shape, mesh.value, placements.value));
      },
      py::arg("shape"), py::arg("mesh"), py::arg("placements"), R"doc(
Returns the ranks in groups that hold copies of one shard.

>>> tessera.replica_groups([8], "mesh(2, 2)", "R S(0)")
[[0, 2], [1, 3]])doc");
}

}  // namespace tessera::python
