#include <tensor/inspect/bind_arguments.h>

#include <sstream>

#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>

namespace tessera::detail::inline tensor_layer {

namespace {

using c10::IValue;
using c10::TypeKind;

std::optional<IValue> converted(
    const IValue& value, const c10::TypePtr& type, std::optional<int32_t> n);

// Takes a list of values of one type, or one value where `n` of it are meant.
std::optional<IValue> converted_list(
    const IValue& value, const c10::ListType& type, std::optional<int32_t> n) {
  auto list = c10::impl::GenericList(type.getElementType());
  if (!value.isList()) {
    const auto element = converted(value, type.getElementType(), std::nullopt);
    if (!element || !n) {
      return std::nullopt;
    }
    for (int32_t i = 0; i < *n; ++i) {
      list.push_back(*element);
    }
    return IValue(std::move(list));
  }
  for (const IValue& given : value.toListRef()) {
    const auto element = converted(given, type.getElementType(), std::nullopt);
    if (!element) {
      return std::nullopt;
    }
    list.push_back(*element);
  }
  return IValue(std::move(list));
}

// The value as a schema's type wants it, or nothing where it does not fit.
std::optional<IValue> converted(
    const IValue& value, const c10::TypePtr& type, std::optional<int32_t> n) {
  if (const auto optional = type->cast<c10::OptionalType>()) {
    if (value.isNone()) {
      return value;
    }
    return converted(value, optional->getElementType(), n);
  }
  if (const auto list = type->cast<c10::ListType>()) {
    return converted_list(value, *list, n);
  }
  bool fits = false;
  if (type->kind() == TypeKind::FloatType && value.isInt()) {
    return static_cast<double>(value.toInt());
  }
  if (type->kind() == TypeKind::NumberType) {
    fits = value.isScalar();
  } else if (
      type->kind() == TypeKind::IntType ||
      type->kind() == TypeKind::SymIntType) {
    fits = value.isInt();
  } else {
    fits = value.type()->isSubtypeOf(*type);
  }
  return fits ? std::optional<IValue>(value) : std::nullopt;
}

// The arguments of a schema, or nothing where those given do not fit.
std::optional<torch::jit::Stack> bound(
    const c10::FunctionSchema& schema, const std::vector<IValue>& given) {
  const auto& wanted = schema.arguments();
  if (given.size() > wanted.size()) {
    return std::nullopt;
  }
  torch::jit::Stack stack;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const std::optional<IValue> value =
        i < given.size() ? converted(given[i], wanted[i].type(), wanted[i].N())
                         : wanted[i].default_value();
    if (!value) {
      return std::nullopt;
    }
    stack.push_back(*value);
  }
  return stack;
}

std::string with_namespace(const std::string& name) {
  return name.find("::") == std::string::npos ? "aten::" + name : name;
}

std::vector<c10::OperatorHandle> overloads_of(const std::string& name) {
  auto& dispatcher = c10::Dispatcher::singleton();
  const std::string full = with_namespace(name);
  const size_t dot = full.find('.');
  std::vector<c10::OperatorHandle> found;
  if (dot != std::string::npos) {
    if (auto op = dispatcher.findSchema(
            {full.substr(0, dot), full.substr(dot + 1)})) {
      found.push_back(*op);
    }
    return found;
  }
  for (const c10::OperatorName& known : dispatcher.getAllOpNames()) {
    if (known.name == full) {
      if (auto op = dispatcher.findSchema(known)) {
        found.push_back(*op);
      }
    }
  }
  return found;
}

template <class List>
std::string schemas_of(const List& ops) {
  std::ostringstream out;
  for (const c10::OperatorHandle& op : ops) {
    out << "\n  " << op.schema();
  }
  return out.str();
}

std::string kinds_of(const std::vector<IValue>& values) {
  std::string text;
  for (const IValue& value : values) {
    text += (text.empty() ? "" : ", ") + value.type()->str();
  }
  return text;
}

}  // namespace

BoundCall bind_arguments(
    const std::string& call, const std::string& name,
    const std::vector<IValue>& arguments) {
  // The overload without a name comes first, and is found without a search.
  if (name.find('.') == std::string::npos) {
    if (auto op = c10::Dispatcher::singleton().findSchema(
            {with_namespace(name), ""})) {
      if (auto stack = bound(op->schema(), arguments)) {
        return {*op, *std::move(stack)};
      }
    }
  }
  const auto overloads = overloads_of(name);
  TORCH_CHECK_VALUE(
      !overloads.empty(), call, ": no operator or function is named '", name,
      "'; names are as in \"aten::add.Tensor\", \"mm\", \"redistribute\"");
  std::vector<BoundCall> calls;
  std::vector<c10::OperatorHandle> fitting;
  for (const c10::OperatorHandle& op : overloads) {
    if (auto stack = bound(op.schema(), arguments)) {
      fitting.push_back(op);
      calls.push_back({op, *std::move(stack)});
    }
  }
  TORCH_CHECK_TYPE(
      !calls.empty(), call, ": '", name, "' does not take (",
      kinds_of(arguments), "); there are:", schemas_of(overloads));
  TORCH_CHECK_TYPE(
      calls.size() == 1, call, ": several overloads of '", name, "' take (",
      kinds_of(arguments), "); name one of:", schemas_of(fitting));
  return std::move(calls.front());
}

}  // namespace tessera::detail::inline tensor_layer
