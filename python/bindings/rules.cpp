// Rules for operators of the user's own.
#include <tessera/rules/rule_table.h>

#include "bindings.h"

namespace tessera::python {
namespace {

using Names = std::vector<std::string>;

void bind_group(py::module_& module) {
  const auto same = py::return_value_policy::reference_internal;
  py::class_<RuleGroup>(module, "RuleGroup", R"doc(
The rules that one call added; its functions refine all of them.

>>> group = tessera.rules().pointwise(["mine::refined"]).also("sum: P->P")
>>> tessera.rules().remove("mine::refined"))doc")
      .def(
          "also", py::overload_cast<std::string_view>(&RuleGroup::also),
          py::arg("rows"), same)
      .def("bias", &RuleGroup::bias, py::arg("operand"), same)
      .def("shape_argument", &RuleGroup::shape_argument, py::arg("name"), same)
      .def(
          "size_argument", &RuleGroup::size_argument, py::arg("name"),
          py::arg("operand"), py::arg("dim"), same)
      .def("not_empty", &RuleGroup::not_empty, same);
}

void bind_table(py::module_& module) {
  py::class_<RuleTable, std::unique_ptr<RuleTable, py::nodelete>>(
      module, "RuleTable", R"doc(
Rules by operator: "mine::op", "mine::op.overload" or "mine::op.*".

>>> any(line.startswith("aten::mm.* factors") for line in tessera.rules().list())
True)doc")
      .def("factors", &RuleTable::factors, py::arg("name"), py::arg("text"))
      .def("pointwise", &RuleTable::pointwise, py::arg("names"))
      .def(
          "reduction",
          [](RuleTable& self, Names names, std::optional<ReduceOpArg> op) {
            return op ? self.reduction(std::move(names), op->value)
                      : self.reduction(std::move(names));
          },
          py::arg("names"), py::arg("op") = py::none())
      .def("along", &RuleTable::along, py::arg("names"))
      .def(
          "leading", &RuleTable::leading, py::arg("names"), py::arg("trailing"))
      .def(
          "rows",
          [](RuleTable& self, const std::string& name,
             const std::vector<PlacementsArg>& rows) {
            std::vector<std::vector<Placement>> values;
            for (const PlacementsArg& row : rows) {
              values.push_back(row.value);
            }
            return self.rows(name, std::move(values));
          },
          py::arg("name"), py::arg("rows"))
      .def("whole", &RuleTable::whole, py::arg("names"))
      .def("remove", &RuleTable::remove, py::arg("name"))
      .def("list", [](const RuleTable& self) {
        Names lines;
        for (const RuleInfo& info : self.list()) {
          lines.push_back(to_string(info));
        }
        return lines;
      });
}

}  // namespace

void bind_rules(py::module_& module) {
  bind_group(module);
  bind_table(module);
  module.def("rules", &rules, py::return_value_policy::reference, R"doc(
Returns the table of rules of this process, to which operators of one's own are added.

>>> group = tessera.rules().factors("mine::mm", "mk,kn->mn")
>>> tessera.rules().remove("mine::mm"))doc");
}

}  // namespace tessera::python
