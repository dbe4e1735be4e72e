// Joining values into text.
#pragma once

#include <sstream>
#include <string>
#include <string_view>

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

}  // namespace tessera::base
