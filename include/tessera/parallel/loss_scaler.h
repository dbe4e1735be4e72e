// LossScaler: losses of half precision, scaled so that gradients do not vanish.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/comm/communicator.h>
#include <tessera/export.h>

namespace torch::optim {
class Optimizer;
}

namespace tessera {

struct LossScalerOptions {
  double initial = 65536;
  /// The scale grows by this factor after `interval` good steps in a row, and
  /// is multiplied by `backoff` after one whose gradients were not finite.
  double growth = 2;
  double backoff = 0.5;
  int64_t interval = 2000;
  /// A group with one rank of each stage of a pipeline, which skip together.
  std::optional<Communicator> stages = {};
};

/// What to save to continue.
struct LossScalerState {
  double scale = 65536;
  int64_t good_steps = 0;  // since the scale changed
  friend bool operator==(const LossScalerState&, const LossScalerState&) =
      default;
};

/// Scales a loss up, its gradients down again, and skips the steps whose
/// gradients are not finite: on all ranks alike, whatever meshes parameters are
/// on. Example:
///   LossScaler scaler;
///   scaler.scale(loss_of(model(x))).backward();
///   scaler.step(optimizer);
///   scaler.update();
class TESSERA_API LossScaler {
 public:
  explicit LossScaler(const LossScalerOptions& options = {});
  ~LossScaler();
  LossScaler(const LossScaler&) = delete;
  LossScaler& operator=(const LossScaler&) = delete;

  /// Returns the loss times the scale.
  at::Tensor scale(const at::Tensor& loss) const;
  /// Divides gradients by the scale, in place, once between updates: before
  /// clip_grad_norm(), for example. Returns false where one is not finite, on
  /// any rank. One small reduction per mesh.
  bool unscale(const std::vector<at::Tensor>& parameters);
  /// Unscales those that are not yet, and returns false where a gradient of any
  /// of them is not finite: what step() asks, for optimizers that are no
  /// torch::optim::Optimizer.
  bool unscale_once(const std::vector<at::Tensor>& parameters);
  /// Unscales what is not yet, then steps unless a gradient of this optimizer
  /// is not finite; returns whether it did.
  bool step(torch::optim::Optimizer& optimizer);
  /// Ends an iteration: changes the scale.
  void update();

  LossScalerState state() const;
  void set_state(const LossScalerState& state);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
