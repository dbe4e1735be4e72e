// Halos: what windows over sharded dims read beyond what a rank holds.
//
// A halo is data: the box that each rank of a group holds of an operand, and
// the box that its results read, which may reach beyond the operand. One
// exchange brings every rank the rest of its box; a corner comes from the one
// rank that holds it.
//
// Worked row, [4, 4] on 2x2, windows of 3 x 3, stride 1, padding 1:
//   rank 0 holds [0:2, 0:2], its results read [-1:3, -1:3]
//   it receives [0:2, 2:3] of rank 1, [2:3, 0:2] of rank 2, [2:3, 2:3] of
//   rank 3: 5 elements. Row -1 and column -1 are padding.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/comm/communicator.h>
#include <tessera/layout/box.h>
#include <tessera/layout/layout.h>

namespace tessera::detail::inline tensor_layer {

class Halo {
 public:
  /// Returns the indices of dim `dim` of the operand that results of indices
  /// `results` read; they may lie outside of it, as padding.
  using ReadBy = std::function<Run(int64_t dim, const Run& results)>;

  /// `over` are the mesh dims whose ranks exchange, ascending. Operand and
  /// result are alike but along the tensor dims that these cut, each rank
  /// holding one run of them. `coordinate` is that of a rank of the mesh.
  Halo(
      const Layout& operand, const Layout& result,
      const std::vector<int64_t>& over, const std::vector<int64_t>& coordinate,
      const ReadBy& read_by);

  /// Tells whether any rank of the group needs an element of another.
  bool communicates() const;
  /// Returns how many elements this rank sends or receives, whichever is more;
  /// the same for scatter_sum(), which sends them back.
  int64_t elements_moved() const;
  /// Returns the shape of what this rank's results read, padding included.
  const std::vector<int64_t>& padded_shape() const { return padded_; }
  /// Returns the index of its first element along a dim, -1 with one row of
  /// padding before the operand.
  int64_t begin(int64_t dim) const { return begin_[static_cast<size_t>(dim)]; }

  /// Returns what this rank's results read: what it holds, what others hold,
  /// and `fill` for padding. `group` are the ranks along `over`, row-major.
  /// Collective where the halo communicates.
  at::Tensor gather(
      const at::Tensor& shard, const Communicator& group,
      const at::Scalar& fill = 0) const;
  /// Returns the transpose: of what every rank has for the elements of
  /// gather(), the sum for each element that this rank holds.
  at::Tensor scatter_sum(
      const at::Tensor& padded, const Communicator& group) const;

 private:
  struct Boxes {
    Box held;
    Box read;  // what exists of it
  };
  const Boxes& mine() const { return boxes_[me_]; }

  std::vector<Boxes> boxes_;  // per rank of the group
  size_t me_ = 0;
  std::vector<int64_t> padded_;
  std::vector<int64_t> begin_;
};

}  // namespace tessera::detail::inline tensor_layer
