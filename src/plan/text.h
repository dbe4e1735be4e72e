// How the plan layer prints numbers.
#pragma once

#include <cstdio>
#include <string>

namespace tessera::detail::inline plan_layer {

/// Prints a number with up to 6 digits, as JSON reads it.
inline std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

/// Prints a time: "1.25e-05 s".
inline std::string seconds(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g s", value);
  return text;
}

}  // namespace tessera::detail::inline plan_layer
