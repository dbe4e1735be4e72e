// Finds replicas that differ: data that several ranks should hold alike.
//
// Nothing in a program says that copies stay equal. They part when ranks read
// different data, draw different numbers, or use to_local() of a replicated
// tensor each in its own way, whose gradients are then partial values, not
// copies: to_local(t, {.grad_placements = Placements{Partial()}}) says so.
// These checks find the place. For whole modules see parallel/check_module.h.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/export.h>

namespace tessera {

struct ReplicaCheckOptions {
  /// How far copies may be apart, relative to the larger one. 0: equal values
  /// (NaN equals NaN, -0.0 equals 0.0).
  double tolerance = 0;
};

/// Compares the values and gradients of sharded tensors over the ranks that
/// should hold them alike; plain tensors are passed over. Every rank of the
/// mesh gives the same list. A difference is the same error on all of them,
/// with names, ranks and the largest difference; no difference costs one gather
/// of 48 bytes per tensor and mesh.
/// Example: check_replicas({{"weight", w}, {"bias", b}}).
TESSERA_API void check_replicas(
    const std::vector<std::pair<std::string, at::Tensor>>& tensors,
    const ReplicaCheckOptions& options = {});

/// Gives a tensor the name that errors know it by (LibTorch's `t.name()`).
/// distribute_module() names parameters.
TESSERA_API void name_tensor(const at::Tensor& tensor, const std::string& name);

/// While it lives on this thread, replicated gradients are compared over ranks
/// when they arrive at a leaf or in the backward of to_local(); a difference is
/// the same error on all ranks, naming the tensor. All ranks hold one, or none.
/// TESSERA_CHECK_GRADIENTS=1 in the environment does the same for the whole
/// program.
class TESSERA_API GradientCheck {
 public:
  explicit GradientCheck(const ReplicaCheckOptions& options = {});
  ~GradientCheck();
  GradientCheck(const GradientCheck&) = delete;
  GradientCheck& operator=(const GradientCheck&) = delete;

 private:
  std::shared_ptr<const void> outer_;
};

}  // namespace tessera
