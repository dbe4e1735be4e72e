#include <base/json.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include <base/hash.h>

namespace tessera::base {

namespace {

template <typename T>
std::string_view print_number(T value, char (&buffer)[40]) {
  const auto [end, error] = std::to_chars(buffer, buffer + 40, value);
  static_cast<void>(error);  // 40 characters hold every number
  return {buffer, static_cast<size_t>(end - buffer)};
}

// Tells whether a character stands for itself in a string, as an ASCII letter
// does; most texts are long runs of such.
bool is_plain(char c) {
  const auto byte = static_cast<uint8_t>(c);
  return byte >= 0x20 && byte < 0x7f && c != '"' && c != '\\';
}

// The length of the run of such characters at the start of a text.
size_t plain_length(std::string_view text) {
  size_t length = 0;
  while (length < text.size() && is_plain(text[length])) {
    ++length;
  }
  return length;
}

void append_escaped(std::string& out, char c) {
  constexpr char kHex[] = "0123456789abcdef";
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  const auto byte = static_cast<uint8_t>(c);
  if (byte < 0x20 || byte == 0x7f) {
    out += "\\u00";
    out.append({kHex[byte >> 4], kHex[byte & 15]});
  } else {
    out.push_back(c);
  }
}

// The length of the well-formed UTF-8 sequence at the start of `bytes`, 0 where
// there is none. Second bytes are bounded so that no code point has two forms:
//   E0 A0.. | ED ..9F (no surrogates) | F0 90.. | F4 ..8F (up to 10FFFF)
size_t utf8_length(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) {
    return 1;
  }
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || bytes.size() < length) {
    return 0;
  }
  const uint8_t low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < low || byte(1) > high) {
    return 0;
  }
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) {
      return 0;
    }
  }
  return length;
}

}  // namespace

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t length = utf8_length(bytes);
    if (length == 0) {
      return false;
    }
    bytes.remove_prefix(length);
  }
  return true;
}

