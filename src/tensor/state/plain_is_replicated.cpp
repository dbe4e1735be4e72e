#include <tensor/state/plain_is_replicated.h>

#include <tensor/state/backward_pass.h>
#include <tensor/state/thread_state.h>

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
  return ThreadState::here().replication.all > 0 || in_backward_pass();
}
bool PlainIsReplicated::by_construction() {
  const ReplicationDepth& depth = ThreadState::here().replication;
  return depth.all > depth.users || in_backward_pass();
}

}  // namespace tessera::detail::inline tensor_layer
