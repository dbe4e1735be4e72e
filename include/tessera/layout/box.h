// Boxes: axis-aligned pieces of an index space, and the questions that
// redistribution, sharded tensors and checkpoints ask about sets of them.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/export.h>

namespace tessera {

/// The half-open region offsets[d] .. offsets[d] + sizes[d] of every dim.
struct TESSERA_API Box {
  std::vector<int64_t> offsets;
  std::vector<int64_t> sizes;

  int64_t ndim() const { return static_cast<int64_t>(sizes.size()); }
  /// Returns the number of elements; 1 for the 0-d box.
  int64_t numel() const;
  /// Tells whether no element lies inside.
  bool empty() const;
  /// Tells whether the element at `index` lies inside.
  bool contains(const std::vector<int64_t>& index) const;

  friend bool operator==(const Box& a, const Box& b) = default;
};

/// Returns the box of a whole tensor: offsets 0, sizes `shape`.
TESSERA_API Box whole(const std::vector<int64_t>& shape);

/// Returns the common region, or nothing where no element is shared.
TESSERA_API std::optional<Box> intersect(const Box& a, const Box& b);

/// Returns the positions of two boxes that share an element, or nothing;
/// O(n log n) in one or two dims, O(n log^(d-1) n) beyond. Empty boxes overlap
/// nothing. Of several pairs, the one returned depends on the boxes alone.
TESSERA_API std::optional<std::pair<size_t, size_t>> find_overlap(
    const std::vector<Box>& boxes);

/// Tells whether every element of `outer` lies in exactly one of `boxes` and
/// none of them reaches beyond it; O(n 2^d log n).
TESSERA_API bool is_exact_cover(
    const std::vector<Box>& boxes, const Box& outer);

/// Prints "[0:4, 8:16]" (begin:end per dim).
TESSERA_API std::string to_string(const Box& box);
TESSERA_API std::ostream& operator<<(std::ostream& out, const Box& box);

}  // namespace tessera
