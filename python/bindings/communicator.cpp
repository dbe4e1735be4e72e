// Groups of ranks that move plain tensors, and those of torch.distributed.
#include <string>

#include <tessera/comm/communicator.h>
#include <tessera/comm/from_process_group.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include "bindings.h"

namespace tessera::python {
namespace {

using Work = Communicator::Work;

using Counts = std::vector<int64_t>;
using MaybeTensor = std::optional<at::Tensor>;

at::Tensor or_undefined(const MaybeTensor& tensor) {
  return tensor.value_or(at::Tensor());
}

// Every function has an asynchronous form that returns a Work; the other waits.
template <class Start>
std::optional<Work> start_call(bool async_op, const Start& start) {
  const py::gil_scoped_release unlock;
  Work work = start();
  if (async_op) {
    return work;
  }
  work.wait();
  return std::nullopt;
}

void bind_reductions(py::class_<Communicator>& group) {
  group
      .def(
          "all_reduce",
          [](const Communicator& self, const at::Tensor& tensor, ReduceOpArg op,
             bool async_op) {
            return start_call(async_op, [&] {
              return self.all_reduce_async(tensor, op.value);
            });
          },
          py::arg("tensor"), py::arg("op") = "sum", py::kw_only(),
          py::arg("async_op") = false)
      .def(
          "reduce_scatter",
          [](const Communicator& self, const at::Tensor& output,
             const at::Tensor& input, ReduceOpArg op, const Counts& counts,
             bool async_op) {
            return start_call(async_op, [&] {
              return self.reduce_scatter_async(output, input, counts, op.value);
            });
          },
          py::arg("output"), py::arg("input"), py::arg("op") = "sum",
          py::kw_only(), py::arg("counts") = Counts(),
          py::arg("async_op") = false);
}

void bind_exchanges(py::class_<Communicator>& group) {
  group
      .def(
          "all_gather",
          [](const Communicator& self, const at::Tensor& output,
             const at::Tensor& input, const Counts& counts, bool async_op) {
            return start_call(async_op, [&] {
              return self.all_gather_async(output, input, counts);
            });
          },
          py::arg("output"), py::arg("input"), py::kw_only(),
          py::arg("counts") = Counts(), py::arg("async_op") = false)
      .def(
          "all_to_all",
          [](const Communicator& self, const at::Tensor& output,
             const at::Tensor& input, const Counts& output_counts,
             const Counts& input_counts, bool async_op) {
            return start_call(async_op, [&] {
              return self.all_to_all_async(
                  output, input, output_counts, input_counts);
            });
          },
          py::arg("output"), py::arg("input"), py::kw_only(),
          py::arg("output_counts") = Counts(),
          py::arg("input_counts") = Counts(), py::arg("async_op") = false)
      .def(
          "broadcast",
          [](const Communicator& self, const at::Tensor& tensor, int64_t root,
             bool async_op) {
            return start_call(
                async_op, [&] { return self.broadcast_async(tensor, root); });
          },
          py::arg("tensor"), py::arg("root"), py::kw_only(),
          py::arg("async_op") = false)
      .def(
          "scatter",
          [](const Communicator& self, const at::Tensor& output,
             const MaybeTensor& input, int64_t root, const Counts& counts,
             bool async_op) {
            return start_call(async_op, [&] {
              return self.scatter_async(
                  output, or_undefined(input), counts, root);
            });
          },
          py::arg("output"), py::arg("input"), py::arg("root"), py::kw_only(),
          py::arg("counts") = Counts(), py::arg("async_op") = false)
      .def(
          "gather",
          [](const Communicator& self, const MaybeTensor& output,
             const at::Tensor& input, int64_t root, const Counts& counts,
             bool async_op) {
            return start_call(async_op, [&] {
              return self.gather_async(
                  or_undefined(output), input, counts, root);
            });
          },
          py::arg("output"), py::arg("input"), py::arg("root"), py::kw_only(),
          py::arg("counts") = Counts(), py::arg("async_op") = false);
}

void bind_messages(py::class_<Communicator>& group) {
  group
      .def(
          "send",
          [](const Communicator& self, const at::Tensor& tensor, int64_t dst,
             int64_t tag, bool async_op) {
            return start_call(
                async_op, [&] { return self.send_async(tensor, dst, tag); });
          },
          py::arg("tensor"), py::arg("dst"), py::arg("tag") = 0, py::kw_only(),
          py::arg("async_op") = false)
      .def(
          "recv",
          [](const Communicator& self, const at::Tensor& tensor, int64_t src,
             int64_t tag, bool async_op) {
            return start_call(
                async_op, [&] { return self.recv_async(tensor, src, tag); });
          },
          py::arg("tensor"), py::arg("src"), py::arg("tag") = 0, py::kw_only(),
          py::arg("async_op") = false);
}

// By name, which the registry of LibTorch knows: no type of the module
// torch._C needs to be the one that this module was compiled with.
Communicator communicator_of(py::object group, double deadline) {
  TORCH_CHECK_TYPE(
      py::hasattr(group, "group_name"),
      "from_process_group: a group of torch.distributed is needed; got ",
      std::string(py::repr(group)),
      "; pass dist.group.WORLD or what dist.new_group() returned");
  const auto name = group.attr("group_name").cast<std::string>();
  const auto limit = milliseconds_of(deadline);
  const py::gil_scoped_release unlock;
  return from_process_group(c10d::resolve_process_group(name), limit);
}

}  // namespace

void bind_communicator(py::module_& module) {
  py::class_<Work>(module, "Work", R"doc(
A communication under way; its tensors must not be used before wait() returns.

>>> work = tessera.init().communicator().all_reduce(torch.ones(2), async_op=True)
>>> work.wait())doc")
      .def("wait", &Work::wait, NoGil())
      .def("done", &Work::done, NoGil());
  py::class_<Communicator> group(module, "Communicator", R"doc(
A group of ranks. Every call is collective, checked between ranks before data move,
and raises on all ranks when one fails.

>>> x = torch.arange(3.0)
>>> tessera.init().communicator().all_reduce(x, "max"))doc");
  group.def("rank", &Communicator::rank)
      .def("size", &Communicator::size)
      .def("ranks", &Communicator::ranks)
      .def("engine", &Communicator::engine)
      .def("defined", &Communicator::defined)
      .def("barrier", &Communicator::barrier, NoGil())
      .def(
          "split", &Communicator::split, py::arg("color"), py::arg("key") = 0,
          NoGil());
  bind_reductions(group);
  bind_exchanges(group);
  bind_messages(group);
  module.def(
      "from_process_group", &communicator_of, py::arg("group"), py::kw_only(),
      py::arg("deadline") = 300.0, R"doc(
Returns a communicator of all ranks of a group of torch.distributed, in a world of
its own. Every rank of the group calls it, as often as the others.

>>> tessera.from_process_group(None)
Traceback (most recent call last):
TypeError: from_process_group: a group of torch.distributed is needed; got None; ...)doc");
}

}  // namespace tessera::python
