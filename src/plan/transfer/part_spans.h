// Where the parts of a tensor lie that the ranks along one mesh dim hold, in
// words whose number does not depend on that of the ranks: equally large parts
// lie evenly spaced.
//   10 rows cut over 4 ranks -> ranks 0 to 2: 3 rows each, 3 apart; rank 3: 1
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/layout/layout.h>

#include "plan/transfer/strided_copies.h"

namespace tessera::detail::inline plan_layer {

/// Coordinates along a mesh dim whose parts are equally large.
struct PartSpan {
  int64_t first = 0;
  int64_t last = 0;           // the coordinate behind the span
  int64_t numel = 0;          // of each part
  StridedCopies copies = {};  // of the first one
  int64_t step = 0;           // by which the next part lies further
};

/// Which way elements go between the tensor and its parts.
enum class PartSide : uint8_t { kToTensor, kFromTensor };

/// Returns the spans of a tensor that mesh dim `mesh_dim` cuts, in order, all
/// coordinates in one of them. Copies are between what the rank at a
/// coordinate of the mesh holds without that cut, `bare`, and a part in a
/// row-major buffer of its own; `step` counts in the tensor. The cut is the
/// last one of its tensor dim. Takes as long as the mesh dim only where it is
/// not cut by Shard.
std::vector<PartSpan> part_spans(
    const Layout& cut, const Layout& bare, int64_t mesh_dim,
    const std::vector<int64_t>& coordinate, PartSide side);

/// Returns the side of a copy that lies in the tensor, or in the part.
int64_t StridedCopy::*tensor_offset(PartSide side);
int64_t StridedCopy::*part_offset(PartSide side);

}  // namespace tessera::detail::inline plan_layer
