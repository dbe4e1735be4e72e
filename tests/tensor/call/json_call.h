// Calls as scripts/upstream_strategies.py writes them, from JSON to a stack.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/scalar_tensor.h>
#include <tensor/run/run_off_mesh.h>
#include <tensor/state/strides.h>
#include <tessera/layout/notation.h>
#include <nlohmann/json.hpp>

namespace tessera {

using Json = nlohmann::json;

inline c10::ScalarType dtype_of(const std::string& name) {
  static const std::map<std::string, c10::ScalarType> kNames{
      {"f32", c10::kFloat},        {"f64", c10::kDouble},
      {"f16", c10::kHalf},         {"bf16", c10::kBFloat16},
      {"i64", c10::kLong},         {"i32", c10::kInt},
      {"i16", c10::kShort},        {"i8", c10::kChar},
      {"u8", c10::kByte},          {"bool", c10::kBool},
      {"c64", c10::kComplexFloat}, {"c128", c10::kComplexDouble}};
  return kNames.at(name);
}

/// Makes the arguments of one call; its tensors are sharded on `mesh`, have no
/// data, and take their placements in turn.
class JsonCall {
 public:
  JsonCall(
      const c10::FunctionSchema& schema, const Json& arguments,
      const DeviceMesh& mesh, const std::vector<std::string>& placements)
      : mesh_(mesh), placements_(placements) {
    for (const c10::Argument& argument : schema.arguments()) {
      const auto given = arguments.find(argument.name());
      stack_.push_back(
          given != arguments.end()
              ? value_of(*given, argument.type())
              : argument.default_value().value_or(c10::IValue()));
    }
  }

  torch::jit::Stack& stack() { return stack_; }
  /// Returns the sharded tensors in the order of their placements.
  const std::vector<at::Tensor>& tensors() const { return tensors_; }

 private:
  at::Tensor tensor_of(const Json& json) {
    if (json.is_number()) {
      return at::scalar_tensor(json.get<double>());
    }
    const auto shape = json.at("tensor").get<std::vector<int64_t>>();
    const auto strides = json.contains("stride")
                             ? json.at("stride").get<std::vector<int64_t>>()
                             : detail::contiguous_strides(shape);
    const SpecPtr spec = DTensorSpec::make(
        mesh_, {parse_placement(placements_.at(tensors_.size()))}, shape,
        strides, dtype_of(json.at("dtype").get<std::string>()));
    tensors_.push_back(detail::wrap_without_data(spec, at::kCPU));
    return tensors_.back();
  }

  static double float_of(const Json& json) {
    return json.is_object() ? std::stod(json.at("float").get<std::string>())
                            : json.get<double>();
  }

  static c10::IValue number_of(const Json& json) {
    if (json.is_object() && json.contains("complex")) {
      return c10::complex<double>(
          float_of(json.at("complex")[0]), float_of(json.at("complex")[1]));
    }
    if (json.is_boolean()) {
      return json.get<bool>();
    }
    return json.is_number_integer() ? c10::IValue(json.get<int64_t>())
                                    : c10::IValue(float_of(json));
  }

  // Schemas give dtypes, layouts and memory formats the type of an integer.
  static int64_t integer_of(const Json& json) {
    if (!json.is_object()) {
      return json.get<int64_t>();
    }
    if (json.contains("dtype")) {
      return static_cast<int64_t>(
          dtype_of(json.at("dtype").get<std::string>()));
    }
    static const std::map<std::string, int64_t> kNames{
        {"torch.strided", static_cast<int64_t>(c10::kStrided)},
        {"torch.contiguous_format",
         static_cast<int64_t>(c10::MemoryFormat::Contiguous)},
        {"torch.preserve_format",
         static_cast<int64_t>(c10::MemoryFormat::Preserve)},
        {"torch.channels_last",
         static_cast<int64_t>(c10::MemoryFormat::ChannelsLast)}};
    return kNames.at(json.at("constant").get<std::string>());
  }

  template <class T, class F>
  static c10::IValue list_of(const Json& json, F element) {
    c10::List<T> list;
    for (const Json& one : json.is_array() ? json : Json::array({json})) {
      list.push_back(element(one));
    }
    return list;
  }

  c10::IValue optional_tensors_of(const Json& json) {
    c10::List<std::optional<at::Tensor>> list;
    for (const Json& one : json) {
      list.push_back(
          one.is_null() ? std::nullopt
                        : std::optional<at::Tensor>(tensor_of(one)));
    }
    return list;
  }

  c10::IValue list_value(const Json& json, const c10::TypePtr& element) {
    switch (element->kind()) {
      case c10::TypeKind::TensorType:
        return list_of<at::Tensor>(
            json, [&](const Json& one) { return tensor_of(one); });
      case c10::TypeKind::OptionalType:
        return optional_tensors_of(json);
      case c10::TypeKind::IntType:
        return list_of<int64_t>(json, integer_of);
      case c10::TypeKind::FloatType:
        return list_of<double>(json, float_of);
      case c10::TypeKind::BoolType:
        return list_of<bool>(
            json, [](const Json& one) { return one.get<bool>(); });
      default: {
        c10::impl::GenericList list(element);
        for (const Json& one : json) {
          list.push_back(number_of(one));
        }
        return list;
      }
    }
  }

  c10::IValue value_of(const Json& json, const c10::TypePtr& type) {
    if (json.is_null()) {
      return {};
    }
    switch (type->kind()) {
      case c10::TypeKind::OptionalType:
        return value_of(
            json, type->castRaw<c10::OptionalType>()->getElementType());
      case c10::TypeKind::ListType:
        return list_value(
            json, type->castRaw<c10::ListType>()->getElementType());
      case c10::TypeKind::TensorType:
        return tensor_of(json);
      case c10::TypeKind::IntType:
        return integer_of(json);
      case c10::TypeKind::FloatType:
        return float_of(json);
      case c10::TypeKind::BoolType:
        return json.get<bool>();
      case c10::TypeKind::StringType:
        return json.get<std::string>();
      case c10::TypeKind::DeviceObjType:
        return c10::Device(json.at("constant").get<std::string>());
      default:
        return number_of(json);
    }
  }

  const DeviceMesh& mesh_;
  const std::vector<std::string>& placements_;
  torch::jit::Stack stack_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace tessera
