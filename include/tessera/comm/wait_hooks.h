// What a host program does around every wait of a rank for other ranks. For
// hosts whose ranks share a lock: Python's interpreter holds one while it calls
// LibTorch in some places, and a rank that kept it would stop those it waits
// for.
#pragma once

#include <tessera/export.h>

namespace tessera {

/// Two functions that are called before and after each wait, on the thread that
/// waits. Neither may throw.
struct WaitHooks {
  /// Returns what `after` is to be given.
  void* (*before)() = nullptr;
  void (*after)(void* state) = nullptr;
};

/// Sets the hooks of this process; both functions, or none to remove them. Set
/// them while no rank waits.
/// Example: set_wait_hooks({.before = &give_lock, .after = &take_lock});
TESSERA_API void set_wait_hooks(const WaitHooks& hooks);

}  // namespace tessera
