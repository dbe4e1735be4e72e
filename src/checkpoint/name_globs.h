// Names of a checkpoint by pattern: `*` stands for any text, dots included.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::detail::inline checkpoint_layer {

/// Example: matches("model.*.weight", "model.blocks.0.weight") -> true.
bool matches(std::string_view pattern, std::string_view name);
bool matches_any(
    const std::vector<std::string>& patterns, std::string_view name);

}  // namespace tessera::detail::inline checkpoint_layer
