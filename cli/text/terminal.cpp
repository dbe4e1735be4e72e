#include "terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>

namespace tessera::cli {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value = environment(name);
    if (value.empty()) {
      continue;
    }
    std::transform(value.begin(), value.end(), value.begin(), [](char c) {
      return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    });
    return value.find("utf-8") != std::string::npos ||
           value.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace

Terminal detect_terminal(int fd, bool force_ascii) {
  Terminal terminal;
  terminal.is_terminal = isatty(fd) == 1;
  terminal.utf8 = !force_ascii && locale_is_utf8();
  terminal.color = terminal.is_terminal && environment("NO_COLOR").empty() &&
                   environment("TERM") != "dumb";
  winsize size{};
  if (terminal.is_terminal && ioctl(fd, TIOCGWINSZ, &size) == 0 &&
      size.ws_col > 0) {
    terminal.width = std::clamp<int>(size.ws_col, 40, 160);
  }
  return terminal;
}

int columns(std::string_view text) {
  // Continuation bytes 10xxxxxx take no column of their own.
  return static_cast<int>(std::count_if(
      text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string repeat(std::string_view text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) {
    result += text;
  }
  return result;
}

std::string pad_left(std::string_view text, int width) {
  return repeat(" ", width - columns(text)) + std::string(text);
}

std::string pad_right(std::string_view text, int width) {
  return std::string(text) + repeat(" ", width - columns(text));
}

std::string center(std::string_view text, int width) {
  const int left = (width - columns(text)) / 2;
  return pad_right(repeat(" ", left) + std::string(text), width);
}

namespace {

// Where a text that is too wide is cut: the bytes of its first line, and those
// from which the next one goes on.
struct LineEnd {
  size_t length;
  size_t next;
};

LineEnd find_line_end(std::string_view text, int width) {
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

}  // namespace

std::vector<std::string> cut_lines(std::string_view text, int width) {
  std::vector<std::string> lines;
  while (columns(text) > width) {
    const LineEnd end = find_line_end(text, width);
    lines.emplace_back(text.substr(0, end.length));
    text.remove_prefix(end.next);
  }
  lines.emplace_back(text);
  return lines;
}

std::string wrapped(
    std::string_view text, const Terminal& terminal, int indent) {
  std::string result;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    std::string margin;
    while (columns(line) + columns(margin) > terminal.width) {
      const LineEnd cut = find_line_end(line, terminal.width - columns(margin));
      result += margin + std::string(line.substr(0, cut.length)) + "\n";
      line.remove_prefix(cut.next);
      margin = repeat(" ", indent);
    }
    result += margin + std::string(line) + (end < text.size() ? "\n" : "");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

std::string with_commas(int64_t value) {
  std::string digits = std::to_string(value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3; i -= 3) {
    digits.insert(i - 3, ",");
  }
  return digits;
}

std::string counted(int64_t count, std::string_view noun) {
  return with_commas(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace tessera::cli
