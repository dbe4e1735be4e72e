// What a state dict holds beside tensors: numbers, texts, and lists and dicts
// of such. Kinds that Python tells apart (1 and 1.0, list and tuple, str and
// bytes) are told apart here, so that a checkpoint goes through unchanged.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::io {

class Value {
 public:
  enum class Kind {
    kNone,
    kBool,
    kInteger,
    kFloat,
    kString,  // UTF-8
    kBytes,
    kList,
    kTuple,
    kDict,
    kOpaque,  // an object of Python that no reader of ours knows
  };

  Value() = default;
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value floating(double value);
  static Value string(std::string text);
  static Value bytes(std::string bytes);
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  /// `items` are keys and values in turn.
  static Value dict(std::vector<Value> items);
  /// `what` says what was found: "numpy.ndarray".
  static Value opaque(std::string what);

  Kind kind() const { return kind_; }
  /// Each throws Error (kUsage) where the value is of another kind, and names
  /// what was found; of an opaque one kUnsupported.
  bool as_bool() const;
  int64_t as_integer() const;
  /// An integer too.
  double as_float() const;
  /// The text of a string, the bytes of bytes.
  const std::string& as_string() const;
  const std::string& as_bytes() const;
  /// The elements of a list or tuple.
  const std::vector<Value>& items() const;
  /// The keys and values of a dict, in turn.
  const std::vector<Value>& pairs() const;
  /// What an opaque value is.
  const std::string& opaque_text() const { return text_; }

  /// Compares kinds and contents; floats by their bits, so that a NaN is equal
  /// to itself.
  bool operator==(const Value& other) const;

 private:
  Value(Kind kind, std::string text) : kind_(kind), text_(std::move(text)) {}
  Value(Kind kind, std::vector<Value> items)
      : kind_(kind), items_(std::move(items)) {}
  void require(Kind kind) const;

  Kind kind_ = Kind::kNone;
  int64_t bits_ = 0;  // of a bool, an integer, a double
  std::string text_;
  std::vector<Value> items_;
};

/// Returns "a list", "an integer".
std::string_view describe(Value::Kind kind);

}  // namespace tessera::io
