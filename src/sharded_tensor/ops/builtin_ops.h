// How the library runs operators on sharded tensors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <tensor/inspect/bind_arguments.h>
#include <tessera/sharded_tensor/ops.h>
#include <tessera/tensor/dtensor.h>

namespace tessera::detail::inline sharded_tensor_layer {

using Values = std::vector<sharded_tensor::Value>;

/// Returns the sharded tensor in a value, or nullptr.
inline const sharded_tensor::ShardedTensor* sharded_in(
    const sharded_tensor::Value& value) {
  return std::get_if<sharded_tensor::ShardedTensor>(&value);
}

/// Looks for the user's implementation and calls it.
std::optional<Values> run_user_op(
    const std::string& op, const Values& arguments);
/// Returns the only result, which must be a sharded tensor.
sharded_tensor::ShardedTensor only_result(
    const std::string& op, const Values& results);

/// A built-in operator: its result is sharded, or computed, as no general rule
/// says.
using BuiltinOp = Values (*)(const Values& arguments);
/// Returns the built-in operator of a name, or nullptr where DTensor's rules or
/// elementwise boxes serve.
BuiltinOp find_builtin_op(const std::string& op);

/// Tells whether the shards of all sharded arguments lie alike and the plain
/// ones fit into their global shape.
bool fits_boxes(const BoundCall& call, const Values& arguments);
/// Runs an elementwise operator on each shard.
Values run_on_boxes(const BoundCall& call, const Values& arguments);
/// Runs an operator on tensors with placements.
Values run_on_mesh(const BoundCall& call, const Values& arguments);

/// Returns the mesh of all ranks of a group, in one row.
DeviceMesh group_mesh(
    c10::DeviceType device_type, const sharded_tensor::ProcessGroup& group);
/// Returns an argument of an operator on a mesh: sharded tensors by
/// to_dtensor(), plain ones that need a gradient replicated over the group.
/// Throws for a tensor on another mesh.
c10::IValue on_mesh(
    const std::string& op, const sharded_tensor::Value& value,
    const DeviceMesh& mesh, const sharded_tensor::ProcessGroup& group);
/// Returns a tensor with placements as a sharded tensor of the group of `like`,
/// cut by `placements` on its mesh: chunks over the same places where `like` is
/// cut into chunks.
sharded_tensor::ShardedTensor resharded_like(
    const at::Tensor& tensor, const Placements& placements,
    const sharded_tensor::ShardedTensor& like);

/// Brings a tensor's record up to date after its shards and its anchor were
/// written.
void note_write(const sharded_tensor::ShardedTensor& tensor);
/// Throws for a leaf that needs a gradient while autograd records, before any
/// shard of it is written.
void check_writable(const sharded_tensor::ShardedTensor& tensor);
/// Returns the positions of the arguments that a call writes.
std::vector<size_t> written_arguments(const c10::FunctionSchema& schema);
/// Tells whether a result is one of those.
inline bool is_written(const c10::Argument& result) {
  return result.alias_info() != nullptr && result.alias_info()->isWrite();
}

// What find_builtin_op() knows, by file.

sharded_tensor::ShardedTensor copy_shards(
    const sharded_tensor::ShardedTensor& to,
    const sharded_tensor::ShardedTensor& from);
bool all_equal(
    const sharded_tensor::ShardedTensor& a,
    const sharded_tensor::ShardedTensor& b);
struct Tolerance {
  double rtol;
  double atol;
  bool equal_nan;
};
bool all_close(
    const sharded_tensor::ShardedTensor& a,
    const sharded_tensor::ShardedTensor& b, const Tolerance& tolerance);
sharded_tensor::ShardedTensor drop_out(
    const sharded_tensor::ShardedTensor& t, double p, bool training);
sharded_tensor::ShardedTensor linear_on_mesh(
    const sharded_tensor::Value& x, const sharded_tensor::ShardedTensor& weight,
    const sharded_tensor::Value& bias);
sharded_tensor::ShardedTensor bmm_on_mesh(
    const sharded_tensor::ShardedTensor& a,
    const sharded_tensor::ShardedTensor& b);
sharded_tensor::ShardedTensor transpose_on_mesh(
    const sharded_tensor::ShardedTensor& t, int64_t dim0, int64_t dim1);
sharded_tensor::ShardedTensor view_on_mesh(
    const sharded_tensor::ShardedTensor& t, const std::vector<int64_t>& sizes);
Values chunk_on_mesh(
    const sharded_tensor::ShardedTensor& t, int64_t chunks, int64_t dim);

}  // namespace tessera::detail::inline sharded_tensor_layer
