#include "comm/wait_hooks.h"

#include <c10/util/Exception.h>

namespace tessera {
namespace {

WaitHooks& current_hooks() {
  static WaitHooks instance;
  return instance;
}

}  // namespace

const WaitHooks& detail::wait_hooks() {
  return current_hooks();
}

void set_wait_hooks(const WaitHooks& hooks) {
  TORCH_CHECK_VALUE(
      (hooks.before == nullptr) == (hooks.after == nullptr),
      "set_wait_hooks: both functions are needed, or none; got ",
      hooks.before == nullptr ? "'after'" : "'before'", " alone");
  current_hooks() = hooks;
}

}  // namespace tessera
