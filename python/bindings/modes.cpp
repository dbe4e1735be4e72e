// What is forbidden, permitted or checked inside a `with`.
#include <memory>

#include <tessera/tensor/dtensor.h>
#include <tessera/tensor/gather_counts.h>
#include <tessera/tensor/gradient_check.h>
#include <tessera/tensor/replication_check.h>
#include <tessera/tensor/strict_mode.h>

#include "bindings.h"
#include "guard.h"

namespace tessera::python {
namespace {

void bind_gather_counts(py::module_& module) {
  py::class_<GatherCount>(module, "GatherCount", R"doc(
How often an operator made whole what was cut: op, count, bytes.

>>> [c.bytes for c in tessera.gather_counts().values() if c.count == 0]
[])doc")
      .def_readonly("op", &GatherCount::op)
      .def_readonly("count", &GatherCount::count)
      .def_readonly("bytes", &GatherCount::bytes)
      .def("__repr__", [](const GatherCount& self) {
        return c10::str(
            self.op, ": ", self.count, " gathers, ", self.bytes, " bytes");
      });
  module.def(
      "gather_counts",
      [] {
        py::dict counts;
        for (const GatherCount& entry : gather_counts()) {
          counts[py::str(entry.op)] = entry;
        }
        return counts;
      },
      R"doc(
Returns how often operators made whole what was cut, and the bytes that ranks came to hold
more of, all ranks of this process together, those of most bytes first.

>>> isinstance(tessera.gather_counts(), dict)
True)doc");
}

void bind_strict_mode(py::module_& module) {
  using Strict = Guard<StrictMode, StrictOptions>;
  bind_guard<StrictMode, StrictOptions>(module, "StrictMode", R"doc(
Inside `with`, communication that no function asked for is an error, before anything
moves; with `fallbacks` also operators that run on whole values for want of a rule, with
`gathers` all that make whole what was cut.

>>> with tessera.StrictMode():
...     y = tessera.ones([2], mesh, "S(0)") + 1)doc")
      .def(
          py::init([](bool communication, bool fallbacks, bool gathers,
                      bool leaf_gradients, bool warn) {
            return std::make_unique<Strict>(StrictOptions{
                .communication = communication,
                .fallbacks = fallbacks,
                .gathers = gathers,
                .leaf_gradients = leaf_gradients,
                .warn = warn});
          }),
          py::kw_only(), py::arg("communication") = true,
          py::arg("fallbacks") = false, py::arg("gathers") = false,
          py::arg("leaf_gradients") = true, py::arg("warn") = false);
  module.def(
      "fallback_counts",
      [] {
        py::dict counts;
        for (const FallbackCount& entry : fallback_counts()) {
          counts[py::str(entry.op)] = entry.count;
        }
        return counts;
      },
      R"doc(
Returns how often operators ran on whole values instead of shards and communicated
for it, all ranks of this process together, the most frequent first.

>>> isinstance(tessera.fallback_counts(), dict)
True)doc");
  bind_gather_counts(module);
}

void bind_replica_checks(py::module_& module) {
  using Check = Guard<GradientCheck, ReplicaCheckOptions>;
  bind_guard<GradientCheck, ReplicaCheckOptions>(module, "GradientCheck", R"doc(
Inside `with`, replicated gradients are compared over ranks when they arrive at a leaf;
a difference is the same error on all ranks.

>>> w = tessera.ones([2], mesh, "R", requires_grad=True)
>>> with tessera.GradientCheck():
...     w.sum().backward())doc")
      .def(
          py::init([](double tolerance) {
            return std::make_unique<Check>(
                ReplicaCheckOptions{.tolerance = tolerance});
          }),
          py::kw_only(), py::arg("tolerance") = 0.0);
  bind_guard<ReplicationCheck>(module, "ReplicationCheck", R"doc(
Inside `with`, plain tensors that enter a call with sharded ones, and parameters that are
placed on a mesh, are compared over ranks; a difference is the same error on all ranks.

>>> x = tessera.ones([2], mesh, "R")
>>> with tessera.ImplicitReplication(), tessera.ReplicationCheck():
...     y = x + torch.ones(2))doc")
      .def(py::init<>());
  module.def(
      "_check_replicas",
      [](const std::vector<std::pair<std::string, at::Tensor>>& tensors,
         double tolerance) {
        check_replicas(tensors, {.tolerance = tolerance});
      },
      py::arg("tensors"), py::arg("tolerance"), NoGil());
  module.def(
      "name_tensor", &name_tensor, py::arg("tensor"), py::arg("name"), R"doc(
Gives a tensor the name that errors know it by.

>>> tessera.name_tensor(tessera.ones([2], mesh, "R"), "scale"))doc");
}

}  // namespace

void bind_modes(py::module_& module) {
  bind_strict_mode(module);
  bind_guard<ImplicitReplication>(module, "ImplicitReplication", R"doc(
Inside `with`, plain tensors mixed with sharded ones are taken as replicated. They must
hold equal values on all ranks.

>>> with tessera.ImplicitReplication():
...     y = tessera.ones([2], mesh, "S(0)") * torch.tensor([1.0, 2.0]))doc")
      .def(py::init<>());
  bind_replica_checks(module);
}

}  // namespace tessera::python
