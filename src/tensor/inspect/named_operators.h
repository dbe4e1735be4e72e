// The named list of operators that gather what is cut along the dims that they
// work on: by mathematics, or for now. Everything else that gathers is open.
#pragma once

#include <string>

namespace tessera::detail::inline tensor_layer {

/// Returns why an operator, "aten::sort.stable", needs whole values, or
/// nullptr. In-place and out variants are named by their base.
const char* reason_to_replicate(const std::string& name);

}  // namespace tessera::detail::inline tensor_layer
