// One call of activation_checkpoint().
//
// Note [Recomputation]
// In the forward, the region is the packer of the thread: each tensor that
// autograd saves gets a number and is let go; parameters, which live on anyway,
// stay as they are. The first one that the backward pass asks for runs `fn`
// again, with another packer that keeps the tensors of those numbers, and ends
// at the last one by an exception. So the graph is the one of the forward:
// nothing runs a backward pass inside a backward pass, and what asks for
// gradients in whatever way gets them.
// All that is decided follows from the calls that were made, never from what is
// still alive, so ranks decide alike. Values are kept until they are asked for
// or the pass ends. Inputs are saved by the packer around, so that in nested
// regions only the outermost one's inputs stay.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include <parallel/recompute/forward_state.h>
#include <parallel/recompute/saved_fingerprint.h>
#include <tensor/move/kept_moves.h>
#include <tensor/run/kept_results.h>
#include <tessera/parallel/activation_checkpoint.h>
#include <tessera/parallel/tensor_packer.h>
#include <torch/csrc/autograd/saved_variable.h>

namespace tessera::detail::inline parallel_layer {

class RecomputedRegion final
    : public TensorPacker,
      public std::enable_shared_from_this<RecomputedRegion> {
 public:
  RecomputedRegion(
      CheckpointFn fn, const std::vector<at::Tensor>& inputs,
      ActivationCheckpointOptions options);

  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs);
  std::shared_ptr<PackedTensor> pack(const at::Tensor& tensor) override;

 private:
  struct Slot {
    SavedFingerprint fingerprint;
    bool alive = true;           // autograd has it still
    at::Tensor recomputed = {};  // in the pass
  };
  class Saved;
  class Rerun;

  at::Tensor unpack(size_t slot);
  void forget(size_t slot);
  void recompute();
  void drop_values();
  void drop_values_after_pass();
  std::vector<at::Tensor> inputs_again();

  const CheckpointFn fn_;
  const ActivationCheckpointOptions options_;
  const ForwardState state_;
  std::vector<torch::autograd::SavedVariable> inputs_;
  std::vector<bool> input_needs_grad_;
  KeptMoves moves_;
  KeptResults results_;

  std::recursive_mutex mutex_;  // devices have threads of their own
  std::vector<Slot> slots_;
  size_t end_ = 0;  // behind the last slot that is recomputed
  int pass_ = -1;   // the backward pass that the values are of
};

}  // namespace tessera::detail::inline parallel_layer
