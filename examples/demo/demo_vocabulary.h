// The characters of a text: what the demo's GPT reads and writes.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace tessera::cli {

/// Returns the characters that occur, each once, in order of their codes.
inline std::string characters_of(std::string_view text) {
  const std::set<char> sorted(text.begin(), text.end());
  return {sorted.begin(), sorted.end()};
}

}  // namespace tessera::cli
