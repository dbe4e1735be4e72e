// Sharded tensors of shards that exist already: what must hold of them, on one
// rank and between ranks.
#include <algorithm>
#include <cstring>

#include <ATen/ops/empty.h>
#include <base/text.h>
#include <c10/util/Exception.h>
#include <comm/log/call_cause.h>
#include <sharded_tensor/spec/placement_owner.h>
#include <sharded_tensor/tensor/agreement.h>
#include <sharded_tensor/tensor/state.h>
#include <tessera/comm/world.h>
#include <tessera/sharded_tensor/create.h>
#include <tessera/sharded_tensor/serialize.h>

namespace tessera::sharded_tensor {

namespace {

// Words of a rule broken by one shard.
class ShardCheck {
 public:
  ShardCheck(const char* call, const Shard& shard)
      : call_(call), shard_(shard) {}

  template <class... Text>
  void holds(bool ok, const Text&... text) const {
    TORCH_CHECK_VALUE(
        ok, call_, ", rank ", rank(), ": ", text..., "; got ",
        to_string(shard_.metadata));
  }
  template <class T, class U>
  void same(const char* what, const T& got, const U& wanted) const {
    holds(
        got == wanted, what, " must be ", wanted, " as in the rest, but is ",
        got);
  }

  // What holds of every shard by itself.
  void alone() const {
    const at::Tensor& t = shard_.tensor;
    holds(shard_.metadata.placement.has_value(), "a shard needs a placement");
    holds(
        t.layout() == c10::kStrided, "shards are strided tensors, not ",
        t.layout());
    holds(t.is_contiguous(), "shards must be contiguous");
    holds(
        t.sizes() == shard_.metadata.shard_sizes, "its tensor has sizes [",
        base::join(t.sizes(), ", "), "]");
    holds(
        t.device() == shard_.metadata.placement->device(), "its tensor is on ",
        t.device());
  }
  // What shards of one tensor have in common.
  void like(const TensorProperties& properties) const {
    const at::Tensor& t = shard_.tensor;
    same("pin_memory", t.is_pinned(), properties.pin_memory);
    same("the dtype", t.scalar_type(), properties.dtype);
    same("requires_grad", t.requires_grad(), properties.requires_grad);
  }

