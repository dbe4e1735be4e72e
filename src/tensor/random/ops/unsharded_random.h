// Random operators on plain tensors that draw Tessera's numbers.
//
// Note [Plain tensors that must be equal on all ranks]
// ATen's composite kernels and torch::nn::init make plain tensors of their own
// (the noise of feature_dropout, the matrix of orthogonal_) and draw into them
// from the process's generator: ranks that are threads would share it, and get
// different numbers every time. While a UnshardedRandom lives, a dispatch key
// below autograd is switched on for the thread; our kernels of random operators
// are registered for it. Every other operator goes on below the key, unless the
// results of operators are kept: Note [Kept results],
// tensor/run/kept_results.h.
#pragma once

namespace tessera::detail::inline tensor_layer {

/// Registers the kernels for plain tensors, once per process.
void register_unsharded_random();

}  // namespace tessera::detail::inline tensor_layer
