// Indices of a dim that go to other ranks while the dim stays sharded: of a
// roll, a flip, a pad.
//
// Worked row, 8 rows over 2, rolled by 1: row i of the result is row i - 1, so
// the ranks want rows 7 0 1 2 and 3 4 5 6: each sends the other one row.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/comm/communicator.h>
#include <tessera/layout/layout.h>

namespace tessera::detail::inline tensor_layer {

class RowExchange {
 public:
  /// Which row becomes row i of the result; -1: none, it is filled.
  using SourceOf = std::function<int64_t(int64_t)>;

  /// `held` and `results` are the rows of each coordinate before and after,
  /// ascending; `coordinate` is this rank's.
  RowExchange(
      const std::vector<Run>& held, const std::vector<Run>& results,
      const SourceOf& source_of, int64_t coordinate);

  /// The same where row j of what coordinate c holds becomes row
  /// `becomes[c][j]` of the result.
  RowExchange(
      const std::vector<std::vector<int64_t>>& becomes,
      const std::vector<Run>& results, int64_t coordinate);

  /// Returns how many rows this rank sends or receives, whichever is more.
  int64_t rows_moved() const;
  /// Returns this rank's rows of the result. Collective where any rank wants a
  /// row of another.
  at::Tensor operator()(
      const at::Tensor& shard, int64_t dim, const at::Scalar& fill,
      const Communicator& group) const;

 private:
  using Indices = std::vector<int64_t>;
  std::vector<Indices> sent_;      // rows of this rank's shard, per coordinate
  std::vector<Indices> received_;  // rows of its result, per coordinate
  int64_t result_rows_;
  size_t me_;
  bool communicates_ = false;
};

}  // namespace tessera::detail::inline tensor_layer
