// Calls the host's hooks around a wait; see <tessera/comm/wait_hooks.h>.
#pragma once

#include <tessera/comm/wait_hooks.h>

namespace tessera::detail::inline comm_layer {

/// Returns the hooks of this process.
const WaitHooks& wait_hooks();

/// Encloses a wait for other ranks.
class HostWait {
 public:
  HostWait() : hooks_(wait_hooks()) {
    if (hooks_.before != nullptr) {
      state_ = hooks_.before();
    }
  }
  ~HostWait() {
    if (hooks_.after != nullptr) {
      hooks_.after(state_);
    }
  }
  HostWait(const HostWait&) = delete;
  HostWait& operator=(const HostWait&) = delete;

 private:
  const WaitHooks hooks_;
  void* state_ = nullptr;
};

}  // namespace tessera::detail::inline comm_layer
