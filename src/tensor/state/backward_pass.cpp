#include <tensor/state/backward_pass.h>

#include <torch/csrc/autograd/graph_task.h>

namespace tessera::detail::inline tensor_layer {

namespace {
constexpr int kNoPass = -1;
// The backward pass in which this thread runs a forward again.
thread_local int interrupted_pass = kNoPass;
}  // namespace

bool in_backward_pass() {
  const int pass = torch::autograd::get_current_graph_task_id();
  return pass != kNoPass && pass != interrupted_pass;
}

ForwardAgain::ForwardAgain() : outer_(interrupted_pass) {
  interrupted_pass = torch::autograd::get_current_graph_task_id();
}

ForwardAgain::~ForwardAgain() {
  interrupted_pass = outer_;
}

}  // namespace tessera::detail::inline tensor_layer
