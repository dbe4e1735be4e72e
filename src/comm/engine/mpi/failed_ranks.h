// Processes that died, where MPI outlives them.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

namespace tessera::detail::inline comm_layer {

/// Asks the fault-tolerant part of MPI (ULFM). Its functions are looked up when
/// the program runs, so one build serves libraries with and without them.
class FailedRanks {
 public:
  /// Looks again; tells whether more have died. False where MPI cannot tell.
  bool poll(MPI_Comm comm);
  /// Returns them in the order in which they were found.
  const std::vector<int64_t>& ranks() const { return ranks_; }

 private:
  std::vector<int64_t> ranks_;
};

}  // namespace tessera::detail::inline comm_layer
