// Numbers that each rank knows of its part of gradients, made known to all.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/comm/communicator.h>
#include <tessera/tensor/dtensor_spec.h>

namespace tessera::detail::inline parallel_layer {

/// Sums up, or takes the largest of, numbers of tensors on any meshes.
class ValuesOverMeshes {
 public:
  /// kSum or kMax. `copies`: ranks that hold copies have their say too, as they
  /// may have parted; for kMax alone.
  explicit ValuesOverMeshes(ReduceOp op, bool copies = false)
      : op_(op), copies_(copies) {}

  /// Adds this rank's number of its shard of a tensor, or of a plain one.
  void add(const at::Tensor& tensor, const at::Tensor& value);
  /// Returns the number of all tensors, equal on all ranks of the meshes and of
  /// `stages`, whose values are taken in rank order; undefined where there is
  /// none.
  at::Tensor take(const std::optional<Communicator>& stages) const;

 private:
  // Numbers that need the same reduction.
  struct Group {
    std::optional<DeviceMesh> mesh;  // none: plain
    Placements placements;
    at::Tensor value;
  };
  at::Tensor merged(const at::Tensor& a, const at::Tensor& b) const;
  at::Tensor over_stages(
      const at::Tensor& mine, const Communicator& stages) const;

  ReduceOp op_;
  bool copies_;
  std::vector<Group> groups_;
};

/// Returns the gradients of parameters that have one; a gradient that was kept
/// Partial is summed up first, in place of the old one. Throws on a rank that
/// is outside of all their meshes; `call` is who asks.
std::vector<at::Tensor> reduced_gradients(
    const char* call, const std::vector<at::Tensor>& parameters);

}  // namespace tessera::detail::inline parallel_layer
