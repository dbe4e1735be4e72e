#include <tensor/state/thread_state.h>
#include <tessera/tensor/dtensor.h>

namespace tessera {

ImplicitReplication::ImplicitReplication() {
  detail::ReplicationDepth& depth = detail::ThreadState::here().replication;
  ++depth.all;
  ++depth.users;
}
ImplicitReplication::~ImplicitReplication() {
  detail::ReplicationDepth& depth = detail::ThreadState::here().replication;
  --depth.all;
  --depth.users;
}

}  // namespace tessera
