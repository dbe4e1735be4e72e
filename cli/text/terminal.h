// What the output can show: width, box characters, colour. And text measured
// in columns rather than bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::cli {

struct Terminal {
  bool is_terminal = false;  // else a file or a pipe: no colour, no redrawing
  bool utf8 = false;         // else plain ASCII
  bool color = false;
  int width = 80;
};

/// Finds out about an open file descriptor. UTF-8 follows LC_ALL, LC_CTYPE,
/// LANG; NO_COLOR and TERM=dumb switch colour off.
Terminal detect_terminal(int fd, bool force_ascii);

/// Returns the number of columns of UTF-8 text without control sequences.
int columns(std::string_view text);
std::string repeat(std::string_view text, int count);
std::string pad_left(std::string_view text, int width);
std::string pad_right(std::string_view text, int width);
std::string center(std::string_view text, int width);

/// Cuts text into lines of at most `width` columns: behind "; " in the second
/// half of a line, else at a space, else inside a word, behind one of "_.,:/".
std::vector<std::string> cut_lines(std::string_view text, int width);
/// Cuts the lines of a text that are wider than the terminal; what follows in
/// such a line is indented.
std::string wrapped(
    std::string_view text, const Terminal& terminal, int indent = 2);

/// Prints "12,582,912".
std::string with_commas(int64_t value);
/// Prints "1 rank", "4 ranks".
std::string counted(int64_t count, std::string_view noun);

/// Writes all of it to standard output.
void print(std::string_view text);

}  // namespace tessera::cli
