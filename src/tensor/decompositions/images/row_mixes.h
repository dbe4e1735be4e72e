// Rows of a dim that are made of one or a few others, by fixed weights: what
// pads and interpolation do along each dim of an image.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <tessera/layout/layout.h>

namespace tessera::detail::inline tensor_layer {

/// The rows that a row is made of, and how much of each; no weights: all of it.
struct Mix {
  std::vector<int64_t> rows;
  std::vector<double> weights;
};

enum class MixKind : uint8_t {
  kReflection,
  kReplication,
  kNearest,
  kNearestExact,
  kLinear,
  kCubic
};

/// What happens along one dim.
struct DimMix {
  MixKind kind = MixKind::kReplication;
  int64_t rows = 0;     // of the operand
  int64_t results = 0;  // of the result
  int64_t before = 0;   // rows that a pad adds
  bool aligns_corners = false;
  std::optional<double> scale = std::nullopt;
  /// Kernels compute places in single precision, unless data are double.
  bool is_double = false;

  /// Returns how many rows are made of each, where that is a whole number.
  int64_t per_row() const { return results / rows; }
  /// Returns what row `i` of the result is made of.
  /// Example: 3 rows, reflected, 2 before: rows 0 1 2 3 are 2 1 0 1.
  Mix of(int64_t i) const;
  /// Returns the rows from the first to the last that a run of the result is
  /// made of.
  Run read_by(const Run& run) const;
};

}  // namespace tessera::detail::inline tensor_layer
