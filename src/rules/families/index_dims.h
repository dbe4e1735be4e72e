// Where the dims of self[i, :, j] come from, as in ATen: all index tensors
// broadcast to one shape, whose dims stand where the indexed dims stood if
// those are neighbours, and in front if not.
//   self [4, 5, 6], indices (None, [7]) -> [4, 7, 6], insertion 1
//   self [4, 5, 6], indices ([7], None, [7]) -> [7, 5], insertion 0
#pragma once

#include <optional>
#include <vector>

#include <tessera/rules/rule.h>

namespace tessera::detail::inline rules_layer {

class IndexDims {
 public:
  /// Takes the call and the operands that are its indices, in order.
  IndexDims(const RuleCall& call, c10::ArrayRef<Operand> indices);

  bool is_indexed(int64_t dim) const {
    return indexed_[static_cast<size_t>(dim)];
  }
  /// Returns the number that a dim that is not indexed has in the result.
  int64_t result_dim(int64_t dim) const;
  int64_t result_ndim() const;
  /// Returns the number of the first dim that comes from the indices.
  int64_t insertion() const { return insertion_; }
  /// Returns how many dims come from the indices.
  int64_t index_ndim() const { return static_cast<int64_t>(shape_.size()); }
  int64_t index_size(int64_t i) const { return shape_[static_cast<size_t>(i)]; }

  /// Tells whether all indices are numbers: how many elements a mask picks is
  /// known to no rank alone, so that it cannot be cut.
  bool are_numbers() const { return !has_mask_; }
  /// Cuts the operands that have dim i of the broadcast indices; operand 1 is
  /// the first index.
  void sharded_index(int64_t i, Cells& operands) const;
  /// Returns the indexed dim where there is one index, of numbers.
  std::optional<int64_t> only_indexed() const;

 private:
  c10::ArrayRef<Operand> indices_;
  std::vector<bool> indexed_;
  std::vector<int64_t> shape_;  // of the broadcast indices
  int64_t insertion_ = 0;
  bool has_mask_ = false;
};

}  // namespace tessera::detail::inline rules_layer
