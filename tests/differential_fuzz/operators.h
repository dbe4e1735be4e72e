// Operators that a program may apply, by family. Each works on plain and on
// sharded tensors, and is legal for the operands that it was chosen for.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "differential_fuzz/program.h"

namespace tessera::programs {

using Tensors = std::vector<at::Tensor>;

struct Operation {
  std::string name;
  /// Equal bits whether it runs on shards or on the whole: moves, and
  /// arithmetic that is rounded element by element.
  bool exact;
  std::function<at::Tensor(const Tensors&)> run;
};

/// Chooses an operator for operands of these shapes and dtypes: one, or two of
/// equal shape for kBinary, kJoin and kInPlace.
Operation choose(const Step& step, const Tensors& operands);

}  // namespace tessera::programs
