// Text that came from elsewhere, safe to print on one line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::base {

/// Returns text with all but printable ASCII, and the backslash, as \xHH.
inline std::string escape(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string result;
  for (const char c : text) {
    if (c >= ' ' && c <= '~' && c != '\\') {
      result.push_back(c);
    } else {
      const auto byte = static_cast<uint8_t>(c);
      result.append({'\\', 'x', kHex[byte >> 4], kHex[byte & 15]});
    }
  }
  return result;
}

}  // namespace tessera::base
