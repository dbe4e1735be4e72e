// Numbers that each rank knows of its part of gradients, made known to all.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
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

  /// Returns one number of the shards that this rank has of some tensors, or of
  /// plain tensors; never called without any.
  using ValueFn =
      std::function<at::Tensor(const std::vector<at::Tensor>& shards)>;

  /// Adds this rank's numbers of tensors: one of all that need the same
  /// reduction.
  void add(const std::vector<at::Tensor>& tensors, const ValueFn& value_of);
  /// Returns the number of all tensors, equal on all ranks of the meshes and of
  /// `stages`, whose values are taken in rank order; undefined where there is
  /// none.
  at::Tensor take(const std::optional<Communicator>& stages) const;

 private:
  // Tensors whose numbers need the same reduction.
  struct Group {
    std::optional<DeviceMesh> mesh = {};  // none: plain
    std::vector<bool> reduces = {};       // by mesh dim: ranks' numbers differ
    c10::Device device;
    std::vector<at::Tensor> shards = {};
    at::Tensor value = {};
  };
  bool reduces(const Placement& placement) const {
    return placement.is_shard() || copies_;
  }
  bool holds(const Group& group, const at::Tensor& tensor) const;
  Group& group_of(const at::Tensor& tensor);
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

/// Multiplies gradients, in place: each rank its shards.
void scale_gradients(const std::vector<at::Tensor>& gradients, double factor);

}  // namespace tessera::detail::inline parallel_layer
