// Any operator where the shards form a mesh: LibTorch's dispatcher runs it on
// tensors with placements.
#include <base/text.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <sharded_tensor/ops/builtin_ops.h>
#include <sharded_tensor/tensor/infer_mesh.h>
#include <sharded_tensor/tensor/state.h>
#include <tessera/comm/world.h>
#include <tessera/layout/notation.h>
#include <tessera/sharded_tensor/conversion.h>

namespace tessera::detail::inline sharded_tensor_layer {

using sharded_tensor::ChunkShardingSpec;
using sharded_tensor::ProcessGroup;
using sharded_tensor::ShardedTensor;
using sharded_tensor::TensorProperties;
using sharded_tensor::Value;

namespace {

TensorProperties properties_like(
    const ShardedTensor& like, const at::Tensor& tensor) {
  TensorProperties properties = like.metadata().tensor_properties;
  properties.dtype = tensor.scalar_type();
  properties.requires_grad = tensor.requires_grad();
  properties.pin_memory = false;
  return properties;
}

std::vector<at::Tensor> local_of(const at::Tensor& tensor) {
  if (!tessera::spec(tensor).has_shard()) {
    return {};
  }
  return {to_local(tensor).contiguous()};
}

// The tensor with the cut of a sharded one: it is on that mesh already.
ShardedTensor sharded_like(
    const at::Tensor& tensor, const ShardedTensor& like) {
  const at::Tensor reference = to_dtensor(like);
  const at::Tensor moved = redistribute(tensor, placements(reference));
  if (like.state()->dtensor.defined()) {
    return from_dtensor(moved, like.process_group());
  }
  ShardedTensor result = with_tensors(
      *like.state(), local_of(moved), properties_like(like, moved));
  result.state()->anchor = anchor_after(to_local(moved));
  return result;
}

// The global value as a plain tensor, on every rank of the group.
at::Tensor plain_of(const at::Tensor& tensor, const ProcessGroup& group) {
  const DeviceMesh mesh = group_mesh(device_mesh(tensor).device_type(), group);
  return to_local(redistribute(tensor, mesh, {Replicate()}));
}

// LibTorch's rule, which it cannot see behind to_dtensor().
void check_writable(const std::string& op, const ShardedTensor& tensor) {
  const at::Tensor& leaf = tensor.state()->anchor;
  TORCH_CHECK(
      !c10::GradMode::is_enabled() || !leaf.requires_grad() || !leaf.is_leaf(),
      op, ", rank ", rank(),
      ": a leaf that requires a gradient must not be written in place; hold a "
      "NoGradGuard, or clone() it first");
}

// After a write through to_dtensor(): the memory is shared, the history is not.
void adopt_write(
    const std::string& op, const ShardedTensor& tensor,
    const at::Tensor& written) {
  TORCH_CHECK_VALUE(
      written.sizes() == at::IntArrayRef(tensor.sizes()), op, ", rank ", rank(),
      ": a sharded tensor cannot change its shape in place; got ",
      shape_to_string(tensor.sizes()), " and ",
      shape_to_string(written.sizes().vec()));
  ShardedTensorState& state = *tensor.state();
  if (!written.requires_grad()) {
    return;
  }
  if (state.dtensor.defined()) {
    auto remote = state.remote;
    state = *from_dtensor(written, *state.group).state();
    state.remote = std::move(remote);
    return;
  }
  set_local_tensors(state, local_of(written));
  state.anchor = anchor_after(to_local(written));
  state.metadata.tensor_properties.requires_grad = true;
}

Value result_of(const c10::IValue& value, const ShardedTensor& first) {
  if (value.isTensor() && value.toTensor().defined()) {
    const at::Tensor& tensor = value.toTensor();
    if (!is_dtensor(tensor)) {
      return value;
    }
    if (tensor.sizes() == at::IntArrayRef(first.sizes())) {
      return sharded_like(tensor, first);
    }
    return c10::IValue(plain_of(tensor, first.process_group()));
  }
  c10::IValue plain = value;
  map_tensors(plain, [&](const at::Tensor& t) {
    return t.defined() && is_dtensor(t) ? plain_of(t, first.process_group())
                                        : t;
  });
  return plain;
}

}  // namespace

DeviceMesh group_mesh(c10::DeviceType device_type, const ProcessGroup& group) {
  return shared_mesh(
      device_type, MeshShape::from_ranks(group.ranks(), {group.size()}));
}

c10::IValue on_mesh(
    const std::string& op, const Value& value, const DeviceMesh& mesh,
    const ProcessGroup& group) {
  if (const ShardedTensor* sharded = sharded_in(value)) {
    const at::Tensor tensor = to_dtensor(*sharded);
    TORCH_CHECK_VALUE(
        device_mesh(tensor) == mesh, op, " on ", to_string(mesh), ", rank ",
        rank(),
        ": the sharded tensors must be on one mesh, its ranks in one order; "
        "got ranks [",
        base::join(mesh.mesh_shape().ranks(), ", "), "] and those of ",
        to_string(sharded->sharding_spec()), "; reshard() one of them first");
    return tensor;
  }
  const auto& plain = std::get<c10::IValue>(value);
  if (!plain.isTensor() || !plain.toTensor().defined() ||
      !plain.toTensor().requires_grad()) {
    return plain;
  }
  const DeviceMesh all = group_mesh(mesh.device_type(), group);
  return redistribute(
      from_local(plain.toTensor(), all, {Replicate()}), mesh,
      Placements(static_cast<size_t>(mesh.ndim())));
}

ShardedTensor resharded_like(
    const at::Tensor& tensor, const Placements& placements,
    const ShardedTensor& like) {
  const at::Tensor moved = redistribute(tensor, placements);
  const auto* chunks =
      dynamic_cast<const ChunkShardingSpec*>(&like.sharding_spec());
  if (chunks == nullptr || placements.size() != 1 ||
      !placements[0].is_plain_shard()) {
    return from_dtensor(moved, like.process_group());
  }
  auto state = make_state(
      ChunkShardingSpec(placements[0].dim(), chunks->placements()),
      moved.sizes().vec(), properties_like(like, moved), like.process_group(),
      "ShardedTensor");
  set_local_tensors(*state, local_of(moved));
  state->anchor = anchor_after(to_local(moved));
  return ShardedTensor(std::move(state));
}

Values run_on_mesh(const BoundCall& call, const Values& arguments) {
  const ShardedTensor first = sharded_tensor::find_sharded_tensor(arguments);
  const std::string op = full_name(call.op.operator_name());
  const auto& schema = call.op.schema();
  const DeviceMesh mesh = device_mesh(to_dtensor(first));
  torch::jit::Stack stack = call.stack;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (sharded_in(arguments[i]) != nullptr || stack[i].isTensor()) {
      stack[i] = on_mesh(op, arguments[i], mesh, first.process_group());
    }
  }
  const std::vector<size_t> written = written_arguments(schema);
  std::vector<at::Tensor> values;
  for (const size_t i : written) {
    check_writable(op, std::get<ShardedTensor>(arguments[i]));
    values.push_back(stack[i].toTensor());
  }
  {
    const ImplicitReplication plain_is_replicated;
    call.op.callBoxed(&stack);
  }
  for (size_t k = 0; k < written.size(); ++k) {
    adopt_write(op, std::get<ShardedTensor>(arguments[written[k]]), values[k]);
  }
  size_t next = 0;
  Values results;
  for (size_t j = 0; j < stack.size(); ++j) {
    if (is_written(schema.returns()[j])) {
      results.push_back(arguments[written.at(next++)]);
    } else {
      results.push_back(result_of(stack[j], first));
    }
  }
  return results;
}

}  // namespace tessera::detail::inline sharded_tensor_layer
