// Variables of the environment.
#pragma once

#include <cstdlib>
#include <string>

namespace tessera::base {

/// Returns a variable of the environment; "" where it is not set.
inline std::string environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

}  // namespace tessera::base
