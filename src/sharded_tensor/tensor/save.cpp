// One rank's part of a sharded tensor as bytes.
//
//   u8 init_remote | i64 group rank, rank, group size, world size |
//   metadata | spec | u64 shards | per shard: bytes of its elements
// inside a frame (codec.h). Metadata and spec are what serialize() writes.
#include <cstring>

#include <ATen/ops/empty.h>
#include <base/copy_bytes.h>
#include <c10/util/Exception.h>
#include <sharded_tensor/format/codec.h>
#include <sharded_tensor/tensor/state.h>
#include <tessera/comm/world.h>
#include <tessera/sharded_tensor/serialize.h>
#include <tessera/sharded_tensor/sharded_tensor.h>

namespace tessera::sharded_tensor {

namespace {

// Where a rank stands: a saved part fits only there.
struct RankPosition {
  int64_t group_rank;
  int64_t rank;
  int64_t group_size;
  int64_t world_size;
};

RankPosition position_in(const ProcessGroup& group) {
  return {group.rank(), rank(), group.size(), world_size()};
}

void check_position(const char* what, int64_t saved, int64_t here) {
  TORCH_CHECK(
      saved == here, "restore, rank ", rank(), ": the tensor was saved with ",
      what, " ", saved, ", but this is ", here,
      "; restore it in the same place, or use a checkpoint, which reshards");
}

ShardingSpecPtr savable(const ShardedTensor& tensor) {
  const bool has_code = !tensor.sharding_spec().encode().empty();
  return has_code ? tensor.sharding_spec().clone()
                  : std::make_shared<EnumerableShardingSpec>(
                        tensor.metadata().shards_metadata);
}

std::string_view bytes_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

at::Tensor read_shard(
    format::Reader& in, const ShardMetadata& shard,
    const TensorProperties& properties) {
  const size_t width = c10::elementSize(properties.dtype);
  const size_t size = in.count(1);
  if (size / width !=
          static_cast<size_t>(ShardedTensorBase::shard_size(shard)) ||
      size % width != 0) {
    in.fail("a shard has another number of bytes than its metadata say");
  }
  const std::string_view bytes = in.view(size);
  const at::Tensor values = at::empty(
      shard.shard_sizes,
      at::TensorOptions(properties.dtype).pinned_memory(properties.pin_memory));
  base::copy_bytes(values.mutable_data_ptr(), bytes.data(), size);
  return values.to(shard.placement->device())
      .set_requires_grad(properties.requires_grad);
}

}  // namespace

std::string save(const ShardedTensor& tensor) {
  const RankPosition position = position_in(tensor.process_group());
  format::Writer out;
  out.u8(tensor.state()->remote ? 1 : 0);
  out.i64(position.group_rank);
  out.i64(position.rank);
  out.i64(position.group_size);
  out.i64(position.world_size);
  out.string(serialize(tensor.metadata()));
  out.string(serialize(*savable(tensor)));
  out.u64(tensor.local_shards().size());
  for (const Shard& shard : tensor.local_shards()) {
    out.string(bytes_of(
        shard.tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()));
  }
  return format::frame(format::Kind::kShardedTensor, out.bytes());
}

ShardedTensor restore(std::string_view bytes) {
  constexpr const char* kCall = "restore";
  format::Reader in(
      format::unframe(format::Kind::kShardedTensor, bytes), "ShardedTensor");
  const uint8_t init_remote = in.u8();
  if (init_remote > 1) {
    in.fail("init_remote is neither 0 nor 1");
  }
  const ProcessGroup group = current_process_group();
  return ShardedTensor(
      detail::create_published(kCall, init_remote == 1, group, [&] {
        const RankPosition here = position_in(group);
        check_position("group rank", in.i64(), here.group_rank);
        check_position("global rank", in.i64(), here.rank);
        check_position("a group of size", in.i64(), here.group_size);
        check_position("a world of size", in.i64(), here.world_size);
        const auto metadata = deserialize<ShardedTensorMetadata>(in.string());
        const auto spec = deserialize<ShardingSpecPtr>(in.string());
        auto state = detail::make_state(
            *spec, metadata.size, metadata.tensor_properties, group, kCall);
        if (!same_shards(
                state->metadata.shards_metadata, metadata.shards_metadata)) {
          in.fail("the shards are not those of the spec");
        }
        const auto wanted = detail::shards_of(*state, rank());
        if (in.count(8) != wanted.size()) {
          in.fail("the number of shards is not that of the spec");
        }
        std::vector<at::Tensor> tensors;
        for (const ShardMetadata& shard : wanted) {
          tensors.push_back(read_shard(in, shard, metadata.tensor_properties));
        }
        in.finish();
        detail::set_local_tensors(*state, tensors);
        return state;
      }));
}

}  // namespace tessera::sharded_tensor
