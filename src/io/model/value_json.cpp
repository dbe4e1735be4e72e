#include <io/model/value_json.h>

#include <bit>
#include <cmath>

#include <io/checksum/xxh3.h>
#include <io/files/error.h>
#include <io/model/limits.h>

namespace tessera::detail::inline io_layer {

namespace {

using io::Value;

std::string to_hex(std::string_view bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    text.append({kHex[byte >> 4], kHex[byte & 15]});
  }
  return text;
}

std::string from_hex(base::JsonReader& in, std::string_view text) {
  const auto digit = [&](char c) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && (c < 'a' || c > 'f')) {
      in.fail("expected hexadecimal digits");
    }
    return is_digit ? c - '0' : c - 'a' + 10;
  };
  if (text.size() % 2 != 0) {
    in.fail("expected two hexadecimal digits for each byte");
  }
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    bytes.push_back(
        static_cast<char>(16 * digit(text[i]) + digit(text[i + 1])));
  }
  return bytes;
}

void write_nested(base::JsonWriter& out, const Value& value, size_t depth);

void write_items(
    base::JsonWriter& out, const std::vector<Value>& items, size_t depth) {
  out.begin_array();
  for (const Value& item : items) {
    write_nested(out, item, depth + 1);
  }
  out.end_array();
}

void write_pairs(
    base::JsonWriter& out, const std::vector<Value>& pairs, size_t depth) {
  out.begin_array();
  for (size_t i = 0; i < pairs.size(); i += 2) {
    out.begin_array();
    write_nested(out, pairs[i], depth + 1);
    write_nested(out, pairs[i + 1], depth + 1);
    out.end_array();
  }
  out.end_array();
}

void write_float(base::JsonWriter& out, double value) {
  if (std::isfinite(value)) {
    out.number(value);
    return;
  }
  out.begin_object().key("float");
  out.string(print_hex64(std::bit_cast<uint64_t>(value))).end_object();
}

void write_string(base::JsonWriter& out, const std::string& text) {
  if (!base::is_utf8(text)) {
    io::throw_usage("value", "a string is not UTF-8; save it as bytes");
  }
  out.string(text);
}

void write_nested(base::JsonWriter& out, const Value& value, size_t depth) {
  if (depth > kMostValueDepth) {
    io::throw_usage(
        "value", "nested deeper than " + std::to_string(kMostValueDepth));
  }
  switch (value.kind()) {
    case Value::Kind::kNone:
      out.null();
      return;
    case Value::Kind::kBool:
      out.boolean(value.as_bool());
      return;
    case Value::Kind::kInteger:
      out.integer(value.as_integer());
      return;
    case Value::Kind::kFloat:
      write_float(out, value.as_float());
      return;
    case Value::Kind::kString:
      write_string(out, value.as_string());
      return;
    case Value::Kind::kBytes:
      out.begin_object().key("bytes");
      out.string(to_hex(value.as_bytes())).end_object();
      return;
    case Value::Kind::kList:
      write_items(out, value.items(), depth);
      return;
    case Value::Kind::kTuple:
      out.begin_object().key("tuple");
      write_items(out, value.items(), depth);
      out.end_object();
      return;
    case Value::Kind::kDict:
      out.begin_object().key("dict");
      write_pairs(out, value.pairs(), depth);
      out.end_object();
      return;
    case Value::Kind::kOpaque:
      break;
  }
  io::throw_unsupported(
      "value", "an object of Python cannot be saved: " + value.opaque_text());
}

Value read_nested(base::JsonReader& in, size_t depth);

std::vector<Value> read_items(base::JsonReader& in, size_t depth) {
  std::vector<Value> items;
  in.begin_array();
  while (in.next_element()) {
    items.push_back(read_nested(in, depth + 1));
  }
  return items;
}

std::vector<Value> read_pairs(base::JsonReader& in, size_t depth) {
  std::vector<Value> pairs;
  in.begin_array();
  while (in.next_element()) {
    const size_t before = pairs.size();
    in.begin_array();
    while (in.next_element()) {
      pairs.push_back(read_nested(in, depth + 1));
    }
    if (pairs.size() != before + 2) {
      in.fail("expected a key and a value of a dict");
    }
  }
  return pairs;
}

// Only infinities and NaNs: every value has one text.
double read_float_bits(base::JsonReader& in) {
  uint64_t bits = 0;
  if (!parse_hex64(in.read_string(), &bits) ||
      std::isfinite(std::bit_cast<double>(bits))) {
    in.fail("expected the bits of a float that is not finite");
  }
  return std::bit_cast<double>(bits);
}

Value read_tagged(base::JsonReader& in, size_t depth) {
  in.begin_object();
  if (!in.next_key()) {
    in.fail("expected a tuple, dict, bytes or float");
  }
  const std::string tag = in.key();
  Value value;
  if (tag == "tuple") {
    value = Value::tuple(read_items(in, depth));
  } else if (tag == "dict") {
    value = Value::dict(read_pairs(in, depth));
  } else if (tag == "bytes") {
    value = Value::bytes(from_hex(in, in.read_string()));
  } else if (tag == "float") {
    value = Value::floating(read_float_bits(in));
  } else {
    in.fail("expected a tuple, dict, bytes or float");
  }
  if (in.next_key()) {
    in.fail("expected one member");
  }
  return value;
}

Value read_nested(base::JsonReader& in, size_t depth) {
  if (depth > kMostValueDepth) {
    in.fail("values nested deeper than " + std::to_string(kMostValueDepth));
  }
  switch (in.peek()) {
    case base::JsonKind::kNull:
      in.read_null();
      return {};
    case base::JsonKind::kBool:
      return Value::boolean(in.read_bool());
    case base::JsonKind::kInteger:
      return Value::integer(in.read_integer());
    case base::JsonKind::kNumber:
      return Value::floating(in.read_number());
    case base::JsonKind::kString:
      return Value::string(in.read_string());
    case base::JsonKind::kArray:
      return Value::list(read_items(in, depth));
    case base::JsonKind::kObject:
      break;
  }
  return read_tagged(in, depth);
}

}  // namespace

void write_value(base::JsonWriter& out, const Value& value) {
  write_nested(out, value, 0);
}

Value read_value(base::JsonReader& in) {
  return read_nested(in, 0);
}

}  // namespace tessera::detail::inline io_layer
