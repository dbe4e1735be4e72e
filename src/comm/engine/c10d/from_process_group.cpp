#include <tessera/comm/from_process_group.h>

#include <c10/util/Exception.h>
#include <tessera/comm/world.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "comm/engine/c10d/c10d_transport.h"
#include "comm/engine/process/process_world.h"

namespace tessera {

Communicator from_process_group(
    c10::intrusive_ptr<c10d::ProcessGroup> group,
    std::chrono::milliseconds deadline) {
  TORCH_CHECK_VALUE(group, "from_process_group: got no process group");
  TORCH_CHECK_VALUE(
      deadline.count() > 0,
      "from_process_group: the deadline must be positive; got ",
      deadline.count(), " ms");
  return World(std::make_shared<detail::ProcessWorld>(
                   detail::open_group_transport(group), deadline))
      .communicator();
}

}  // namespace tessera
