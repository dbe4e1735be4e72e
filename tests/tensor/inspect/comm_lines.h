// Lines of logs, explanations and plans, to be compared with each other.
#pragma once

#include <mutex>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <tessera/tessera.h>

namespace tessera::testing {

using Lines = std::vector<std::string>;

inline Lines lines_of(const std::vector<CommLogEntry>& entries) {
  Lines lines;
  for (const CommLogEntry& entry : entries) {
    lines.push_back(entry.line());
  }
  return lines;
}

/// Held while a regular expression is used: the library's tables of character
/// classes fill without a lock.
inline std::mutex& regex_mutex() {
  static std::mutex instance;
  return instance;
}

/// Returns the lines of numbered steps in which ranks talk to each other, less
/// number and cost: "all_gather tp: S(1) -> R, 4096 bytes".
inline Lines step_lines(const std::string& text) {
  const std::lock_guard<std::mutex> lock(regex_mutex());
  static const std::regex step(R"(\s*\d+\. (.* bytes), [^ ]+ s)");
  std::istringstream in(text);
  Lines lines;
  for (std::string line; std::getline(in, line);) {
    std::smatch found;
    if (std::regex_match(line, found, step) &&
        found[1].str().rfind("slice ", 0) != 0 &&
        found[1].str().rfind("to_partial ", 0) != 0) {
      lines.push_back(found[1]);
    }
  }
  return lines;
}

}  // namespace tessera::testing
