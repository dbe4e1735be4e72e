// Elementwise operators shard by shard: any tiling will do.
#include <ATen/core/grad_mode.h>
#include <algorithm>
#include <tuple>

#include <ATen/ExpandUtils.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <comm/log/call_cause.h>
#include <sharded_tensor/ops/builtin_ops.h>
#include <sharded_tensor/tensor/state.h>
#include <tensor/state/torch_compat.h>
#include <tessera/comm/world.h>
#include <torch/csrc/autograd/functions/utils.h>

namespace tessera::detail::inline sharded_tensor_layer {

using sharded_tensor::ProcessGroup;
using sharded_tensor::ShardedTensor;
using sharded_tensor::TensorProperties;
using sharded_tensor::Value;
using torch::autograd::variable_list;

namespace {

// A plain tensor that all ranks have: each uses a part of it, so its gradient
// is the sum of theirs.
struct SharedBackward final : torch::autograd::Node {
  SharedBackward(const at::Tensor& of, Communicator in)
      : sizes(of.sizes().vec()), options(of.options()), group(std::move(in)) {}
  variable_list apply(variable_list&& gradients) override {
    const CallCause cause("gradient of a plain operand");
    at::Tensor sum = gradients[0].defined() ? gradients[0].contiguous().clone()
                                            : at::zeros(sizes, options);
    group.all_reduce(sum);
    return {sum};
  }
  std::vector<int64_t> sizes;
  at::TensorOptions options;
  Communicator group;
};

at::Tensor shared(const at::Tensor& plain, const ProcessGroup& group) {
  if (group.size() == 1 || !torch::autograd::compute_requires_grad(plain)) {
    return plain;
  }
  at::Tensor result = plain.detach();
  auto node = make_node<SharedBackward>(plain, group.communicator());
  node->set_next_edges(torch::autograd::collect_next_edges(plain));
  torch::autograd::set_history(result, node);
  return result;
}

at::Tensor part_of(
    const at::Tensor& plain, const std::vector<int64_t>& sizes,
    const Box& box) {
  if (plain.dim() == 0) {
    return plain;
  }
  at::Tensor part = plain.expand(sizes);
  for (size_t d = 0; d < sizes.size(); ++d) {
    part = part.narrow(static_cast<int64_t>(d), box.offsets[d], box.sizes[d]);
  }
  return part;
}

bool sharded_alike(const BoxLayout& a, const BoxLayout& b) {
  if (a == b) {
    return true;
  }
  if (a.shape() != b.shape() || a.tiles().size() != b.tiles().size()) {
    return false;
  }
  const auto sorted = [](std::vector<Tile> tiles) {
    const auto key = [](const Tile& t) {
      return std::tie(t.rank, t.box.offsets, t.box.sizes, t.device);
    };
    std::sort(tiles.begin(), tiles.end(), [&](const Tile& x, const Tile& y) {
      return key(x) < key(y);
    });
    return tiles;
  };
  return sorted(a.tiles()) == sorted(b.tiles());
}

// The shard that has the k-th of `boxes`; specs may list theirs in any order.
// Of equal boxes, which are empty, the n-th is the n-th.
const at::Tensor& shard_at(
    const ShardedTensor& tensor, const std::vector<Box>& boxes, size_t k) {
  auto equal_before = std::count(
      boxes.begin(), boxes.begin() + static_cast<int64_t>(k), boxes[k]);
  const std::vector<Box> own = tensor.state()->layout->boxes(rank());
  size_t index = 0;
  while (own.at(index) != boxes[k] || equal_before-- > 0) {
    ++index;
  }
  return tensor.local_shards()[index].tensor;
}

// Calls the operator with sharded(tensor) for the sharded arguments and
// plain(tensor) for the plain ones; returns the results.
template <class Sharded, class Plain>
torch::jit::Stack call_with(
    const BoundCall& call, const Values& arguments, Sharded sharded,
    Plain plain) {
  torch::jit::Stack stack = call.stack;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (const ShardedTensor* tensor = sharded_in(arguments[i])) {
      stack[i] = sharded(*tensor);
    } else if (stack[i].isTensor() && stack[i].toTensor().defined()) {
      stack[i] = plain(stack[i].toTensor());
    }
  }
  call.op.callBoxed(&stack);
  return stack;
}

// The results of all shards, cut like the arguments.
ShardedTensor collected(
    const ShardedTensorState& like, std::vector<at::Tensor> tensors,
    const at::Tensor& anchor) {
  for (at::Tensor& tensor : tensors) {
    tensor = tensor.contiguous();
  }
  TensorProperties properties = like.metadata.tensor_properties;
  properties.dtype = anchor.scalar_type();
  properties.requires_grad = anchor.requires_grad();
  properties.pin_memory = false;
  ShardedTensor result = with_tensors(like, tensors, properties);
  result.state()->anchor = anchor;
  return result;
}

}  // namespace

