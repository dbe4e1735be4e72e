// The text of an HloSharding, taken apart.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <tessera/layout/placement.h>

namespace tessera::detail::inline layout_layer {

/// Tile counts, and the devices in row-major order of tiles: either listed, or
/// iota of `iota_sizes`, transposed so that dim iota_order[0] is outermost.
struct HloText {
  enum class Kind : uint8_t { kReplicated, kUnreduced, kMaximal, kTiled };
  enum class Group : uint8_t { kUnreduced, kReplicated };

  Kind kind = Kind::kReplicated;
  ReduceOp reduce_op = ReduceOp::kSum;
  int64_t device = 0;            // kMaximal
  std::vector<int64_t> tiles;    // kTiled: per tensor dim, then per group
  std::vector<Group> groups;     // the last tile counts stand for these
  std::vector<int64_t> devices;  // empty: iota
  std::vector<int64_t> iota_sizes;
  std::vector<int64_t> iota_order;
};

/// The name of the call in messages about such a text.
constexpr const char* kFromHloSharding = "from_hlo_sharding";

/// Parses a text for a tensor of `ndim` dims; devices are 0 .. n-1, each once.
HloText parse_hlo_text(std::string_view text, int64_t ndim);

/// Metadata that tells that partial values combine by max or by min.
constexpr std::string_view kHloReduction = "sdy::reduction_op";

}  // namespace tessera::detail::inline layout_layer
