// The rows of a call that is described, not made.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <rules/rule_entry.h>

namespace tessera {

/// A tensor of a call; without dtype it is None.
struct Described {
  std::vector<int64_t> shape = {};
  c10::ScalarType dtype = c10::kFloat;
};

inline Described none() {
  return {{}, c10::ScalarType::Undefined};
}

/// Tensors in the order of the schema, other arguments by name; arguments with
/// defaults need not be there.
struct DescribedCall {
  std::string name;  // "aten::add.Tensor"
  std::vector<Described> tensors;
  std::map<std::string, c10::IValue> arguments = {};
};

inline const c10::FunctionSchema& schema_of(const std::string& full) {
  const size_t dot = full.find('.');
  const std::string overload =
      dot == std::string::npos ? "" : full.substr(dot + 1);
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(full.substr(0, dot).c_str(), overload.c_str())
      .schema();
}

inline std::vector<const c10::FunctionSchema*> overloads_of(
    const std::string& name) {
  std::vector<const c10::FunctionSchema*> schemas;
  for (const auto& known : c10::Dispatcher::singleton().getAllOpNames()) {
    if (known.name == name) {
      schemas.push_back(
          &c10::Dispatcher::singleton().findSchema(known)->schema());
    }
  }
  return schemas;
}

inline bool is_tensor(const c10::Argument& argument) {
  return argument.type()->str().rfind("Tensor", 0) == 0;
}

/// Returns the rows of a call as text, all replicated first.
inline std::vector<std::string> rows_of(const DescribedCall& described) {
  const c10::FunctionSchema& schema = schema_of(described.name);
  const detail::FoundRule found =
      detail::find_rule(rules(), schema, overloads_of);
  if (found.rule == nullptr) {
    return {"no rule"};
  }
  std::vector<c10::IValue> arguments;
  std::vector<Operand> operands;
  size_t next = 0;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const auto given = described.arguments.find(argument.name());
    arguments.push_back(
        given != described.arguments.end()
            ? given->second
            : argument.default_value().value_or(c10::IValue()));
    if (is_tensor(argument) && !argument.is_out()) {
      const Described& tensor = described.tensors.at(next++);
      Operand operand;
      operand.shape = tensor.shape;
      operand.dtype = tensor.dtype;
      operand.defined = tensor.dtype != c10::ScalarType::Undefined;
      operand.argument = static_cast<int32_t>(i);
      operands.push_back(operand);
    }
  }
  Rows rows;
  detail::add_rows(*found.rule, RuleCall(schema, arguments, operands), rows);
  std::vector<std::string> texts;
  for (const Rows::Row& row : rows.rows()) {
    texts.push_back(to_string(row));
  }
  return texts;
}

}  // namespace tessera
