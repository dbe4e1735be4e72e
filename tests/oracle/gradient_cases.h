// Gradients of rows, through the library itself: ranks are threads, operands
// are sharded as a row says, and autograd runs.
#pragma once

#include <string>
#include <vector>

#include <oracle/oracle.h>

namespace tessera::oracle {

/// One call whose operands have the placements of a row, and the gradients that
/// plain autograd gives.
struct GradientCase {
  Sample sample;
  std::string what;  // operator, row, shapes
  std::vector<int64_t> mesh;
  std::vector<Placements> operands;
  /// By operand; not defined where there is none.
  std::vector<at::Tensor> gradients;
};

/// The cases of an operator, or why it has none.
struct GradientCases {
  std::vector<GradientCase> cases;
  std::string excuse;
};

/// Returns a case for every row of a few samples of an operator.
GradientCases gradient_cases(const Ruled& ruled);

/// Runs cases on ranks that are threads; returns what is wrong.
std::vector<std::string> run_gradient_cases(
    const std::vector<GradientCase>& cases);

}  // namespace tessera::oracle
