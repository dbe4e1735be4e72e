// What calls would do, and how operators run.
#include <tessera/tensor/explain.h>
#include <tessera/tensor/machine_model.h>
#include <tessera/tensor/operators.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include "bindings.h"

namespace tessera::python {
namespace {

bool all_are_tensors(py::handle sequence) {
  for (const py::handle item : sequence) {
    if (!THPVariable_Check(item.ptr())) {
      return false;
    }
  }
  return py::len(sequence) > 0;
}

c10::IValue list_argument(py::handle sequence) {
  if (all_are_tensors(sequence)) {
    return sequence.cast<std::vector<at::Tensor>>();
  }
  for (const py::handle item : sequence) {
    if (py::isinstance<py::float_>(item)) {
      return sequence.cast<std::vector<double>>();
    }
  }
  return sequence.cast<std::vector<int64_t>>();
}

}  // namespace

// The values that arguments of operators may be; what they are bound to, the
// schema says.
c10::IValue argument_from(py::handle value, const char* call) {
  if (value.is_none()) {
    return c10::IValue();
  }
  if (THPVariable_Check(value.ptr())) {
    return value.cast<at::Tensor>();
  }
  if (py::isinstance<py::bool_>(value)) {
    return value.cast<bool>();
  }
  if (py::isinstance<py::int_>(value)) {
    return value.cast<int64_t>();
  }
  if (py::isinstance<py::float_>(value)) {
    return value.cast<double>();
  }
  if (py::isinstance<py::str>(value)) {
    return value.cast<std::string>();
  }
  if (THPDtype_Check(value.ptr())) {
    return static_cast<int64_t>(value.cast<at::ScalarType>());
  }
  TORCH_CHECK_TYPE(
      py::isinstance<py::sequence>(value), call,
      ": an argument must be a tensor, a number, a string, a dtype or a list "
      "of them; got ",
      std::string(py::repr(value)));
  return list_argument(value);
}

namespace {

bool is_redistribution(const std::string& call) {
  return call == "redistribute";
}

std::string explain_redistribution(const py::args& arguments) {
  TORCH_CHECK_TYPE(
      arguments.size() == 2 || arguments.size() == 3,
      "explain(\"redistribute\", ...): a tensor, perhaps a mesh, and "
      "placements are needed; got ",
      arguments.size(), " arguments");
  const auto tensor = arguments[0].cast<at::Tensor>();
  const Placements target = placements_from(arguments[arguments.size() - 1]);
  if (arguments.size() == 2) {
    return explain("redistribute", tensor, target);
  }
  return explain(
      "redistribute", tensor, arguments[1].cast<DeviceMesh>(), target);
}

std::string explain_python_call(
    const std::string& call, const py::args& arguments) {
  if (is_redistribution(call)) {
    return explain_redistribution(arguments);
  }
  std::vector<c10::IValue> values;
  for (const py::handle argument : arguments) {
    values.push_back(argument_from(argument, "explain"));
  }
  const py::gil_scoped_release unlock;
  return detail::explain_call(call, std::move(values));
}

void bind_operators(py::module_& module) {
  py::class_<OperatorInfo>(module, "OperatorInfo", R"doc(
How an operator runs on sharded tensors: name, form, rule, text, gathers.

>>> [o.form for o in tessera.list_operators() if o.name == "aten::mm"]
['factors'])doc")
      .def_readonly("name", &OperatorInfo::name)
      .def_readonly("form", &OperatorInfo::form)
      .def_readonly("rule", &OperatorInfo::rule)
      .def_readonly("text", &OperatorInfo::text)
      .def_readonly("gathers", &OperatorInfo::gathers)
      .def("__repr__", [](const OperatorInfo& self) {
        return self.name + " " + self.form +
               (self.text.empty() ? "" : " " + self.text);
      });
  module.def("list_operators", &list_operators, NoGil(), R"doc(
Lists every operator that takes a tensor, and how it runs on sharded ones.

>>> len(tessera.list_operators()) > 2000
True)doc");
  module.def("is_rule_form", &is_rule_form, py::arg("form"), R"doc(
Tells whether an operator of this form is served by a rule that can keep a dim cut.

>>> tessera.is_rule_form("pointwise"), tessera.is_rule_form("fallback")
(True, False))doc");
}

}  // namespace

void bind_explain(py::module_& module) {
  module.def("explain", &explain_python_call, py::arg("call"), R"doc(
Says how a call of an operator would run, what would move and how many bytes; nothing
moves. Also explain("redistribute", t, [mesh,] placements).

>>> x = tessera.ones([2, 2], mesh, "S(0)")
>>> print(tessera.explain("mm", x, x).splitlines()[0])
aten::mm(f32[2, 2] S(0), f32[2, 2] S(0)) on mesh(1), rank 0)doc");
  bind_operators(module);
  module.def("dispatched_call_count", &dispatched_call_count, R"doc(
Returns how many calls on sharded tensors have reached Tessera on this thread.

>>> before = tessera.dispatched_call_count()
>>> y = tessera.ones([2], mesh, "S(0)") + 1
>>> tessera.dispatched_call_count() > before
True)doc");
}

}  // namespace tessera::python
