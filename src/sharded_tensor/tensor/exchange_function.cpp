#include <sharded_tensor/tensor/exchange_function.h>

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <comm/log/call_cause.h>
#include <tensor/move/box_exchange.h>
#include <tensor/state/torch_compat.h>
#include <tessera/comm/world.h>
#include <torch/csrc/autograd/functions/utils.h>

namespace tessera::detail::inline sharded_tensor_layer {

namespace {

using torch::autograd::variable_list;

// What an undefined gradient of a tile means.
at::Tensor zeros_of(const Tile& tile, at::ScalarType dtype) {
  return at::zeros(
      tile.box.sizes,
      at::TensorOptions(dtype).device(c10::Device(tile.device)));
}

struct ExchangeBackward final : torch::autograd::Node {
  ExchangeBackward(
      const BoxLayout& from, const BoxLayout& to, Communicator in,
      at::ScalarType of)
      : source(from), target(to), group(std::move(in)), dtype(of) {}

  variable_list apply(variable_list&& gradients) override {
    const CallCause cause("gradient of reshard");
    Shards back;
    for (const Tile& tile : target.tiles()) {
      if (tile.rank == rank()) {
        at::Tensor& g = gradients[back.tensors.size()];
        back.tensors.push_back(g.defined() ? g : zeros_of(tile, dtype));
      }
    }
    back.anchor = at::empty({0}, at::TensorOptions(dtype));
    Shards moved = exchange_shards(back, target, source, group);
    moved.tensors.push_back(moved.anchor);
    return std::move(moved.tensors);
  }

  BoxLayout source;
  BoxLayout target;
  Communicator group;
  at::ScalarType dtype;
};

}  // namespace

Shards exchange_shards(
    const Shards& shards, const BoxLayout& source, const BoxLayout& target,
    const Communicator& group) {
  const at::ScalarType dtype = shards.anchor.scalar_type();
  variable_list inputs = shards.tensors;
  inputs.push_back(shards.anchor);
  const bool differentiable = torch::autograd::compute_requires_grad(inputs);
  Shards result;
  {
    const at::NoGradGuard no_grad;
    result.tensors =
        exchange_boxes(shards.tensors, source, target, dtype, group);
    result.anchor = at::empty({0}, at::TensorOptions(dtype));
  }
  if (!differentiable) {
    return result;
  }
  variable_list outputs;
  for (at::Tensor& tensor : result.tensors) {
    // Equal tiles come back as they went in.
    const auto same = [&](const at::Tensor& t) { return t.is_same(tensor); };
    tensor = std::any_of(inputs.begin(), inputs.end(), same) ? tensor.detach()
                                                             : tensor;
    outputs.push_back(tensor);
  }
  outputs.push_back(result.anchor);
  auto node = make_node<ExchangeBackward>(source, target, group, dtype);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  torch::autograd::set_history(outputs, node);
  return result;
}

}  // namespace tessera::detail::inline sharded_tensor_layer
