#include <tensor/state/plain_is_replicated.h>

#include <tensor/state/thread_state.h>
#include <torch/csrc/autograd/graph_task.h>

namespace tessera::detail::inline tensor_layer {

PlainIsReplicated::PlainIsReplicated() {
  ++ThreadState::here().replication.all;
}
PlainIsReplicated::~PlainIsReplicated() {
  --ThreadState::here().replication.all;
}
// Derivative formulas, which run inside a graph task, mix plain tensors of
// their own in as composite kernels do.
bool PlainIsReplicated::active() {
  return ThreadState::here().replication.all > 0 ||
         torch::autograd::get_current_graph_task_id() != -1;
}
bool PlainIsReplicated::by_construction() {
  const ReplicationDepth& depth = ThreadState::here().replication;
  return depth.all > depth.users ||
         torch::autograd::get_current_graph_task_id() != -1;
}

}  // namespace tessera::detail::inline tensor_layer
