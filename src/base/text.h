// Joining values into text.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::base {

/// Prints the elements of a list with `separator` between them.
template <typename List>
std::string join(const List& list, std::string_view separator) {
  std::ostringstream out;
  bool first = true;
  for (const auto& element : list) {
    if (!first) {
      out << separator;
    }
    first = false;
    out << element;
  }
  return out.str();
}

/// Prints "all_gather tp: S(1) -> R, 4096 bytes": one form for steps of plans
/// and for what a log has seen of them.
inline std::string with_bytes(std::string text, int64_t bytes) {
  return std::move(text) + ", " + std::to_string(bytes) + " bytes";
}

}  // namespace tessera::base
