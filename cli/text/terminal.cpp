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

std::string wrapped(
    std::string_view text, const Terminal& terminal, int indent) {
  return base::wrap_lines(text, terminal.width, indent);
}

std::string readable_bytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) {
    return std::to_string(bytes) + " B";
  }
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1023.95 && unit + 1 < std::size(kUnits); ++unit) {
    value /= 1024;
  }
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %s", value, kUnits[unit]);
  return text;
}

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace tessera::cli
