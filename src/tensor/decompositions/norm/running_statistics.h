// The running statistics of a batch norm whose channels are cut.
#pragma once

#include <array>

#include <tensor/decompositions/decomposed_call.h>

namespace tessera::detail::inline tensor_layer {

/// A rank works on the statistics of its channels, wherever the tensors lie:
/// in their own memory where they are cut as the channels are, else in a part
/// of them, which returns to all ranks.
class RunningStatistics {
 public:
  /// Takes "running_mean" and "running_var" of the call; `channels` are the
  /// placements of a value per channel.
  RunningStatistics(DecomposedCall& decomposed, const Placements& channels);

  /// Returns this rank's part; undefined where the call has none, or where
  /// nothing is computed.
  const at::Tensor& mean() const { return both_[0].local; }
  const at::Tensor& variance() const { return both_[1].local; }

  /// Says that the parts were written. What does not lie by channel is
  /// gathered, both in one move where they lie alike.
  void write_back();

 private:
  struct One {
    const char* name;
    at::Tensor tensor = {};
    SpecPtr spec = nullptr;
    at::Tensor local = {};
    bool in_place = true;
  };
  void gather(const std::vector<const One*>& some);
  bool lie_alike() const;

  DecomposedCall& decomposed_;
  const Placements channels_;
  std::array<One, 2> both_{{{"running_mean"}, {"running_var"}}};
};

}  // namespace tessera::detail::inline tensor_layer
