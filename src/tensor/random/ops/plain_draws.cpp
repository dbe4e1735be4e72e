#include <tensor/random/ops/plain_draws.h>

#include <utility>

#include <tensor/state/dispatch_keys.h>

namespace tessera::detail {

namespace {
thread_local RandomCounters* current_counters = nullptr;
}  // namespace

PlainDraws::PlainDraws(std::shared_ptr<RandomCounters> counters)
    : counters_(std::move(counters)),
      outer_(current_counters),
      include_(kPlainRandomKey) {
  current_counters = counters_.get();
}
PlainDraws::~PlainDraws() {
  current_counters = outer_;
}
RandomCounters* PlainDraws::current() {
  return current_counters;
}

}  // namespace tessera::detail
