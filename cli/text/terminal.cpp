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

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace tessera::cli
