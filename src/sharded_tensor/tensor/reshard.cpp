// gather, scatter and reshard: each is one exchange between two tilings.
#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <base/text.h>
#include <c10/util/Exception.h>
#include <comm/log/call_cause.h>
#include <layout/boxes/device_kind.h>
#include <sharded_tensor/tensor/agreement.h>
#include <sharded_tensor/tensor/exchange_function.h>
#include <sharded_tensor/tensor/state.h>
#include <tensor/move/box_exchange.h>
#include <tessera/comm/world.h>
#include <tessera/plan/exchange.h>
#include <tessera/sharded_tensor/create.h>
#include <tessera/sharded_tensor/logger.h>

namespace tessera::sharded_tensor {

namespace {

using detail::Tile;

// The whole tensor on one rank, on the kind of device that all shards are on,
// so that data do not travel through the CPU.
BoxLayout unsharded_on(int64_t rank, const BoxLayout& shards) {
  const auto kinds = detail::device_kinds(shards.tiles());
  const std::string device = kinds.size() == 1 ? *kinds.begin() : "cpu";
  return BoxLayout(shards.shape(), {Tile{whole(shards.shape()), rank, device}});
}

// What ranks compare of a spec: its shards, since a user's spec need not have a
// text that tells it from another.
std::string text_of(const ShardingSpec& spec, const detail::StatePtr& state) {
  return to_string(spec) + " " + to_string(state->metadata);
}

int64_t member(
    const char* call, const char* what, int64_t group_rank,
    const ProcessGroup& group) {
  TORCH_CHECK_VALUE(
      group_rank >= 0 && group_rank < group.size(), call, " in ",
      to_string(group), ", rank ", rank(), ": ", what,
      " must be a rank of the group, 0 to ", group.size() - 1, "; got ",
      group_rank);
  return group.ranks()[static_cast<size_t>(group_rank)];
}

void check_output(
    const ShardedTensor& tensor, bool is_destination, const at::Tensor& out,
    std::optional<c10::ScalarType> dtype) {
  if (!is_destination) {
    TORCH_CHECK_VALUE(
        !out.defined(), "gather, rank ", rank(),
        ": only the destination passes an output");
    return;
  }
  TORCH_CHECK_VALUE(
      out.defined(), "gather, rank ", rank(),
      ": the destination must pass an output of sizes [",
      base::join(tensor.sizes(), ", "), "]");
  TORCH_CHECK_VALUE(
      out.sizes() == tensor.sizes(), "gather, rank ", rank(),
      ": the output must have sizes [", base::join(tensor.sizes(), ", "),
      "]; got [", base::join(out.sizes(), ", "), "]");
  TORCH_CHECK_VALUE(
      at::has_internal_overlap(out) != at::MemOverlap::Yes, "gather, rank ",
      rank(), ": elements of the output share memory; clone() it first");
  TORCH_CHECK_VALUE(
      !dtype || out.scalar_type() == *dtype, "gather, rank ", rank(),
      ": the output must have dtype ", *dtype, "; got ", out.scalar_type());
}

// A state cut by another spec, without shards yet.
detail::StatePtr resharded_state(
    const detail::ShardedTensorState& state, const ShardingSpec& spec,
    const char* call) {
  return detail::make_state(
      spec, state.metadata.size, state.metadata.tensor_properties, *state.group,
      call);
}

// A leaf that is cut anew without recording stays a leaf in place; a new tensor
// has no gradient then.
void set_leaf(detail::ShardedTensorState& state, bool in_place) {
  bool& wanted = state.metadata.tensor_properties.requires_grad;
  if (state.anchor.requires_grad() == wanted) {
    return;
  }
  if (!in_place) {
    wanted = state.anchor.requires_grad();
    return;
  }
  state.anchor.set_requires_grad(wanted);
  for (const Shard& shard : state.local_shards) {
    shard.tensor.set_requires_grad(wanted);
  }
}

void move_into(
    const detail::ShardedTensorState& source, detail::ShardedTensorState& to,
    bool in_place) {
  get_or_create_logger().debug([&] {
    return "reshard " + to_string(*source.spec) + " -> " + to_string(*to.spec);
  });
  detail::Shards moved = detail::exchange_shards(
      {detail::local_tensors(source), source.anchor}, *source.layout,
      *to.layout, source.group->communicator());
  detail::set_local_tensors(to, moved.tensors);
  to.anchor = std::move(moved.anchor);
  set_leaf(to, in_place);
}

detail::StatePtr agreed_resharded_state(
    const detail::ShardedTensorState& state, const ShardingSpec& spec) {
  auto agreement = detail::begin_agreement("reshard", *state.group);
  detail::StatePtr target;
  agreement.check([&] {
    target = resharded_state(state, spec, "reshard");
    detail::check_data("reshard", *state.layout, *target->layout);
    agreement.equal(
        "grad mode", at::GradMode::is_enabled() ? "enabled" : "disabled");
    agreement.equal("tensor", to_string(state.metadata));
    agreement.equal("spec", text_of(spec, target));
  });
  agreement.reach();
  return target;
}

}  // namespace

void ShardedTensor::gather(
    int64_t dst, const at::Tensor& out,
    std::optional<c10::ScalarType> dtype) const {
  const detail::CallCause cause("gather");
  const ProcessGroup& group = process_group();
  auto agreement = detail::begin_agreement("gather", group);
  int64_t destination = 0;
  agreement.check([&] {
    destination = member("gather", "dst", dst, group);
    check_output(*this, destination == rank(), out, dtype);
    detail::check_data("gather", *state_->layout, *state_->layout);
    agreement.equal("dst", std::to_string(dst));
    agreement.equal("tensor", to_string(metadata()));
  });
  agreement.reach();
  const at::NoGradGuard no_grad;
  const auto gathered = detail::exchange_boxes(
      detail::local_tensors(*state_), *state_->layout,
      unsharded_on(destination, *state_->layout), this->dtype(),
      group.communicator());
  if (destination == rank()) {
    out.copy_(gathered[0]);
  }
}

ShardedTensor& ShardedTensor::reshard(const ShardingSpec& spec) {
  const detail::CallCause cause("reshard");
  const detail::StatePtr target = agreed_resharded_state(*state_, spec);
  move_into(*state_, *target, /*in_place=*/true);
  target->remote = std::move(state_->remote);
  *state_ = std::move(*target);
  if (state_->remote) {
    detail::publish_again(*state_);
  }
  return *this;
}

ShardedTensor ShardedTensor::resharded(const ShardingSpec& spec) const {
  const detail::CallCause cause("reshard");
  detail::StatePtr target = agreed_resharded_state(*state_, spec);
  move_into(*state_, *target, /*in_place=*/false);
  ShardedTensor result(std::move(target));
  const bool shared = *result.state()->layout == *state_->layout;
  return shared ? detail::map_shards(
                      result, [](const at::Tensor& t) { return t.clone(); })
                : result;
}

std::string ShardedTensor::explain_reshard(const ShardingSpec& spec) const {
  const detail::StatePtr target =
      resharded_state(*state_, spec, "explain_reshard");
  std::ostringstream out;
  out << "reshard " << to_string(sharding_spec()) << " -> " << to_string(spec)
      << ", rank " << rank() << '\n';
  const auto width = static_cast<int64_t>(c10::elementSize(dtype()));
  for (const Transfer& t :
       exchange_transfers(*state_->layout, *target->layout, rank())) {
    if (t.from != t.to) {
      out << "rank " << t.from << " -> rank " << t.to << ": " << t.box << ", "
          << t.box.numel() * width << " bytes\n";
    }
  }
  out << "total: "
      << exchange_elements_on(*state_->layout, *target->layout, rank()) * width
      << " bytes on this rank\n";
  return out.str();
}

ShardedTensor ShardingSpec::shard(
    const at::Tensor& tensor, int64_t src_rank,
    const ProcessGroup& group) const {
  constexpr const char* kCall = "shard";
  const detail::CallCause cause("shard_tensor");
  auto agreement = detail::begin_agreement(kCall, group);
  detail::StatePtr state;
  int64_t source = 0;
  agreement.check([&] {
    source = member(kCall, "src_rank", src_rank, group);
    TensorProperties properties = TensorProperties::create_from_tensor(tensor);
    properties.pin_memory = false;
    state = detail::make_state(
        *this, tensor.sizes().vec(), properties, group, kCall);
    agreement.equal("src_rank", std::to_string(src_rank));
    agreement.equal("spec, size and dtype", text_of(*this, state));
  });
  agreement.reach();
  get_or_create_logger().debug(
      [&] { return "shard " + to_string(state->metadata); });
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> held;
  if (source == rank()) {
    held.push_back(tensor.detach());
  }
  auto shards = detail::exchange_boxes(
      held, unsharded_on(source, *state->layout), *state->layout,
      tensor.scalar_type(), group.communicator());
  for (at::Tensor& shard : shards) {
    // The tensor itself where nothing moved: shards are tensors of their own.
    shard = shard.is_alias_of(tensor) ? shard.clone() : shard;
    shard.set_requires_grad(tensor.requires_grad());
  }
  detail::set_local_tensors(*state, shards);
  return ShardedTensor(std::move(state));
}

ShardedTensor shard_tensor(
    const at::Tensor& tensor, const ShardingSpec& spec, int64_t src_rank,
    const ProcessGroup& group) {
  constexpr const char* kCall = "shard_tensor";
  const detail::CallCause cause(kCall);
  auto agreement = detail::begin_agreement(kCall, group);
  agreement.check([&] {
    TORCH_CHECK_VALUE(
        tensor.defined() && tensor.is_contiguous(), kCall, ", rank ", rank(),
        ": the tensor must be contiguous; call contiguous() first");
    agreement.equal("src_rank", std::to_string(src_rank));
    agreement.equal("spec", to_string(spec));
  });
  agreement.reach();
  return spec.shard(tensor, src_rank, group);
}

}  // namespace tessera::sharded_tensor
