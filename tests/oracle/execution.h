// Runs a call on the parts of all ranks, one rank after the other, as the
// library runs one rank's part.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <oracle/sample_call.h>
#include <oracle/simulated_ranks.h>
#include <tensor/call/decision.h>

namespace tessera::oracle {

class Execution {
 public:
  /// Fills in the static arguments and the kernel of a rank.
  using Prepare = std::function<void(const Coordinate&, detail::Decision&)>;

  /// Cuts the operands into parts.
  Execution(
      const SampleCall& call, const MeshShape& mesh,
      const std::vector<Placements>& operands);
  /// Runs the part of every rank.
  void run(const Prepare& prepare);

  /// Returns how many tensors a return has; 1 if it is not a list. Where the
  /// schema returns nothing, what it writes stands for returns.
  size_t elements(size_t result) const;
  /// Returns what all ranks returned, and what the whole call did.
  std::vector<at::Tensor> returned(size_t result, size_t element) const;
  at::Tensor expected(size_t result, size_t element) const;
  /// Returns what an operand is on all ranks after the call.
  std::vector<at::Tensor> operand_after(size_t operand) const;

  /// Says how a result differs from the whole call's if it has these
  /// placements; "" where it does not.
  std::string difference_of_result(
      size_t result, size_t element, Placements placements) const;
  /// Says how what was written differs; "" where nothing does.
  std::string difference_of_written() const;

 private:
  torch::jit::Stack local_arguments(size_t rank) const;
  std::string difference_of(
      const std::vector<at::Tensor>& parts, const at::Tensor& want,
      const Placements& placements) const;

  const SampleCall& call_;
  const MeshShape& mesh_;
  std::vector<Coordinate> coordinates_;
  std::vector<Placements> placements_;
  std::vector<std::vector<at::Tensor>> parts_;  // by operand and rank
  std::vector<torch::jit::Stack> results_;      // by rank
};

}  // namespace tessera::oracle