void check_writable(const ShardedTensor& tensor) {
  const ShardedTensorState& state = *tensor.state();
  const at::Tensor& leaf =
      state.dtensor.defined() ? state.dtensor : state.anchor;
  TORCH_CHECK(
      !at::GradMode::is_enabled() || !leaf.requires_grad() || !leaf.is_leaf(),
      "an in-place operator, rank ", rank(),
      ": a leaf that requires grad must not be written; use a NoGradGuard, or "
      "detach() it");
}

void note_write(const ShardedTensor& tensor) {
  ShardedTensorState& state = *tensor.state();
  state.metadata.tensor_properties.requires_grad = state.anchor.requires_grad();
  if (state.anchor.requires_grad() && !state.anchor.is_leaf()) {
    state.dtensor.reset();  // its history is another one
  }
}

std::vector<size_t> written_arguments(const c10::FunctionSchema& schema) {
  std::vector<size_t> written;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (is_written(schema.arguments()[i])) {
      written.push_back(i);
    }
  }
  return written;
}

bool fits_boxes(const BoundCall& call, const Values& arguments) {
  const ShardedTensor& first = sharded_tensor::find_sharded_tensor(arguments);
  const BoxLayout& layout = *first.state()->layout;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (const ShardedTensor* tensor = sharded_in(arguments[i])) {
      if (!sharded_alike(*tensor->state()->layout, layout)) {
        return false;
      }
      continue;
    }
    const c10::IValue& value = call.stack[i];
    if (value.isTensorList() || value.isOptionalTensorList()) {
      return false;
    }
    if (value.isTensor() && value.toTensor().defined() &&
        !at::is_expandable_to(value.toTensor().sizes(), first.sizes())) {
      return false;
    }
  }
  return true;
}

Values run_on_boxes(const BoundCall& call, const Values& arguments) {
  const ShardedTensor first = sharded_tensor::find_sharded_tensor(arguments);
  const ShardedTensorState& state = *first.state();
  const std::vector<Box> boxes = state.layout->boxes(rank());
  BoundCall mine = call;
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = mine.stack[i];
    if (sharded_in(arguments[i]) == nullptr && value.isTensor()) {
      value = shared(value.toTensor(), *state.group);
    }
  }
  for (const size_t i : written_arguments(call.op.schema())) {
    check_writable(std::get<ShardedTensor>(arguments[i]));
  }
  std::vector<torch::jit::Stack> shards;
  for (size_t k = 0; k < state.local_shards.size(); ++k) {
    shards.push_back(call_with(
        mine, arguments,
        [&](const ShardedTensor& t) { return shard_at(t, boxes, k); },
        [&](const at::Tensor& t) {
          return part_of(t, first.sizes(), boxes[k]);
        }));
  }
  const torch::jit::Stack anchors = call_with(
      mine, arguments, [](const ShardedTensor& t) { return t.state()->anchor; },
      [&](const at::Tensor& t) {
        return t.dim() == 0 ? t.to(state.anchor.device()) : anchor_after(t);
      });
  const std::vector<size_t> written = written_arguments(call.op.schema());
  for (const size_t i : written) {
    note_write(std::get<ShardedTensor>(arguments[i]));
  }
  size_t next = 0;
  Values results;
  for (size_t j = 0; j < anchors.size(); ++j) {
    if (is_written(call.op.schema().returns()[j])) {
      results.push_back(arguments[written.at(next++)]);
      continue;
    }
    std::vector<at::Tensor> tensors;
    for (const torch::jit::Stack& shard : shards) {
      tensors.push_back(shard[j].toTensor());
    }
    results.emplace_back(collected(state, tensors, anchors[j].toTensor()));
  }
  return results;
}

}  // namespace tessera::detail::inline sharded_tensor_layer
