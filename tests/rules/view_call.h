// A view's rule asked about a call, without tensors.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <rules/rule_entry.h>

#include "layout/reference.h"

namespace tessera::view_tests {

using List = reference::List;

inline const c10::FunctionSchema& schema_of(const std::string& name) {
  const size_t dot = name.find('.');
  const std::string overload =
      dot == std::string::npos ? "" : name.substr(dot + 1);
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(name.substr(0, dot).c_str(), overload.c_str())
      .schema();
}

struct Case {
  std::string name;
  List shape;
  List strides;
  List mesh;
  Placements placements;
  /// All but the tensor.
  std::vector<c10::IValue> arguments;
  c10::ScalarType dtype = c10::ScalarType::Long;
};

inline const detail::Rule& rule_of(const std::string& name) {
  return *detail::find_rule(rules(), schema_of(name), [](const std::string&) {
            return std::vector<const c10::FunctionSchema*>{};
          }).rule;
}

inline ViewLayout layout_of(const Case& c, const List* coordinate) {
  const c10::FunctionSchema& schema = schema_of(c.name);
  Operand operand;
  operand.shape = c.shape;
  operand.strides = c.strides;
  operand.dtype = c.dtype;
  operand.defined = true;
  operand.placements = &c.placements;
  std::vector<c10::IValue> arguments{c10::IValue()};
  arguments.insert(arguments.end(), c.arguments.begin(), c.arguments.end());
  return rule_of(c.name).view(
      RuleCall(schema, arguments, operand), MeshShape(c.mesh), coordinate);
}

/// Returns the operand's placements after what is not kept was replicated.
inline Placements kept(const Case& c, const ViewLayout& layout) {
  Placements placements = c.placements;
  for (size_t m = 0; m < placements.size(); ++m) {
    placements[m] = layout.keeps[m] ? placements[m] : Replicate();
  }
  return placements;
}

/// Returns the flat numbers of the elements at a coordinate, in order.
inline List elements(
    const List& shape, const List& mesh, const Placements& placements,
    const List& coordinate) {
  List numbers{0};
  for (size_t d = 0; d < shape.size(); ++d) {
    const List held = reference::held(
        shape[d], static_cast<int64_t>(d), mesh, placements, coordinate);
    List longer;
    for (const int64_t front : numbers) {
      for (const int64_t i : held) {
        longer.push_back(front * shape[d] + i);
      }
    }
    numbers = std::move(longer);
  }
  return numbers;
}

inline List contiguous(const List& shape) {
  List strides(shape.size());
  int64_t step = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = step;
    step *= std::max<int64_t>(shape[d], 1);
  }
  return strides;
}

inline std::string describe(const Case& c) {
  std::string text = c.name + " [";
  for (const int64_t size : c.shape) {
    text += std::to_string(size) + " ";
  }
  text += "] " + to_string(c.placements) + " mesh";
  for (const int64_t size : c.mesh) {
    text += " " + std::to_string(size);
  }
  return text;
}

}  // namespace tessera::view_tests
