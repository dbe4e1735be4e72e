// LossParallel: cross entropy over a vocabulary that is cut, logits never
// gathered.
#pragma once

#include <tessera/export.h>

namespace tessera {

/// While it lives, cross entropy on this thread asks for logits that are cut
/// along their classes: whole ones are an error, before anything is computed.
/// Each rank works on its classes alone. Three small reductions forward (the
/// largest logit, the sum of exponentials, the loss), none backward. Example:
///   parallelize_module(model, mesh, {{"head", ColwiseParallel()}});
///   LossParallel guard;
///   at::cross_entropy_loss(model(x), targets).backward();
class TESSERA_API LossParallel {
 public:
  LossParallel();
  ~LossParallel();
  LossParallel(const LossParallel&) = delete;
  LossParallel& operator=(const LossParallel&) = delete;

 private:
  bool outer_;  // there was one before
};

}  // namespace tessera
