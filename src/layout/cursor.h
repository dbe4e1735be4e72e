// Reading a text of the notation from left to right.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::detail::inline layout_layer {

/// A place in a text. Every reading function skips blanks first, except where
/// it says otherwise.
class Cursor {
 public:
  /// `call` names the parsing function in errors; `text` must outlive this.
  Cursor(const char* call, std::string_view text) : call_(call), text_(text) {}

  void skip_blanks();
  /// Tells whether only blanks are left.
  bool at_end();
  /// Tells whether `token` comes next.
  bool sees(std::string_view token);
  /// Moves past `token` where it comes next; tells whether it did.
  bool accept(std::string_view token);
  /// Moves past `token`; `expected` says what it stands for in the error.
  void expect(std::string_view token, const char* expected);
  /// Reads a decimal number with an optional minus.
  int64_t number(const char* expected);
  /// Reads letters, digits, '_', '.', '-' that begin with a letter or '_'; ""
  /// where no such word comes next.
  std::string_view word();
  /// Checks that only blanks are left.
  void finish(const char* expected);

  /// Tells whether the next character, blanks not skipped, is a blank.
  bool on_blank() const;
  size_t offset() const { return at_; }
  void move_to(size_t offset) { at_ = offset; }
  /// Raises the error for this place.
  [[noreturn]] void fail(const std::string& expected) const;

 private:
  const char* call_;
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace tessera::detail::inline layout_layer
