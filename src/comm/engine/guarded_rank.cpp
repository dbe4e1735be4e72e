#include "comm/engine/guarded_rank.h"

#include <atomic>

#include <c10/util/Exception.h>

#include "comm/engine/inherited_modes.h"

namespace tessera::detail::inline comm_layer {
namespace {

std::atomic<int64_t> worlds_of_threads = 0;

}  // namespace

ThreadRanksRun::ThreadRanksRun() {
  ++worlds_of_threads;
}
ThreadRanksRun::~ThreadRanksRun() {
  --worlds_of_threads;
}

void check_no_thread_ranks(const char* call) {
  TORCH_CHECK_VALUE(
      worlds_of_threads == 0, call,
      ": this thread is none of the ranks that run as threads of this process; "
      "a thread that a rank has started itself joins it with "
      "tessera::RankGuard guard(world), where world is that rank's init()");
}

const Guarded& guarded() {
  static const Guarded none;
  const auto* guarded = mode_value<Guarded>(Mode::kRank);
  return guarded != nullptr ? *guarded : none;
}

}  // namespace tessera::detail::inline comm_layer
