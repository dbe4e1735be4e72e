#include "layout/cursor.h"

#include <algorithm>
#include <charconv>

#include <c10/util/Exception.h>

namespace tessera::detail::inline layout_layer {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool begins_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool continues_word(char c) {
  return begins_word(c) || is_digit(c) || c == '.' || c == '-';
}

}  // namespace

bool Cursor::on_blank() const {
  return at_ < text_.size() && is_blank(text_[at_]);
}

void Cursor::skip_blanks() {
  while (on_blank()) {
    ++at_;
  }
}

bool Cursor::at_end() {
  skip_blanks();
  return at_ == text_.size();
}

bool Cursor::sees(std::string_view token) {
  skip_blanks();
  return text_.substr(at_, token.size()) == token;
}

bool Cursor::accept(std::string_view token) {
  if (!sees(token)) {
    return false;
  }
  at_ += token.size();
  return true;
}

void Cursor::expect(std::string_view token, const char* expected) {
  if (!accept(token)) {
    fail(expected);
  }
}

int64_t Cursor::number(const char* expected) {
  skip_blanks();
  const char* begin = text_.data() + at_;
  const char* end = text_.data() + text_.size();
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error == std::errc::result_out_of_range) {
    fail(std::string(expected) + " of at most 64 bits");
  }
  if (error != std::errc()) {
    fail(expected);
  }
  at_ += static_cast<size_t>(stop - begin);
  return value;
}

std::string_view Cursor::word() {
  skip_blanks();
  const size_t begin = at_;
  if (at_ < text_.size() && begins_word(text_[at_])) {
    while (at_ < text_.size() && continues_word(text_[at_])) {
      ++at_;
    }
  }
  return text_.substr(begin, at_ - begin);
}

void Cursor::finish(const char* expected) {
  if (!at_end()) {
    fail(expected);
  }
}

// Shows at most kWindow characters on each side of the place; what no terminal
// can show becomes '?', so that the caret stands under its character.
void Cursor::fail(const std::string& expected) const {
  constexpr size_t kWindow = 60;
  const size_t begin = at_ > kWindow ? at_ - kWindow : 0;
  const size_t end = std::min(text_.size(), at_ + kWindow);
  std::string shown(text_.substr(begin, end - begin));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; },
      '?');
  const std::string front = begin > 0 ? "..." : "";
  TORCH_CHECK_VALUE(
      false, call_, ": expected ", expected, " at offset ", at_, ":\n  ", front,
      shown, end < text_.size() ? "..." : "", "\n  ",
      std::string(front.size() + at_ - begin, ' '), "^");
}

}  // namespace tessera::detail::inline layout_layer
