// Rows of a cut dim that neighbours need: what a window over the dim reads
// beyond the rows that a rank holds.
//
// Worked row, 8 rows over 2, windows of 3, stride 1, padding 1: outputs 0:4 and
// 4:8 read rows -1:5 and 3:9. The first rank holds 0:4, so it receives row 4
// and puts one row of zeros before; the second receives row 3.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/comm/communicator.h>
#include <tessera/layout/layout.h>

namespace tessera::detail::inline tensor_layer {

/// How windows move over one dim.
struct Window {
  int64_t size;
  int64_t stride;
  int64_t padding;
  int64_t dilation;

  /// Returns how many windows there are over `rows` rows.
  int64_t count(int64_t rows) const {
    return (rows + 2 * padding - dilation * (size - 1) - 1) / stride + 1;
  }
};

class Halo {
 public:
  /// `held` and `windows` are the rows and the windows of each coordinate,
  /// ascending; `rows` is how many rows there are.
  Halo(
      std::vector<Run> held, std::vector<Run> windows, const Window& window,
      int64_t rows, int64_t coordinate);

  /// Tells whether any rank needs a row of another.
  bool communicates() const;
  /// Returns how many rows this rank sends or receives, whichever is more; the
  /// same for scatter_sum(), which sends them back.
  int64_t rows_moved() const;
  /// Returns how many rows this rank's windows read, padding included.
  int64_t padded_rows() const { return before_ + wanted().length() + after_; }

  /// Returns the rows that this rank's windows read: its own, those of others,
  /// and zeros where they are padding.
  at::Tensor gather(
      const at::Tensor& shard, int64_t dim, const Communicator& group) const;
  /// Returns the transpose: of what every rank has for the rows of gather(),
  /// the sum for each row that this rank holds.
  at::Tensor scatter_sum(
      const at::Tensor& padded, int64_t dim, const Communicator& group) const;

 private:
  const Run& mine() const { return held_[me_]; }
  const Run& wanted() const { return needed_[me_]; }

  std::vector<Run> held_;
  std::vector<Run> needed_;  // rows that exist, per coordinate
  size_t me_;
  int64_t before_ = 0;  // rows of padding of this rank
  int64_t after_ = 0;
};

}  // namespace tessera::detail::inline tensor_layer
