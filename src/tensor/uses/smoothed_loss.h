// Cross entropy with smoothed labels over classes that are cut.
//
// Note [Smoothed labels in one step]
// ATen takes two terms of the scores, the one of the target and the mean of
// all, and autograd adds their gradients up. Each knows what it adds up to
// along the classes, which the derivative of the scores asks for, but their sum
// would not: so both terms are one step here, whose gradient is.
#pragma once

#include <tensor/call/op_call.h>

namespace tessera::detail::inline tensor_layer {

/// Runs a call of cross_entropy_loss that has smoothed labels, classes that are
/// cut and a gradient to come; returns false for others.
bool run_smoothed_loss(const OpCall& call);

}  // namespace tessera::detail::inline tensor_layer
