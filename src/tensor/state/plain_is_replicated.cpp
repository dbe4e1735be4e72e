#include <tensor/state/plain_is_replicated.h>

#include <torch/csrc/autograd/graph_task.h>

namespace tessera::detail::inline tensor_layer {

namespace {
thread_local ReplicationDepth thread_depth;
}  // namespace

ReplicationDepth& replication_depth() {
  return thread_depth;
}

PlainIsReplicated::PlainIsReplicated() {
  ++thread_depth.all;
}
PlainIsReplicated::~PlainIsReplicated() {
  --thread_depth.all;
}
// Derivative formulas, which run inside a graph task, mix plain tensors of
// their own in as composite kernels do.
bool PlainIsReplicated::active() {
  return thread_depth.all > 0 ||
         torch::autograd::get_current_graph_task_id() != -1;
}
bool PlainIsReplicated::by_construction() {
  return thread_depth.all > thread_depth.users ||
         torch::autograd::get_current_graph_task_id() != -1;
}

}  // namespace tessera::detail::inline tensor_layer
