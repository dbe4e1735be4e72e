// The first element that a set of boxes does not cover exactly once.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <tessera/layout/box.h>

namespace tessera::detail::inline layout_layer {

/// Returns the row-major first element that lies in `outer` and not in exactly
/// one of `boxes`, or beyond `outer` and in some of them; nothing when `boxes`
/// cover `outer` exactly. See Note [Covers by cancellation].
std::optional<std::vector<int64_t>> first_miscovered(
    const std::vector<Box>& boxes, const Box& outer);

}  // namespace tessera::detail::inline layout_layer
