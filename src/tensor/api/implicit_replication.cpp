#include <tensor/state/plain_is_replicated.h>
#include <tessera/tensor/dtensor.h>

namespace tessera {

ImplicitReplication::ImplicitReplication() {
  detail::ReplicationDepth& depth = detail::replication_depth();
  ++depth.all;
  ++depth.users;
}
ImplicitReplication::~ImplicitReplication() {
  detail::ReplicationDepth& depth = detail::replication_depth();
  --depth.all;
  --depth.users;
}

}  // namespace tessera