void append_utf8(std::string& out, uint32_t code_point) {
  const auto tail = [&](int shift) {
    out.push_back(static_cast<char>(0x80 | ((code_point >> shift) & 0x3f)));
  };
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out.push_back(static_cast<char>(0xc0 | (code_point >> 6)));
    tail(0);
  } else if (code_point < 0x10000) {
    out.push_back(static_cast<char>(0xe0 | (code_point >> 12)));
    tail(6);
    tail(0);
  } else {
    out.push_back(static_cast<char>(0xf0 | (code_point >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

void JsonWriter::separate() {
  if (needs_comma_) {
    text_.push_back(',');
  }
  needs_comma_ = true;
}

JsonWriter& JsonWriter::raw(std::string_view text) {
  separate();
  text_.append(text);
  return *this;
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  text_.push_back(bracket);
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  text_.push_back(bracket);
  needs_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view text) {
  string(text);
  text_.push_back(':');
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view text) {
  separate();
  text_.push_back('"');
  while (!text.empty()) {
    const size_t plain = plain_length(text);
    text_.append(text, 0, plain);
    text.remove_prefix(plain);
    if (!text.empty()) {
      append_escaped(text_, text[0]);
      text.remove_prefix(1);
    }
  }
  text_.push_back('"');
  return *this;
}

JsonWriter& JsonWriter::integer(int64_t value) {
  char buffer[40];
  return raw(print_number(value, buffer));
}

JsonWriter& JsonWriter::unsigned_integer(uint64_t value) {
  char buffer[40];
  return raw(print_number(value, buffer));
}

JsonWriter& JsonWriter::number(double value) {
  if (!std::isfinite(value)) {
    throw std::invalid_argument(
        "JSON has no number for " + std::to_string(value));
  }
  char buffer[40];
  std::string text(print_number(value, buffer));
  if (text.find_first_of(".e") == std::string::npos) {
    text += ".0";
  }
  return raw(text);
}

JsonWriter& JsonWriter::boolean(bool value) {
  return raw(value ? "true" : "false");
}

JsonWriter& JsonWriter::null() {
  return raw("null");
}

JsonWriter& JsonWriter::integers(const std::vector<int64_t>& values) {
  begin_array();
  for (const int64_t value : values) {
    integer(value);
  }
  return end_array();
}

std::string JsonWriter::take() {
  needs_comma_ = false;
  return std::exchange(text_, {});
}

void JsonWriter::clear() {
  needs_comma_ = false;
  text_.clear();
}

JsonReader::JsonReader(std::string_view text, size_t most_depth)
    : text_(text), most_depth_(most_depth) {}

void JsonReader::fail(const std::string& problem) const {
  throw JsonError(problem, at_);
}

void JsonReader::skip_space() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' ||
                                text_[at_] == '\r' || text_[at_] == '\t')) {
    ++at_;
  }
}

// The next character that is no white space; it is not read.
char JsonReader::next_char() {
  skip_space();
  if (at_ == text_.size()) {
    fail("the text ends early");
  }
  return text_[at_];
}

void JsonReader::expect(char c) {
  if (next_char() != c) {
    fail(std::string("expected '") + c + "'");
  }
  ++at_;
}

void JsonReader::expect_word(std::string_view word) {
  if (text_.substr(at_, word.size()) != word) {
    fail("expected a value");
  }
  at_ += word.size();
}

JsonKind JsonReader::kind_at(char c) {
  switch (c) {
    case '{':
      return JsonKind::kObject;
    case '[':
      return JsonKind::kArray;
    case '"':
      return JsonKind::kString;
    case 't':
    case 'f':
      return JsonKind::kBool;
    case 'n':
      return JsonKind::kNull;
    default:
      break;
  }
  if (c != '-' && (c < '0' || c > '9')) {
    fail("expected a value");
  }
  const size_t start = at_;
  bool is_integer = false;
  number_token(&is_integer);
  at_ = start;
  return is_integer ? JsonKind::kInteger : JsonKind::kNumber;
}

JsonKind JsonReader::peek() {
  return kind_at(next_char());
}

void JsonReader::open(char bracket, bool is_object) {
  expect(bracket);
  if (levels_.size() == most_depth_) {
    fail("nested deeper than " + std::to_string(most_depth_));
  }
  levels_.push_back({is_object, true, key_hashes_.size()});
}

void JsonReader::close(char bracket) {
  expect(bracket);
  levels_.pop_back();
}

void JsonReader::begin_object() {
  open('{', true);
}

void JsonReader::begin_array() {
  open('[', false);
}

// Reads the comma before a member that is not the first; false where the object
// or array ends.
bool JsonReader::next_member(char bracket) {
  Level& level = levels_.back();
  if (next_char() == bracket) {
    return false;
  }
  if (!level.is_first) {
    expect(',');
  }
  level.is_first = false;
  return true;
}

// Two keys with one hash are taken for equal: then a text is refused that is
// fine, once in 2^64 pairs, and none is accepted that is not.
void JsonReader::refuse_twin_keys() {
  constexpr ptrdiff_t kFew = 8;  // are compared faster than they are sorted
  const auto first = key_hashes_.begin() +
                     static_cast<ptrdiff_t>(levels_.back().first_key_hash);
  bool has_twins = false;
  if (key_hashes_.end() - first <= kFew) {
    for (auto one = first; one != key_hashes_.end(); ++one) {
      has_twins |= std::find(first, one, *one) != one;
    }
  } else {
    std::sort(first, key_hashes_.end());
    has_twins =
        std::adjacent_find(first, key_hashes_.end()) != key_hashes_.end();
  }
  if (has_twins) {
    fail("an object has two equal keys; it ends");
  }
  key_hashes_.erase(first, key_hashes_.end());
}

bool JsonReader::next_key() {
  if (!next_member('}')) {
    refuse_twin_keys();
    close('}');
    return false;
  }
  key_ = read_string();
  key_hashes_.push_back(hash_bytes(key_));
  expect(':');
  return true;
}

bool JsonReader::next_element() {
  if (!next_member(']')) {
    close(']');
    return false;
  }
  return true;
}

uint32_t JsonReader::read_hex4() {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    const char lower = static_cast<char>(c | 0x20);
    if (c >= '0' && c <= '9') {
      value = value * 16 + static_cast<uint32_t>(c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      value = value * 16 + static_cast<uint32_t>(lower - 'a' + 10);
    } else {
      fail("expected four hexadecimal digits");
    }
  }
  return value;
}

void JsonReader::read_escape(std::string& out) {
  ++at_;  // the backslash
  const char c = at_ < text_.size() ? text_[at_] : '\0';
  constexpr std::string_view kShort = "\"\\/bfnrt";
  constexpr std::string_view kMeaning = "\"\\/\b\f\n\r\t";
  if (const size_t i = kShort.find(c); c != '\0' && i != kShort.npos) {
    out.push_back(kMeaning[i]);
    ++at_;
    return;
  }
  if (c != 'u') {
    fail("unknown escape in a string");
  }
  ++at_;
  uint32_t code = read_hex4();
  if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_, 2) == "\\u") {
    at_ += 2;
    const uint32_t low = read_hex4();
    if (low < 0xdc00 || low > 0xdfff) {
      fail("half of a surrogate pair");
    }
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  } else if (code >= 0xd800 && code <= 0xdfff) {
    fail("half of a surrogate pair");
  }
  append_utf8(out, code);
}

