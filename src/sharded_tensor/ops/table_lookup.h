// What looking up rows of a sharded table needs: rows that each rank has of its
// own, seen as one tensor of the group.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <sharded_tensor/tensor/agreement.h>
#include <tessera/sharded_tensor/ops.h>
#include <tessera/tensor/dtensor.h>

namespace tessera::detail::inline sharded_tensor_layer {

/// The rows of all ranks of a group, one after the other in group order.
class RankRows {
 public:
  RankRows(
      c10::DeviceType device_type, const sharded_tensor::ProcessGroup& group,
      std::vector<int64_t> counts);

  int64_t total() const;
  /// Returns how many rows come before this rank's.
  int64_t before() const;
  /// Returns the rows of all ranks, replicated over `mesh`, given this rank's;
  /// differentiable.
  at::Tensor gathered(const at::Tensor& mine, const DeviceMesh& mesh) const;
  /// Returns this rank's rows, plain; differentiable.
  at::Tensor mine_of(const at::Tensor& all) const;

 private:
  DeviceMesh mesh_;
  std::vector<int64_t> counts_;
  int64_t group_rank_;
};

/// What a look-up is told about its table.
struct TableOptions {
  std::optional<int64_t> padding_idx;
  std::optional<double> max_norm;
  double norm_type;
};

/// Throws for a table or ids that cannot be looked up; each rank checks its
/// own.
void check_table(
    const char* call, const at::Tensor& ids,
    const sharded_tensor::ShardedTensor& weight, const TableOptions& options);
/// Says what all ranks must pass alike.
void agree_on_table(
    Agreement& agreement, const sharded_tensor::ShardedTensor& weight,
    const TableOptions& options);
/// Returns ids as they travel: flat, 64 bits wide.
at::Tensor flat_ids(const at::Tensor& ids);
/// Returns what ATen takes: -1 means none.
int64_t padding_row(
    const sharded_tensor::ShardedTensor& weight, const TableOptions& options);

/// Writes integers for Agreement::collect(), and reads those of each rank.
std::string packed(const std::vector<int64_t>& numbers);
std::vector<std::vector<int64_t>> unpacked(
    const std::vector<std::string>& texts);

/// Scales the rows that any rank looks up to at most max_norm, in the memory of
/// the shards.
void renormalise(
    const sharded_tensor::ShardedTensor& weight, const at::Tensor& all_ids,
    const TableOptions& options);

/// Returns an option as an argument of a user's implementation.
template <class T>
c10::IValue argument_of(const std::optional<T>& option) {
  return option ? c10::IValue(*option) : c10::IValue();
}
/// Returns the only result of a user's implementation, which must be a tensor.
at::Tensor only_tensor(
    const char* op, const std::vector<sharded_tensor::Value>& results);

}  // namespace tessera::detail::inline sharded_tensor_layer
