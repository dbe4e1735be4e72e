// How messages name a module by its path.
#pragma once

#include <string>

namespace tessera::detail::inline tensor_layer {

/// Prints a path in quotes; of the root, whose path is empty,
/// "the root module (Net)" with its type.
/// Example: module_name("fc1", "Net", '\'') -> "'fc1'".
inline std::string module_name(
    const std::string& path, const std::string& root_type, char quote) {
  return path.empty() ? "the root module (" + root_type + ")"
                      : quote + path + quote;
}

}  // namespace tessera::detail::inline tensor_layer