 private:
  const char* call_;
  const Shard& shard_;
};

void check_group_size(const std::vector<int64_t>& sizes, const char* call) {
  for (const int64_t size : sizes) {
    TORCH_CHECK_VALUE(
        size >= 0, call, ", rank ", rank(),
        ": sizes must not be negative; got [", base::join(sizes, ", "), "]");
  }
}

// This rank's part of the metadata; nothing where it has no shards.
std::optional<ShardedTensorMetadata> local_metadata(
    const std::vector<Shard>& shards, const std::vector<int64_t>& sizes,
    const char* call) {
  check_group_size(sizes, call);
  if (shards.empty()) {
    return std::nullopt;
  }
  ShardedTensorMetadata metadata;
  metadata.size = sizes;
  metadata.tensor_properties =
      TensorProperties::create_from_tensor(shards[0].tensor);
  for (const Shard& shard : shards) {
    const ShardCheck check(call, shard);
    check.alone();
    check.like(metadata.tensor_properties);
    const int64_t owner = detail::owner_of(*shard.metadata.placement, call);
    check.holds(
        owner == rank(), "a local shard must be placed on this rank, not on ",
        owner);
    metadata.shards_metadata.push_back(shard.metadata);
  }
  return metadata;
}

// Joins the parts of all ranks, in group order.
ShardedTensorMetadata joined_metadata(
    const std::vector<std::optional<ShardedTensorMetadata>>& parts,
    const ProcessGroup& group, const char* call) {
  size_t first = 0;
  while (first < parts.size() && !parts[first]) {
    ++first;
  }
  TORCH_CHECK_VALUE(
      first < parts.size(), call, " in ", to_string(group), ", rank ", rank(),
      ": no rank has a shard");
  ShardedTensorMetadata all = *parts[first];
  const auto check = [&](size_t r, const char* what, const auto& field) {
    TORCH_CHECK_VALUE(
        field(*parts[r]) == field(all), call, " in ", to_string(group),
        ", rank ", rank(), ": ranks differ in ", what, "; rank ",
        group.ranks()[first], " has ", to_string(*parts[first]), ", rank ",
        group.ranks()[r], " has ", to_string(*parts[r]));
  };
  for (size_t r = first + 1; r < parts.size(); ++r) {
    if (!parts[r]) {
      continue;
    }
    check(r, "the global size", [](const auto& m) { return m.size; });
    check(r, "dtype, requires_grad or pin_memory", [](const auto& m) {
      return m.tensor_properties;
    });
    all.shards_metadata.insert(
        all.shards_metadata.end(), parts[r]->shards_metadata.begin(),
        parts[r]->shards_metadata.end());
  }
  validate_non_overlapping_shards_metadata(all.shards_metadata);
  check_tensor(all.shards_metadata, all.size);
  return all;
}

std::vector<std::optional<ShardedTensorMetadata>> exchanged(
    const std::optional<ShardedTensorMetadata>& mine,
    detail::Agreement& agreement) {
  std::vector<std::optional<ShardedTensorMetadata>> parts;
  for (const std::string& bytes :
       agreement.collect(mine ? serialize(*mine) : std::string())) {
    parts.push_back(
        bytes.empty()
            ? std::nullopt
            : std::optional(deserialize<ShardedTensorMetadata>(bytes)));
  }
  return parts;
}

void check_count(
    const std::vector<Shard>& shards, const std::vector<ShardMetadata>& wanted,
    const char* call) {
  TORCH_CHECK(
      shards.size() == wanted.size(), call, ", rank ", rank(),
      ": the metadata give this rank ", wanted.size(), " shards; got ",
      shards.size());
}

// Puts shards in the order of the metadata.
std::vector<at::Tensor> in_order(
    const std::vector<Shard>& shards, const std::vector<ShardMetadata>& wanted,
    const char* call) {
  check_count(shards, wanted, call);
  std::vector<at::Tensor> tensors;
  std::vector<bool> used(shards.size(), false);
  for (const ShardMetadata& metadata : wanted) {
    const auto find = [&](auto is_it) {
      size_t i = 0;
      while (i < shards.size() && (used[i] || !is_it(shards[i].metadata))) {
        ++i;
      }
      return i;
    };
    size_t i = find([&](const ShardMetadata& m) { return m == metadata; });
    if (i == shards.size()) {
      i = find(
          [&](const ShardMetadata& m) { return same_shards({m}, {metadata}); });
    }
    TORCH_CHECK_VALUE(
        i < shards.size(), call, ", rank ", rank(), ": no local shard is the ",
        to_string(metadata), " that the metadata give this rank");
    used[i] = true;
    tensors.push_back(shards[i].tensor);
  }
  return tensors;
}

// Metadata as a state has them: those of the spec, whose order counts.
detail::StatePtr state_of(
    const ShardedTensorMetadata& metadata, ShardingSpecPtr spec,
    const ProcessGroup& group, const char* call) {
  if (!spec) {
    spec = infer_sharding_spec_from_shards_metadata(metadata.shards_metadata);
  }
  auto state = detail::make_state(
      *spec, metadata.size, metadata.tensor_properties, group, call);
  TORCH_CHECK_VALUE(
      same_shards(state->metadata.shards_metadata, metadata.shards_metadata),
      call, ", rank ", rank(), ": the spec's shards are others; got ",
      to_string(*spec), " for ", to_string(metadata));
  return state;
}

// A state with its tensors.
detail::StatePtr with_shards(
    detail::StatePtr state, const std::vector<at::Tensor>& tensors) {
  detail::set_local_tensors(*state, tensors);
  return state;
}

// The shards that all ranks have, once it is known that all of them can say so.
detail::StatePtr exchanged_state(
    const std::vector<Shard>& local_shards, const std::vector<int64_t>& sizes,
    const ProcessGroup& group, const char* call) {
  auto agreement = detail::begin_agreement(call, group);
  std::optional<ShardedTensorMetadata> mine;
  agreement.check([&] { mine = local_metadata(local_shards, sizes, call); });
  const auto all = joined_metadata(exchanged(mine, agreement), group, call);
  auto state = state_of(all, nullptr, group, call);
  const auto wanted = detail::shards_of(*state, rank());
  return with_shards(std::move(state), in_order(local_shards, wanted, call));
}

// The same where rows are counted together.
detail::StatePtr counted_state(
    const std::vector<Shard>& local_shards, const ProcessGroup& group,
    const char* call) {
  auto agreement = detail::begin_agreement(call, group);
  std::optional<ShardedTensorMetadata> mine;
  agreement.check([&] {
    TORCH_CHECK_VALUE(
        local_shards.size() == 1 && local_shards[0].tensor.dim() > 0, call,
        ", rank ", rank(),
        ": with unknown sizes each rank has exactly one shard, of at least one "
        "dim; got ",
        local_shards.size());
    mine = local_metadata(
        local_shards, local_shards[0].tensor.sizes().vec(), call);
  });
  auto parts = exchanged(mine, agreement);
  int64_t rows = 0;
  for (auto& part : parts) {
    ShardMetadata& shard = part->shards_metadata[0];
    shard.shard_offsets.assign(shard.shard_offsets.size(), 0);
    shard.shard_offsets[0] = rows;
    rows += shard.shard_sizes[0];
  }
  for (auto& part : parts) {
    part->size[0] = rows;
  }
  const auto all = joined_metadata(parts, group, call);
  return with_shards(
      state_of(all, nullptr, group, call), {local_shards[0].tensor});
}

}  // namespace

ShardedTensor init_from_local_shards(
    std::vector<Shard> local_shards, const std::vector<int64_t>& sizes,
    const ShardedTensorOptions& options) {
  constexpr const char* kCall = "init_from_local_shards";
  const detail::CallCause cause(kCall);
  return ShardedTensor(detail::create_published(
      kCall, options.init_remote, options.process_group, [&] {
        return exchanged_state(
            local_shards, sizes, options.process_group, kCall);
      }));
}

ShardedTensor init_from_local_shards(
    std::vector<Shard> local_shards, std::nullopt_t /*sizes*/,
    const ShardedTensorOptions& options) {
  constexpr const char* kCall = "init_from_local_shards";
  const detail::CallCause cause(kCall);
  return ShardedTensor(detail::create_published(
      kCall, options.init_remote, options.process_group, [&] {
        return counted_state(local_shards, options.process_group, kCall);
      }));
}

ShardedTensor init_from_local_shards_and_global_metadata(
    std::vector<Shard> local_shards, const ShardedTensorMetadata& metadata,
    const ShardedTensorOptions& options, ShardingSpecPtr spec) {
  constexpr const char* kCall = "init_from_local_shards_and_global_metadata";
  return ShardedTensor(detail::create_published(
      kCall, options.init_remote, detail::all_ranks(), [&] {
        TORCH_CHECK_VALUE(
            !metadata.shards_metadata.empty(), kCall, ", rank ", rank(),
            ": the metadata list no shards");
        validate_non_overlapping_shards_metadata(metadata.shards_metadata);
        check_tensor(metadata.shards_metadata, metadata.size);
        auto state = state_of(metadata, spec, options.process_group, kCall);
        const auto wanted = detail::shards_of(*state, rank());
        check_count(local_shards, wanted, kCall);
        for (const Shard& shard : local_shards) {
          const ShardCheck check(kCall, shard);
          check.alone();
          check.like(metadata.tensor_properties);
        }
        return with_shards(
            std::move(state), in_order(local_shards, wanted, kCall));
      }));
}

ShardedTensor init_from_local_tensor(
    const at::Tensor& tensor, const ShardingSpec& spec,
    const std::vector<int64_t>& sizes, const ShardedTensorOptions& options) {
  constexpr const char* kCall = "init_from_local_tensor";
  return ShardedTensor(detail::create_published(
      kCall, options.init_remote, detail::all_ranks(), [&] {
        TORCH_CHECK_VALUE(
            tensor.defined() && tensor.is_contiguous(), kCall, ", rank ",
            rank(), ": the tensor must be contiguous");
        auto state = detail::make_state(
            spec, sizes, TensorProperties::create_from_tensor(tensor),
            options.process_group, kCall);
        const size_t owned = detail::shards_of(*state, rank()).size();
        TORCH_CHECK_VALUE(
            owned <= 1, kCall, ", rank ", rank(), ": ", to_string(spec),
            " gives this rank ", owned,
            " shards, which one tensor cannot be; use "
            "init_from_local_shards()");
        return with_shards(std::move(state), {tensor});
      }));
}

ShardedTensorBase ShardedTensorBase::init_from_local_shards_and_global_metadata(
    std::vector<Shard> local_shards, const ShardedTensorMetadata& metadata,
    ShardingSpecPtr spec) {
  constexpr const char* kCall =
      "ShardedTensorBase::init_from_local_shards_and_global_metadata";
  TORCH_CHECK_VALUE(
      !metadata.shards_metadata.empty(), kCall,
      ": the metadata list no shards");
  TORCH_CHECK_VALUE(
      metadata.tensor_properties.layout == c10::kStrided, kCall,
      ": shards are strided tensors; got layout ",
      metadata.tensor_properties.layout);
  validate_non_overlapping_shards_metadata(metadata.shards_metadata);
  check_tensor(metadata.shards_metadata, metadata.size);
  if (!spec) {
    spec = infer_sharding_spec_from_shards_metadata(metadata.shards_metadata);
  }
  ShardedTensorBase made(*spec, metadata.size, metadata.tensor_properties);
  made.state_->local_shards = std::move(local_shards);
  return made;
}

}  // namespace tessera::sharded_tensor
