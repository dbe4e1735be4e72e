#include "sharded_tensor/format/text_archive.h"

#include <charconv>

#include <c10/util/Exception.h>
#include <tessera/layout/notation.h>

namespace tessera::sharded_tensor::format {

namespace {

std::string first_line(Kind kind) {
  return c10::str("tessera ", kVersion, " ", name_of(kind));
}

// Long texts are shown by their beginning.
std::string quoted(std::string_view text) {
  constexpr size_t kShown = 60;
  const bool is_long = text.size() > kShown;
  return "'" + escape(text.substr(0, kShown)) + (is_long ? "...'" : "'");
}

// Returns what escape() was given, if that can be.
std::optional<std::string> unescape(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      result.push_back(text[i]);
      continue;
    }
    const std::string_view digits = text.substr(i + 1, 3);
    int byte = 0;
    const auto [end, error] = std::from_chars(
        digits.data() + (digits.empty() ? 0 : 1), digits.data() + digits.size(),
        byte, 16);
    if (digits.size() != 3 || error != std::errc() || byte < 0) {
      return std::nullopt;
    }
    result.push_back(static_cast<char>(byte));
    i += 3;
  }
  return escape(result) == text ? std::optional(result) : std::nullopt;
}

}  // namespace

std::string choice_name(
    const char* name, uint8_t code, const EnumCodec& codec) {
  std::string word = code < codec.count ? codec.name(code) : std::string();
  TORCH_CHECK_VALUE(
      !word.empty(), "serialize: ", static_cast<int>(code), " is no code of ",
      name);
  return word;
}

TextEncoder::TextEncoder(Kind kind) : out_(first_line(kind) + '\n') {}

void TextEncoder::line(std::string_view name, std::string_view value) {
  out_.append(name).append(" ").append(value).append("\n");
}

void TextEncoder::number(const char* name, int64_t value) {
  line(name, std::to_string(value));
}

void TextEncoder::numbers(
    const char* name, const std::vector<int64_t>& values) {
  line(name, shape_to_string(values));
}

void TextEncoder::text(const char* name, const std::string& value) {
  line(name, escape(value));
}

void TextEncoder::choice(
    const char* name, uint8_t code, const EnumCodec& codec) {
  line(name, choice_name(name, code, codec));
}

void TextEncoder::count(const char* name, size_t elements) {
  line(name, std::to_string(elements));
}

TextDecoder::TextDecoder(Kind kind, std::string_view text)
    : Decoder(kind), left_(text) {
  const std::string wanted = first_line(kind);
  const std::string_view found = take_line();
  if (found != wanted) {
    fail("expected TESS or '" + wanted + "', found " + quoted(found));
  }
}

std::string_view TextDecoder::take_line() {
  ++line_;
  const size_t end = left_.find('\n');
  if (end == std::string_view::npos) {
    fail("expected a line with an end, found " + quoted(left_));
  }
  const std::string_view line = left_.substr(0, end);
  left_.remove_prefix(end + 1);
  return line;
}

std::string_view TextDecoder::take_value(const char* name) {
  const std::string start = std::string(name) + ' ';
  const std::string_view line = take_line();
  if (!line.starts_with(start)) {
    fail("expected '" + start + "...', found " + quoted(line));
  }
  return line.substr(start.size());
}

int64_t TextDecoder::parse_number(std::string_view digits) const {
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || std::to_string(value) != digits) {
    fail("expected a number, found " + quoted(digits));
  }
  return value;
}

int64_t TextDecoder::number(const char* name) {
  return parse_number(take_value(name));
}

std::vector<int64_t> TextDecoder::numbers(const char* name) {
  const std::string_view value = take_value(name);
  if (!value.starts_with('[') || !value.ends_with(']') || value.size() < 2) {
    fail("expected a list like [2, 3], found " + quoted(value));
  }
  std::vector<int64_t> result;
  std::string_view list = value.substr(1, value.size() - 2);
  while (!list.empty()) {
    const size_t comma = list.find(", ");
    result.push_back(parse_number(list.substr(0, comma)));
    if (comma == std::string_view::npos) {
      return result;
    }
    list.remove_prefix(comma + 2);
    if (list.empty()) {
      fail("expected a number after the comma of " + quoted(value));
    }
  }
  return result;
}

std::string TextDecoder::text(const char* name) {
  const std::string_view value = take_value(name);
  auto result = unescape(value);
  if (!result) {
    fail(
        "expected printable ASCII and \\xHH for other bytes, found " +
        quoted(value));
  }
  return *std::move(result);
}

uint8_t TextDecoder::choice(const char* name, const EnumCodec& codec) {
  const std::string_view value = take_value(name);
  for (uint8_t code = 0; code < codec.count; ++code) {
    if (!value.empty() && codec.name(code) == value) {
      return code;
    }
  }
  fail(c10::str("expected a ", name, ", found ", quoted(value)));
}

size_t TextDecoder::count(const char* name, size_t least_bytes) {
  const int64_t elements = number(name);
  if (elements < 0 ||
      static_cast<size_t>(elements) > left_.size() / least_bytes) {
    fail(c10::str(
        "a count of ", elements, " exceeds the ", left_.size(),
        " characters left"));
  }
  return static_cast<size_t>(elements);
}

void TextDecoder::finish() {
  if (!left_.empty()) {
    ++line_;
    fail("expected the end, found " + quoted(left_));
  }
}

std::string TextDecoder::location() const {
  return c10::str("line ", line_);
}

}  // namespace tessera::sharded_tensor::format
