#include <ATen/ATen.h>
#include <tessera/comm/world.h>
#include <tessera/sharded_tensor/create.h>
#include <tessera/sharded_tensor/sharding_spec.h>
#include <tessera/tensor/dtensor.h>

#include "differential_fuzz/collectives.h"
#include "differential_fuzz/player.h"

namespace tessera::programs {
namespace {

// Ranks in some order, some twice, some not at all.
sharded_tensor::ChunkShardingSpec chunks(
    const Step& step, size_t code, int64_t ndim, int64_t ranks) {
  std::vector<sharded_tensor::RemoteDevice> places;
  const int64_t count = 1 + step.code(code, ranks + 2);
  for (int64_t i = 0; i < count; ++i) {
    places.emplace_back(
        (step.code(code + 1, ranks) + i * (1 + step.code(code + 2, 2))) % ranks,
        c10::Device(c10::kCPU));
  }
  return sharded_tensor::ChunkShardingSpec(step.code(code + 3, ndim), places);
}

}  // namespace

Player::Value Player::communicate(const Step& step) {
  Value moved;
  const auto between = [&] {
    moved = redistribute_step(step);
    hash_.add(moved.tensor);
  };
  const std::string what =
      play_communication(step, mesh_of(step.mesh), hash_, between);
  kind_ += "." + what.substr(0, what.find(" over "));
  say(" " + what);
  return moved;
}

Player::Value Player::family(const Step& step) {
  const List& shape = step.source.shape;
  const auto ndim = static_cast<int64_t>(shape.size());
  const at::Tensor whole = distinct(shape, step.source.dtype, step.id);
  auto tensor = sharded_tensor::shard_tensor(
      whole, chunks(step, 0, ndim, program_.ranks),
      step.code(8, program_.ranks));
  for (const size_t code : {size_t{3}, size_t{5}}) {
    tensor.reshard(chunks(step, code, ndim, program_.ranks));
    for (const auto& shard : tensor.local_shards()) {
      hash_.add_plain(shard.tensor);
    }
  }
  const int64_t dst = step.code(9, program_.ranks);
  const at::Tensor out =
      rank() == dst ? at::zeros(shape, whole.options()) : at::Tensor();
  tensor.gather(dst, out);
  TORCH_CHECK(
      !out.defined() || at::equal(out, whole), "gather, rank ", rank(),
      ": got\n", out, "\nwant\n", whole);
  if (out.defined()) {
    hash_.add_plain(out);
  }
  say(" reshard, gather");
  return {};
}

}  // namespace tessera::programs