void JsonReader::copy_utf8(std::string& out) {
  const std::string_view rest = text_.substr(at_);
  const size_t length = utf8_length(rest);
  if (length == 0 || static_cast<uint8_t>(rest[0]) < 0x20) {
    fail(length == 0 ? "not UTF-8" : "control character in a string");
  }
  out.append(rest.substr(0, length));
  at_ += length;
}

std::string JsonReader::read_string() {
  expect('"');
  std::string out;
  for (;;) {
    const size_t plain = plain_length(text_.substr(at_));
    out.append(text_, at_, plain);
    at_ += plain;
    if (at_ == text_.size()) {
      fail("a string does not end");
    }
    const char c = text_[at_];
    if (c == '"') {
      ++at_;
      return out;
    }
    if (c == '\\') {
      read_escape(out);
    } else {
      copy_utf8(out);
    }
  }
}

// -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
std::string_view JsonReader::number_token(bool* is_integer) {
  next_char();
  const size_t start = at_;
  const auto look = [&] { return at_ < text_.size() ? text_[at_] : '\0'; };
  const auto digits = [&] {
    const size_t first = at_;
    while (look() >= '0' && look() <= '9') {
      ++at_;
    }
    if (at_ == first) {
      fail("expected a digit");
    }
    return at_ - first;
  };
  at_ += look() == '-';
  const bool leading_zero = look() == '0';
  if (digits() > 1 && leading_zero) {
    fail("a number begins with 0");
  }
  *is_integer = true;
  if (look() == '.') {
    ++at_;
    digits();
    *is_integer = false;
  }
  if ((look() | 0x20) == 'e') {
    ++at_;
    at_ += look() == '-' || look() == '+';
    digits();
    *is_integer = false;
  }
  return text_.substr(start, at_ - start);
}

int64_t JsonReader::read_integer() {
  bool is_integer = false;
  const std::string_view token = number_token(&is_integer);
  int64_t value = 0;
  const char* end = token.data() + token.size();
  const auto result = std::from_chars(token.data(), end, value);
  if (!is_integer || result.ec != std::errc() || result.ptr != end) {
    fail("expected an integer of 64 bits, got " + std::string(token));
  }
  return value;
}

uint64_t JsonReader::read_unsigned() {
  bool is_integer = false;
  const std::string_view token = number_token(&is_integer);
  uint64_t value = 0;
  const char* end = token.data() + token.size();
  const auto result = std::from_chars(token.data(), end, value);
  if (!is_integer || result.ec != std::errc() || result.ptr != end) {
    fail(
        "expected an integer of 64 bits that is not negative, got " +
        std::string(token));
  }
  return value;
}

double JsonReader::read_number() {
  bool is_integer = false;
  const std::string_view token = number_token(&is_integer);
  double value = 0;
  const auto result =
      std::from_chars(token.data(), token.data() + token.size(), value);
  if (result.ec != std::errc()) {
    fail("a number beyond the range of a double");
  }
  return value;
}

bool JsonReader::read_bool() {
  const bool value = next_char() == 't';
  expect_word(value ? "true" : "false");
  return value;
}

void JsonReader::read_null() {
  next_char();
  expect_word("null");
}

std::vector<int64_t> JsonReader::read_integers() {
  constexpr size_t kFew = 4;  // dims of most tensors
  std::vector<int64_t> values;
  begin_array();
  while (next_element()) {
    if (values.empty()) {
      values.reserve(kFew);
    }
    values.push_back(read_integer());
  }
  return values;
}

void JsonReader::skip_value() {
  const size_t depth = levels_.size();
  do {
    if (levels_.size() > depth) {
      const bool more = levels_.back().is_object ? next_key() : next_element();
      if (!more) {
        continue;
      }
    }
    switch (peek()) {
      case JsonKind::kObject:
        begin_object();
        break;
      case JsonKind::kArray:
        begin_array();
        break;
      case JsonKind::kString:
        read_string();
        break;
      case JsonKind::kInteger:
      case JsonKind::kNumber: {
        bool is_integer = false;
        number_token(&is_integer);
        break;
      }
      case JsonKind::kBool:
        read_bool();
        break;
      case JsonKind::kNull:
        read_null();
        break;
    }
  } while (levels_.size() > depth);
}

void JsonReader::finish() {
  skip_space();
  if (at_ != text_.size()) {
    fail("more text after the value");
  }
}

}  // namespace tessera::base
