#include <io/model/value.h>

#include <bit>

#include <io/files/error.h>

namespace tessera::io {

std::string_view describe(Value::Kind kind) {
  switch (kind) {
    case Value::Kind::kNone:
      return "None";
    case Value::Kind::kBool:
      return "a bool";
    case Value::Kind::kInteger:
      return "an integer";
    case Value::Kind::kFloat:
      return "a float";
    case Value::Kind::kString:
      return "a string";
    case Value::Kind::kBytes:
      return "bytes";
    case Value::Kind::kList:
      return "a list";
    case Value::Kind::kTuple:
      return "a tuple";
    case Value::Kind::kDict:
      return "a dict";
    case Value::Kind::kOpaque:
      return "an opaque object";
  }
  return "";
}

Value Value::boolean(bool value) {
  Value result(Kind::kBool, std::string());
  result.bits_ = value ? 1 : 0;
  return result;
}

Value Value::integer(int64_t value) {
  Value result(Kind::kInteger, std::string());
  result.bits_ = value;
  return result;
}

Value Value::floating(double value) {
  Value result(Kind::kFloat, std::string());
  result.bits_ = std::bit_cast<int64_t>(value);
  return result;
}

Value Value::string(std::string text) {
  return Value(Kind::kString, std::move(text));
}

Value Value::bytes(std::string bytes) {
  return Value(Kind::kBytes, std::move(bytes));
}

Value Value::list(std::vector<Value> items) {
  return Value(Kind::kList, std::move(items));
}

Value Value::tuple(std::vector<Value> items) {
  return Value(Kind::kTuple, std::move(items));
}

Value Value::dict(std::vector<Value> items) {
  if (items.size() % 2 != 0) {
    throw_usage("value", "a dict has as many values as keys");
  }
  return Value(Kind::kDict, std::move(items));
}

Value Value::opaque(std::string what) {
  return Value(Kind::kOpaque, std::move(what));
}

void Value::require(Kind kind) const {
  if (kind_ == kind) {
    return;
  }
  if (kind_ == Kind::kOpaque) {
    throw_unsupported(
        "value", "asked for " + std::string(describe(kind)) +
                     "; it is an object of Python that is not read: " + text_);
  }
  throw_usage(
      "value", "asked for " + std::string(describe(kind)) + "; it is " +
                   std::string(describe(kind_)));
}

bool Value::as_bool() const {
  require(Kind::kBool);
  return bits_ != 0;
}

int64_t Value::as_integer() const {
  require(Kind::kInteger);
  return bits_;
}

double Value::as_float() const {
  if (kind_ == Kind::kInteger) {
    return static_cast<double>(bits_);
  }
  require(Kind::kFloat);
  return std::bit_cast<double>(bits_);
}

const std::string& Value::as_string() const {
  require(Kind::kString);
  return text_;
}

const std::string& Value::as_bytes() const {
  require(Kind::kBytes);
  return text_;
}

const std::vector<Value>& Value::items() const {
  require(kind_ == Kind::kTuple ? Kind::kTuple : Kind::kList);
  return items_;
}

const std::vector<Value>& Value::pairs() const {
  require(Kind::kDict);
  return items_;
}

bool Value::operator==(const Value& other) const {
  return kind_ == other.kind_ && bits_ == other.bits_ && text_ == other.text_ &&
         items_ == other.items_;
}

}  // namespace tessera::io
