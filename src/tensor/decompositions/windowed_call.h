// A call whose results read windows of one operand along sharded dims: a
// convolution, a pool. Says what is exchanged, and exchanges it.
#pragma once

#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/halo.h>

namespace tessera::detail::inline tensor_layer {

/// How windows move over one dim.
struct Window {
  int64_t size;
  int64_t stride;
  int64_t padding;
  int64_t dilation;

  /// Returns how many rows a window spans.
  int64_t span() const { return dilation * (size - 1) + 1; }
  /// Returns how many windows there are over `rows` rows.
  int64_t count(int64_t rows) const {
    const int64_t steps = rows + 2 * padding - span();
    return steps < 0 ? 0 : steps / stride + 1;
  }
  /// Returns the rows that windows read, padding included.
  /// Example: size 3, stride 2, padding 1: windows 1:3 read rows 1:6.
  Run read_by(const Run& windows) const {
    return {
        windows.begin * stride - padding,
        (windows.end - 1) * stride - padding + span()};
  }
};

class WindowedCall {
 public:
  /// Windows move over the dims of `operand` from `first_dim` on. The result
  /// has the shape `shape`, and is sharded as the operand is, whose strided
  /// shards become plain ones.
  WindowedCall(
      const DTensorSpec& operand, const std::vector<int64_t>& shape,
      int64_t first_dim, Halo::ReadBy read_by);

  /// Tells whether there is something to exchange along a dim: it is sharded.
  /// Windows along other dims, and their padding, are the operator's.
  bool is_sharded(int64_t dim) const;
  /// Returns the operand's placements without partial values.
  const Placements& operand_placements() const {
    return operand_->placements();
  }
  const SpecPtr& operand() const { return operand_; }
  const SpecPtr& result() const { return result_; }
  /// Makes operand and result channels_last where a tensor is, else contiguous.
  void follow_format(const DTensorSpec& like);

  /// Says that elements of an argument are about to be exchanged, `times`
  /// times.
  void announce(
      const DecomposedCall& decomposed, std::string_view argument,
      int64_t times = 1) const;
  /// Return this rank's halo, and the ranks that exchange; only where the rank
  /// computes.
  Halo halo(const DecomposedCall& decomposed) const;
  Communicator group(const DecomposedCall& decomposed) const;

 private:
  Halo halo_at(const std::vector<int64_t>& coordinate) const;

  SpecPtr operand_;
  SpecPtr result_;
  MeshDims over_;  // mesh dims that shard dims under windows, ascending
  Halo::ReadBy read_by_;
};

/// Tells whether placements shard a dim from `first_dim` on.
bool shards_windows(const Placements& placements, int64_t first_dim);
/// Tells whether no rule serves windows over the dims of an operand from
/// `first_dim` on: these are sharded, or a rank holds nothing, which kernels of
/// windows refuse. Then a windowed call runs, of which such a rank makes
/// nothing.
bool wants_windowed_call(
    const Operand& operand, int64_t first_dim, const MeshShape& mesh);

}  // namespace tessera::detail::inline tensor_layer
