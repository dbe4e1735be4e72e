#include <tessera/comm/progress.h>

#include "comm/engine/process/pending_calls.h"

namespace tessera {

void progress() {
  if (detail::pending_calls.load(std::memory_order_relaxed) != 0) {
    detail::advance_calls();
  }
}

}  // namespace tessera
