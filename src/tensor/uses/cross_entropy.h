// Cross entropy under a LossParallel.
//
// Note [Cross entropy in one step]
// By itself, cross entropy is a logarithm of softmax and a choice of scores;
// the derivative of the first sums its gradient over all classes, that is over
// ranks. But the second one's gradient is not 0 for one class per target only,
// so every rank knows that sum: under a LossParallel both are one step, and its
// derivative communicates nothing. Outside of one the gradient of the choice
// carries those sums along (keep_sums()), as long as nothing is done to it;
// what is left to save is a tensor of the size of the logits.
#pragma once

#include <tensor/call/op_registry.h>

namespace tessera::detail::inline tensor_layer {

/// Begins or ends a LossParallel on this thread; tells whether there was one.
bool set_loss_parallel(bool on);

/// Adds what runs cross entropy under a LossParallel, and with smoothed labels.
void add_cross_entropy(OpRegistry& ops);

}  // namespace tessera::detail::inline tensor_layer
