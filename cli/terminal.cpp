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
