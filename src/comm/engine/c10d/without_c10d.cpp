// Stands in for the c10d engine where LibTorch was built without it.
#include <c10/util/Exception.h>
#include <tessera/comm/from_process_group.h>

#include "comm/engine/c10d/c10d_transport.h"

namespace c10d {
class ProcessGroup : public c10::intrusive_ptr_target {};
}  // namespace c10d

namespace tessera {
namespace {

constexpr const char* kReason =
    "this LibTorch was built without torch.distributed and Gloo; use the "
    "engine mpi or threads, or another build of LibTorch";

}  // namespace

std::unique_ptr<detail::Transport> detail::open_gloo_transport(
    const Launch& launch, std::chrono::milliseconds /*deadline*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "init: gloo, rank ", launch.rank, ": ", kReason);
}

Communicator from_process_group(
    c10::intrusive_ptr<c10d::ProcessGroup> /*group*/,
    std::chrono::milliseconds /*deadline*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "from_process_group: ", kReason);
}

}  // namespace tessera
