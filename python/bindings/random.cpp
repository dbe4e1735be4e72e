// Random numbers that do not depend on the mesh.
#include <tessera/tensor/deferred_init.h>
#include <tessera/tensor/random.h>

#include "bindings.h"
#include "guard.h"

namespace tessera::python {
namespace {

void bind_state(py::module_& module) {
  py::class_<RandomState>(module, "RandomState", R"doc(
How far a rank has come: what to save to continue with the same numbers.

>>> tessera.RandomState(seed=3).seed
3)doc")
      .def(
          py::init([](uint64_t seed, uint64_t operations,
                      std::map<std::string, uint64_t> streams) {
            return RandomState{seed, operations, std::move(streams)};
          }),
          py::kw_only(), py::arg("seed") = 0, py::arg("operations") = 0,
          py::arg("streams") = std::map<std::string, uint64_t>())
      .def_readwrite("seed", &RandomState::seed)
      .def_readwrite("operations", &RandomState::operations)
      .def_readwrite("streams", &RandomState::streams)
      .def(
          "__eq__",
          [](const RandomState& a, py::object b) {
            return py::isinstance<RandomState>(b) &&
                   a == b.cast<const RandomState&>();
          })
      .def(py::pickle(
          [](const RandomState& self) {
            return py::make_tuple(self.seed, self.operations, self.streams);
          },
          [](const py::tuple& fields) {
            return RandomState{
                fields[0].cast<uint64_t>(), fields[1].cast<uint64_t>(),
                fields[2].cast<std::map<std::string, uint64_t>>()};
          }));
  module.def("random_state", &random_state, R"doc(
Returns this rank's state.

>>> tessera.manual_seed(5)
>>> tessera.random_state().seed
5)doc");
  module.def("set_random_state", &set_random_state, py::arg("state"), R"doc(
Continues from a state.

>>> state = tessera.random_state()
>>> a = tessera.rand([3], mesh, "R")
>>> tessera.set_random_state(state)
>>> torch.equal(a, tessera.rand([3], mesh, "R"))
True)doc");
}

void bind_deferred_init(py::module_& module) {
  bind_guard<DeferredInit>(module, "DeferredInit", R"doc(
Inside `with`, new tensors have a shape and no memory; what would make and fill them is
recorded. distribute_module() and make_dtensor_() then make each rank's shards, with
the values of a ReplicatedRandom, and communicate nothing.

>>> with tessera.DeferredInit():
...     layer = torch.nn.Linear(4, 8)
>>> tessera.is_deferred(layer.weight)
True
>>> tessera.make_dtensor_(layer.weight, mesh, [tessera.Shard(0)])
>>> tessera.is_deferred(layer.weight), layer.weight.shape
(False, torch.Size([8, 4])))doc")
      .def(py::init<>());
  module.def("is_deferred", &is_deferred, py::arg("tensor"), R"doc(
Tells whether a tensor was made under a DeferredInit and has no values yet.

>>> tessera.is_deferred(torch.ones(2))
False)doc");
  module.def(
      "_materialize", [](const at::Tensor& t) { materialize(t); },
      py::arg("tensor"), NoGil());
}

}  // namespace

void bind_random(py::module_& module) {
  bind_deferred_init(module);
  module.def("manual_seed", &manual_seed, py::arg("seed"), R"doc(
Sets this rank's seed and starts its counters again; the same seed on all ranks.

>>> tessera.manual_seed(7))doc");
  bind_state(module);
  bind_guard<RandomStream, std::string>(module, "RandomStream", R"doc(
Inside `with`, this rank draws from a sequence of its own, chosen by seed and name.

>>> with tessera.RandomStream("stage 2"):
...     x = tessera.rand([2], mesh, "R"))doc")
      .def(py::init<std::string>(), py::arg("name"));
  bind_guard<ReplicatedRandom>(module, "ReplicatedRandom", R"doc(
Inside `with`, random operators on plain tensors draw values that are equal on all
ranks: for making modules before they are sharded.

>>> with tessera.ReplicatedRandom():
...     layer = torch.nn.Linear(2, 2))doc")
      .def(py::init<>());
}

}  // namespace tessera::python
