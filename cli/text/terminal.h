// What the output can show: width, box characters, colour. And text measured
// in columns rather than bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <base/text_columns.h>

namespace tessera::cli {

using base::center;
using base::columns;
using base::counted;
using base::pad_left;
using base::pad_right;
using base::repeat;
using base::with_commas;

struct Terminal {
  bool is_terminal = false;  // else a file or a pipe: no colour, no redrawing
  bool utf8 = false;         // else plain ASCII
  bool color = false;
  int width = 80;
};

/// Finds out about an open file descriptor. UTF-8 follows LC_ALL, LC_CTYPE,
/// LANG; NO_COLOR and TERM=dumb switch colour off.
Terminal detect_terminal(int fd, bool force_ascii);

/// Breaks the lines of a text that are wider than the terminal; what follows in
/// such a line is indented.
std::string wrapped(
    std::string_view text, const Terminal& terminal, int indent = 2);

/// Returns "12 B", "1.5 KiB", "4.0 GiB".
std::string readable_bytes(uint64_t bytes);

/// Writes all of it to standard output.
void print(std::string_view text);

}  // namespace tessera::cli
