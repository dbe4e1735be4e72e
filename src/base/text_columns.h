// Text for readers, measured in columns rather than bytes: padding, centering,
// lines of a width, numbers with commas.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::base {

/// Returns the number of columns of UTF-8 text without control sequences.
inline int columns(std::string_view text) {
  // Continuation bytes 10xxxxxx take no column of their own.
  return static_cast<int>(std::count_if(
      text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

inline std::string repeat(std::string_view text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) {
    result += text;
  }
  return result;
}

inline std::string pad_left(std::string_view text, int width) {
  return repeat(" ", width - columns(text)) + std::string(text);
}

inline std::string pad_right(std::string_view text, int width) {
  return std::string(text) + repeat(" ", width - columns(text));
}

inline std::string center(std::string_view text, int width) {
  const int left = (width - columns(text)) / 2;
  return pad_right(repeat(" ", left) + std::string(text), width);
}

/// Where a text that is too wide is broken: the bytes of its first line, and
/// those from which the next one goes on.
struct LineEnd {
  size_t length;
  size_t next;
};

/// Finds the end of the first line of at most `width` columns: behind "; " in
/// the second half of the line, else at a space, else inside a word, behind one
/// of "_.,:/".
inline LineEnd find_line_end(std::string_view text, int width) {
  size_t space = 0, clause = 0, inside = 0, fits = 0;
  int column = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    column += columns(text.substr(i, 1));
    if (text[i] == ' ' && column <= width + 1 && i > 0) {
      space = i;
      clause = text[i - 1] == ';' && 2 * column > width ? i : clause;
    }
    if (column > width) {
      break;
    }
    fits = i + 1;
    inside = std::string_view("_.,:/").find(text[i]) != std::string_view::npos
                 ? i + 1
                 : inside;
  }
  if (const size_t end = clause > 0 ? clause : space; end > 0) {
    return {end, end + 1};
  }
  const size_t end = inside > 0 ? inside : std::max<size_t>(fits, 1);
  return {end, end};
}

/// Breaks text into lines of at most `width` columns; see find_line_end().
inline std::vector<std::string> break_lines(std::string_view text, int width) {
  std::vector<std::string> lines;
  while (columns(text) > width) {
    const LineEnd end = find_line_end(text, width);
    lines.emplace_back(text.substr(0, end.length));
    text.remove_prefix(end.next);
  }
  lines.emplace_back(text);
  return lines;
}

/// Breaks those lines of a text that have more than `width` columns; what
/// follows in such a line is indented.
inline std::string wrap_lines(std::string_view text, int width, int indent) {
  std::string result;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    std::string margin;
    while (columns(line) + columns(margin) > width) {
      const LineEnd line_end = find_line_end(line, width - columns(margin));
      result += margin + std::string(line.substr(0, line_end.length)) + "\n";
      line.remove_prefix(line_end.next);
      margin = repeat(" ", indent);
    }
    result += margin + std::string(line) + (end < text.size() ? "\n" : "");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

/// Prints "12,582,912".
inline std::string with_commas(int64_t value) {
  std::string digits = std::to_string(value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3; i -= 3) {
    digits.insert(i - 3, ",");
  }
  return digits;
}

/// Prints "1 rank", "4 ranks".
inline std::string counted(int64_t count, std::string_view noun) {
  return with_commas(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

}  // namespace tessera::base
