#include <parallel/fully_shard/unshard_node.h>

#include <utility>

#include <c10/util/Exception.h>
#include <tensor/state/torch_compat.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

namespace tessera::detail::inline parallel_layer {

namespace {

using torch::autograd::variable_list;

// Owned by tensors that the reducer owns, so it may only refer to it weakly.
struct UnshardBackward final : torch::autograd::Node {
  UnshardBackward(std::weak_ptr<GradientReducer> to, size_t number)
      : reducer(std::move(to)), group(number) {}
  variable_list apply(variable_list&& gradients) override {
    const auto alive = reducer.lock();
    return alive ? alive->reduce(group, std::move(gradients))
                 : variable_list(num_outputs());
  }
  std::weak_ptr<GradientReducer> reducer;
  size_t group;
};

}  // namespace

void record_unshard(
    const std::vector<at::Tensor>& leaves, const std::vector<at::Tensor>& taken,
    std::weak_ptr<GradientReducer> reducer, size_t group) {
  auto node = make_node<UnshardBackward>(std::move(reducer), group);
  torch::autograd::edge_list edges;
  for (const at::Tensor& leaf : leaves) {
    edges.push_back(
        leaf.defined() ? torch::autograd::impl::gradient_edge(leaf)
                       : torch::autograd::Edge());
  }
  node->set_next_edges(std::move(edges));
  for (size_t m = 0; m < taken.size(); ++m) {
    torch::autograd::set_history(
        leaves[m].defined() ? taken[m] : at::Tensor(), node);
  }
}

}  // namespace tessera::detail::inline parallel_layer
