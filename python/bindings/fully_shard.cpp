// fully_shard on modules of Python.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/parallel/fully_shard.h>

#include "bindings.h"
#include "guard.h"
#include "module_tree.h"

namespace tessera::python {
namespace {

using Accumulate = FullyShard::Accumulate;
using Keep = Accumulate::Keep;
using Group = FullyShardReport::Group;

Keep keep_from(const std::string& word) {
  TORCH_CHECK_VALUE(
      word == "shards" || word == "unreduced" ||
          word == "unreduced_and_weights",
      "FullyShard.accumulate: keep must be \"shards\", \"unreduced\" or "
      "\"unreduced_and_weights\"; got \"",
      word, "\"");
  return word == "shards"      ? Keep::kShards
         : word == "unreduced" ? Keep::kUnreduced
                               : Keep::kUnreducedAndWeights;
}

// Calls a function of Python, which is copied and dropped without the
// interpreter's lock.
using PlaceFn = std::function<Placement(const std::string&, const at::Tensor&)>;
PlaceFn place_fn(const py::object& function) {
  if (function.is_none()) {
    return {};
  }
  const std::shared_ptr<py::object> kept(
      new py::object(function), [](py::object* object) {
        const py::gil_scoped_acquire lock;
        delete object;
      });
  return [kept](const std::string& name, const at::Tensor& parameter) {
    const py::gil_scoped_acquire lock;
    return (*kept)(name, parameter).cast<Placement>();
  };
}

void bind_report(py::module_& module) {
  py::class_<Group>(module, "FullyShardGroup", R"doc(
A group of parameters that are gathered together; see FullyShard.report().

>>> net = torch.nn.Linear(4, 2)
>>> tessera.fully_shard(net, mesh).report().groups[0].members
['weight', 'bias'])doc")
      .def_readonly("path", &Group::path)
      .def_readonly("members", &Group::members)
      .def_readonly("shard_bytes", &Group::shard_bytes)
      .def_readonly("unsharded_bytes", &Group::unsharded_bytes)
      .def_readonly("is_gathered", &Group::is_gathered)
      .def_readonly("handed_out_bytes", &Group::handed_out_bytes)
      .def_readonly("is_accumulating", &Group::is_accumulating);
  using Report = FullyShardReport;
  py::class_<Report>(module, "FullyShardReport", R"doc(
What fully_shard() made, and what the last step gathered and reduced.

>>> net = torch.nn.Linear(4, 2)
>>> tessera.fully_shard(net, mesh).report().gathers
0)doc")
      .def_readonly("groups", &Report::groups)
      .def_readonly("forward_order", &Report::forward_order)
      .def_readonly("backward_order", &Report::backward_order)
      .def_readonly("gathers", &Report::gathers)
      .def_readonly("reductions", &Report::reductions)
      .def_readonly("gathered_bytes", &Report::gathered_bytes)
      .def_readonly("peak_gathered_bytes", &Report::peak_gathered_bytes)
      .def("__repr__", [](const Report& self) { return to_string(self); });
}

void bind_sharded_handle(py::module_& module) {
  using Handle = std::reference_wrapper<FullyShard>;
  bind_guard<Accumulate, Handle, Keep>(
      module, "_FullyShardAccumulate", nullptr);
  py::class_<FullyShard>(module, "FullyShard", R"doc(
A handle to what fully_shard() made: unshard(path) begins to gather groups, reshard(path)
gives them back, report() says what the last step did; backward passes inside `with
handle.accumulate():` are those of micro-batches, all but the last.

>>> net = torch.nn.Linear(4, 2)
>>> handle = tessera.fully_shard(net, mesh)
>>> with handle.accumulate():
...     net(torch.ones(3, 4)).sum().backward()
>>> net(torch.ones(3, 4)).sum().backward()
>>> tessera.full_tensor(net.bias.grad)
tensor([6., 6.]))doc")
      .def("unshard", &FullyShard::unshard, py::arg("path") = "", NoGil())
      .def("reshard", &FullyShard::reshard, py::arg("path") = "", NoGil())
      .def("report", &FullyShard::report)
      .def(
          "accumulate",
          [](FullyShard& self, const std::string& keep) {
            return std::make_unique<Guard<Accumulate, Handle, Keep>>(
                std::ref(self), keep_from(keep));
          },
          py::arg("keep") = "shards", py::keep_alive<0, 1>());
}

}  // namespace

void bind_fully_shard(py::module_& module) {
  bind_report(module);
  bind_sharded_handle(module);
  using MaybeDtype = std::optional<at::ScalarType>;
  module.def(
      "fully_shard",
      [](const py::object& python_module, const DeviceMesh& mesh,
         std::vector<std::string> groups, std::string mesh_dim,
         std::string replicate_dim, std::optional<bool> reshard_after_forward,
         MaybeDtype param_dtype, MaybeDtype reduce_dtype, int64_t prefetch,
         int64_t max_reductions, bool fill_unused,
         std::vector<std::string> ignored_params,
         std::optional<Placement> plain_input, const py::object& placement) {
        ModuleTree tree = tree_of(python_module);
        const FullyShardOptions options{
            .mesh_dim = std::move(mesh_dim),
            .replicate_dim = std::move(replicate_dim),
            .groups = std::move(groups),
            .reshard_after_forward = reshard_after_forward,
            .mp_policy =
                {.param_dtype = param_dtype, .reduce_dtype = reduce_dtype},
            .prefetch = prefetch,
            .max_reductions = max_reductions,
            .fill_unused = fill_unused,
            .ignored_params = std::move(ignored_params),
            .plain_input = plain_input,
            .placement = place_fn(placement)};
        const py::gil_scoped_release unlock;
        return fully_shard(tree, mesh, options);
      },
      py::arg("module"), py::arg("mesh"), py::kw_only(),
      py::arg("groups") = std::vector<std::string>(), py::arg("mesh_dim") = "",
      py::arg("replicate_dim") = "",
      py::arg("reshard_after_forward") = py::none(),
      py::arg("param_dtype") = py::none(), py::arg("reduce_dtype") = py::none(),
      py::arg("prefetch") = 1, py::arg("max_reductions") = 1,
      py::arg("fill_unused") = false,
      py::arg("ignored_params") = std::vector<std::string>(),
      py::arg("plain_input") = Shard(0), py::arg("placement") = py::none(),
      R"doc(
Cuts the parameters of a module along a mesh dim, in place: each rank keeps a part of every
parameter, gradient and optimizer state. Groups, paths of modules with globs, are gathered
when a call uses them. Returns a FullyShard.

>>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
>>> handle = tessera.fully_shard(net, mesh, groups=["*"])
>>> net(torch.ones(3, 4)).sum().backward()
>>> [group.path for group in handle.report().groups if group.path]
['0', '1'])doc");
}

}  // namespace tessera::python
