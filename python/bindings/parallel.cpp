// Modules of Python whose gradients and parameters the library takes charge of.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/functional.h>
#include <tessera/parallel/data_parallel.h>
#include <tessera/parallel/local_map.h>
#include <tessera/parallel/loss_parallel.h>
#include <tessera/parallel/parallelize_module.h>

#include "bindings.h"
#include "guard.h"
#include "module_tree.h"

namespace tessera::python {
namespace {

// A parameter that a plan of Python names, and how the calls that use it run.
struct PlacedParameter {
  static constexpr const char* kName = "ParameterParallel";
  Placement placement;
  std::optional<CallLayouts> layouts;
  void apply(StyledParameter& target) const {
    target.shard(placement, layouts);
  }
};

void place_parameter(
    const std::string& path, const at::Tensor& parameter,
    const DeviceMesh& mesh, int64_t mesh_dim, const Placement& placement,
    const std::optional<CallLayouts>& layouts) {
  ModuleTree tree(NamedTensors{{path, parameter}});
  // A mesh dim is named by its name or its number there.
  const std::vector<std::string>& names = mesh.dim_names();
  parallelize_module(
      static_cast<torch::nn::Module&>(tree), mesh,
      {{path, PlacedParameter{placement, layouts}}},
      {.mesh_dim = names.empty() ? std::string()
                                 : names[static_cast<size_t>(mesh_dim)]});
}

std::vector<std::optional<Placements>> values_of(
    const std::vector<std::optional<PlacementsArg>>& arguments) {
  std::vector<std::optional<Placements>> values;
  for (const auto& argument : arguments) {
    values.push_back(value_of(argument));
  }
  return values;
}

void bind_data_parallel(py::module_& module) {
  using Accumulate = DataParallel::Accumulate;
  using Parallel = std::reference_wrapper<DataParallel>;
  bind_guard<Accumulate, Parallel>(module, "_Accumulate", nullptr);
  py::class_<DataParallel>(module, "DataParallel", R"doc(
Takes charge of the gradients of a module that is on a mesh, of parameters that are whole
in the mesh dim along which the batch is cut: they are summed up once per step, in few
large reductions. When the object ends, gradients are summed up as they arrive again.

>>> net = tessera.distribute_module(torch.nn.Linear(4, 2), mesh)
>>> parallel = tessera.DataParallel(net, mesh)
>>> x = tessera.ones([3, 4], mesh, "S(0)")
>>> with parallel.accumulate():  # all micro-batches but the last
...     net(x).sum().backward()
>>> net(x).sum().backward()
>>> parallel.reduce_gradients()
>>> parallel.bucket_count()
1)doc")
      .def(
          py::init([](const py::object& python_module, const DeviceMesh& mesh,
                      std::string mesh_dim, int64_t bucket_bytes) {
            ModuleTree tree = tree_of(python_module);
            return std::make_unique<DataParallel>(
                tree, mesh,
                DataParallelOptions{
                    .mesh_dim = std::move(mesh_dim),
                    .bucket_bytes = bucket_bytes});
          }),
          py::arg("module"), py::arg("mesh"), py::kw_only(),
          py::arg("mesh_dim") = "", py::arg("bucket_bytes") = 25 << 20)
      .def("reduce_gradients", &DataParallel::reduce_gradients, NoGil())
      .def("bucket_count", &DataParallel::bucket_count)
      .def(
          "accumulate",
          [](DataParallel& self) {
            return std::make_unique<Guard<Accumulate, Parallel>>(
                std::ref(self));
          },
          py::keep_alive<0, 1>());
}

void bind_parameters(py::module_& module) {
  py::class_<CallLayouts>(module, "CallLayouts", R"doc(
In which layouts the calls that use a parameter should be, along the mesh dim of the plan:
of a plain input, of inputs and of results. With `scales` products element by element count.

>>> tessera.CallLayouts(input=tessera.Replicate()).input
R)doc")
      .def(
          py::init([](const Placement& plain_input,
                      std::optional<Placement> input,
                      std::optional<Placement> output, bool scales) {
            return CallLayouts{plain_input, input, output, scales};
          }),
          py::kw_only(), py::arg("plain_input") = Replicate(),
          py::arg("input") = py::none(), py::arg("output") = py::none(),
          py::arg("scales") = false)
      .def_readonly("plain_input", &CallLayouts::plain_input)
      .def_readonly("input", &CallLayouts::input)
      .def_readonly("output", &CallLayouts::output)
      .def_readonly("scales", &CallLayouts::scales);
  module.def(
      "_place_parameter", &place_parameter, py::arg("path"),
      py::arg("parameter"), py::arg("mesh"), py::arg("mesh_dim"),
      py::arg("placement"), py::arg("layouts"), NoGil());
}

}  // namespace

void bind_parallel(py::module_& module) {
  bind_data_parallel(module);
  bind_parameters(module);
  bind_guard<LossParallel>(module, "LossParallel", R"doc(
Inside `with`, cross entropy asks for logits that are cut along their classes, and never
gathers them: each rank works on its classes alone.

>>> logits = tessera.ones([2, 4], mesh, "S(1)", requires_grad=True)
>>> with tessera.LossParallel():
...     loss = torch.nn.functional.cross_entropy(
...         logits, tessera.distribute_tensor(torch.tensor([0, 1]), mesh, "R"))
...     loss.backward())doc")
      .def(py::init<>());
  module.def(
      "_local_map",
      [](LocalFn fn, const std::vector<at::Tensor>& arguments,
         const std::vector<PlacementsArg>& out_placements,
         const std::vector<std::optional<PlacementsArg>>& in_placements,
         const std::vector<std::optional<PlacementsArg>>& in_grad_placements,
         const DeviceMesh& mesh, bool redistribute_inputs,
         std::vector<std::vector<int64_t>> out_shapes) {
        std::vector<Placements> out;
        for (const PlacementsArg& placements : out_placements) {
          out.push_back(placements.value);
        }
        return local_map(
            std::move(fn), std::move(out), values_of(in_placements), mesh,
            {.redistribute_inputs = redistribute_inputs,
             .in_grad_placements = values_of(in_grad_placements),
             .out_shapes = std::move(out_shapes)})(arguments);
      },
      NoGil());
}

}  // namespace tessera::python
