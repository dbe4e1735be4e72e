// How sharded tensors come to be, move, and become plain again.
#include <tessera/tensor/dtensor.h>

#include "bindings.h"

namespace tessera::python {
namespace {

using MaybePlacements = std::optional<PlacementsArg>;
using MaybeDtype = std::optional<at::ScalarType>;
using MaybeSizes = std::optional<std::vector<int64_t>>;

at::Tensor distribute(
    const at::Tensor& tensor, const std::optional<DeviceMesh>& mesh,
    const MaybePlacements& placements, std::optional<int64_t> src_data_rank) {
  const DeviceMesh& on = mesh ? *mesh : current_mesh();
  const Placements wanted =
      placements ? placements->value
                 : Placements(static_cast<size_t>(on.ndim()), Replicate());
  return distribute_tensor(
      tensor, on, wanted, {.src_data_rank = src_data_rank});
}

void bind_ways_in(py::module_& module) {
  module.def(
      "distribute_tensor", &distribute, py::arg("tensor"),
      py::arg("mesh") = py::none(), py::arg("placements") = py::none(),
      py::kw_only(), py::arg("src_data_rank") = 0, NoGil(), R"doc(
Shards a tensor that holds the global value: a new leaf with the same requires_grad.
The values of coordinate `src_data_rank` count; None: every rank cuts its own.

>>> tessera.distribute_tensor(torch.arange(4), mesh, [tessera.Shard(0)]).shape
torch.Size([4]))doc");
  module.def(
      "from_local",
      [](const at::Tensor& local, const DeviceMesh& mesh,
         const PlacementsArg& placements, bool run_check,
         const MaybeSizes& shape, const MaybeSizes& stride,
         const MaybePlacements& grad_placements) {
        return from_local(
            local, mesh, placements.value,
            {.run_check = run_check,
             .shape = shape,
             .stride = stride,
             .grad_placements = value_of(grad_placements)});
      },
      py::arg("local"), py::arg("mesh"), py::arg("placements"), py::kw_only(),
      py::arg("run_check") = false, py::arg("shape") = py::none(),
      py::arg("stride") = py::none(), py::arg("grad_placements") = py::none(),
      NoGil(), R"doc(
Makes a sharded tensor of which `local` is this rank's shard, sharing its memory;
differentiable. Without `shape` every shard is taken to be as large as this one.

>>> x = torch.zeros(3)
>>> t = tessera.from_local(x, mesh, "S(0)")
>>> x[0] = 5
>>> t.sum().item()
5.0)doc");
  module.def(
      "make_dtensor_",
      [](const at::Tensor& tensor, const DeviceMesh& mesh,
         const PlacementsArg& placements,
         std::optional<int64_t> src_data_rank) {
        make_dtensor_(
            tensor, mesh, placements.value, {.src_data_rank = src_data_rank});
      },
      py::arg("tensor"), py::arg("mesh"), py::arg("placements"), py::kw_only(),
      py::arg("src_data_rank") = 0, NoGil(), R"doc(
Turns a plain tensor that holds the global value into a sharded one, in place: every
reference to it sees the change, so modules and optimizers keep their parameters.

>>> layer = torch.nn.Linear(4, 4)
>>> tessera.make_dtensor_(layer.weight, mesh, "S(0)")
>>> tessera.is_dtensor(layer.weight)
True)doc");
}

void bind_ways_out(py::module_& module) {
  module.def(
      "to_local",
      [](const at::Tensor& tensor, const MaybePlacements& grad_placements) {
        return to_local(tensor, {.grad_placements = value_of(grad_placements)});
      },
      py::arg("tensor"), py::kw_only(), py::arg("grad_placements") = py::none(),
      NoGil(), R"doc(
Returns this rank's shard, sharing its memory; differentiable.

>>> tessera.to_local(tessera.ones([2], mesh, "S(0)"))
tensor([1., 1.]))doc");
  module.def(
      "full_tensor",
      [](const at::Tensor& tensor, const MaybePlacements& grad_placements) {
        return full_tensor(
            tensor, {.grad_placements = value_of(grad_placements)});
      },
      py::arg("tensor"), py::kw_only(), py::arg("grad_placements") = py::none(),
      NoGil(), R"doc(
Returns the global value on every rank, as a plain tensor; differentiable.

>>> tessera.full_tensor(tessera.ones([2], mesh, "S(0)"))
tensor([1., 1.]))doc");
}

void bind_redistribute(py::module_& module) {
  module.def(
      "redistribute",
      [](const at::Tensor& tensor, const DeviceMesh& mesh,
         const PlacementsArg& placements, bool async_op,
         MaybeDtype forward_dtype, MaybeDtype backward_dtype) {
        return redistribute(
            tensor, mesh, placements.value,
            {.async = async_op,
             .forward_dtype = forward_dtype,
             .backward_dtype = backward_dtype});
      },
      py::arg("tensor"), py::arg("mesh"), py::arg("placements"), py::kw_only(),
      py::arg("async_op") = false, py::arg("forward_dtype") = py::none(),
      py::arg("backward_dtype") = py::none(), NoGil());
  module.def(
      "redistribute",
      [](const at::Tensor& tensor, const PlacementsArg& placements,
         bool async_op, MaybeDtype forward_dtype, MaybeDtype backward_dtype) {
        return redistribute(
            tensor, placements.value,
            {.async = async_op,
             .forward_dtype = forward_dtype,
             .backward_dtype = backward_dtype});
      },
      py::arg("tensor"), py::arg("placements"), py::kw_only(),
      py::arg("async_op") = false, py::arg("forward_dtype") = py::none(),
      py::arg("backward_dtype") = py::none(), NoGil(), R"doc(
Returns the same tensor in other placements, or on another mesh of the same world:
redistribute(t, placements) or redistribute(t, mesh, placements); differentiable. With
`async_op` the first use of the result waits for it.

>>> t = tessera.redistribute(tessera.ones([2], mesh, "S(0)"), [tessera.Replicate()])
>>> tessera.placements(t)
[R])doc");
}

}  // namespace

void bind_movement(py::module_& module) {
  bind_ways_in(module);
  bind_ways_out(module);
  bind_redistribute(module);
}

}  // namespace tessera::python
