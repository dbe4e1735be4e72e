// gather_counts(): which operators made whole what was cut, and what of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/export.h>

namespace tessera {

/// How often an operator made whole what was cut: an operand that it needs, or
/// a result that goes where it is written.
struct GatherCount {
  std::string op;
  int64_t count = 0;
  /// What ranks came to hold more of, in all.
  int64_t bytes = 0;
};

/// Returns the gathers since the process started, all of its ranks together,
/// those of most bytes first: operands and results of more than one element
/// that lie in fewer parts than before, whatever the rule. What a function of
/// the library was asked to do, as full_tensor(), is none; nor is another cut
/// of a tensor, or the sum of a Partial one. The first one of each operator
/// prints a warning.
/// Example: at::mm(a, b) of S(0) and S(1) gathers one of them.
TESSERA_API std::vector<GatherCount> gather_counts();

}  // namespace tessera
