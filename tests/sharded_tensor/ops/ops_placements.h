// What tests of operators share: cuts of a 6 x 6 tensor, and parts of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <sharded_tensor/tensor/family_test.h>
#include <tessera/sharded_tensor/ops.h>

namespace tessera::testing {

struct Cut {
  std::string name;
  sharded_tensor::ShardingSpecPtr spec;
};

/// Five boxes that no mesh has: four around a square.
inline sharded_tensor::EnumerableShardingSpec pinwheel() {
  return sharded_tensor::EnumerableShardingSpec(
      {box_of({0, 0}, {2, 4}, 0), box_of({0, 4}, {4, 2}, 1),
       box_of({4, 2}, {2, 4}, 2), box_of({2, 0}, {4, 2}, 3),
       box_of({2, 2}, {2, 2}, 1)});
}

/// Cuts that form a mesh: uneven and empty chunks, other orders, a subset of
/// ranks, a grid.
inline std::vector<Cut> mesh_cuts() {
  return {
      {"rows, the last rank empty", chunks(0, {0, 1, 2, 3}).clone()},
      {"columns in another order", chunks(-1, {3, 1, 0, 2}).clone()},
      {"rows on some ranks", chunks(0, {2, 1}).clone()},
      {"columns of one rank", chunks(1, {3}).clone()},
      {"grid", grid(3, {2, 0, 3, 1}).clone()},
      {"rows of other lengths",
       std::make_shared<sharded_tensor::EnumerableShardingSpec>(
           std::vector<sharded_tensor::ShardMetadata>{
               box_of({0, 0}, {1, 6}, 1), box_of({1, 0}, {3, 6}, 0),
               box_of({4, 0}, {2, 6}, 3)})}};
}

/// Those, and some that form none.
inline std::vector<Cut> all_cuts() {
  std::vector<Cut> cuts = mesh_cuts();
  cuts.push_back({"rows by turns", chunks(0, {0, 1, 2, 0, 1, 2}).clone()});
  cuts.push_back({"pinwheel", pinwheel().clone()});
  return cuts;
}

/// Returns the part of a tensor that a shard holds.
inline at::Tensor part_of(
    const at::Tensor& whole, const sharded_tensor::ShardMetadata& shard) {
  return sharded_tensor::narrow_tensor(whole, shard);
}

/// Cuts a tensor that all ranks have; the result is a leaf like it.
inline sharded_tensor::ShardedTensor cut(
    const at::Tensor& whole, const sharded_tensor::ShardingSpec& spec,
    const sharded_tensor::ProcessGroup& group = {}) {
  return sharded_tensor::shard_tensor(whole, spec, 0, group);
}

/// Returns a leaf of its own with the same values.
inline at::Tensor leaf(const at::Tensor& t) {
  return t.detach().clone().set_requires_grad(true);
}

/// Runs backward of sum(t * factor), each rank through its own shards.
inline void backward_of_shards(
    const sharded_tensor::ShardedTensor& t, const at::Tensor& factor) {
  at::Tensor loss = at::zeros({}, f64()).set_requires_grad(true);
  for (const auto& shard : t.local_shards()) {
    loss = loss + (shard.tensor * part_of(factor, shard.metadata)).sum();
  }
  loss.backward();
}

/// The same as one number that all ranks have: needs a mesh.
inline void backward_of_sum(
    const sharded_tensor::ShardedTensor& t, const at::Tensor& factor) {
  const auto sum =
      sharded_tensor::dispatch("aten::sum", {sharded_tensor::mul(t, factor)});
  std::get<c10::IValue>(sum[0]).toTensor().backward();
}

/// Tells whether the shards' gradients are the parts of `whole`.
inline ::testing::AssertionResult gradients_are(
    const sharded_tensor::ShardedTensor& t, const at::Tensor& whole) {
  for (const auto& shard : t.local_shards()) {
    const at::Tensor& grad = shard.tensor.grad();
    if (!grad.defined()) {
      return ::testing::AssertionFailure()
             << "rank " << rank() << ": no gradient";
    }
    auto result = close(grad, part_of(whole, shard.metadata));
    if (!result) {
      return result << " as the gradient of " << to_string(shard.metadata);
    }
  }
  return ::testing::AssertionSuccess();
}

/// Tells whether each shard is close to its part of `whole`.
inline ::testing::AssertionResult shards_are_close(
    const sharded_tensor::ShardedTensor& t, const at::Tensor& whole) {
  if (at::IntArrayRef(t.sizes()) != whole.sizes()) {
    return ::testing::AssertionFailure() << "sizes " << t.sizes();
  }
  for (const auto& shard : t.local_shards()) {
    auto result =
        close(shard.tensor, part_of(whole, shard.metadata).contiguous());
    if (!result) {
      return result << " in " << to_string(shard.metadata);
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace tessera::testing
