#include <tensor/random/ops/plain_draws.h>

#include <utility>

#include <tensor/state/dispatch_keys.h>

namespace tessera::detail::inline tensor_layer {

namespace {
thread_local RandomCounters* current_counters = nullptr;
}  // namespace

UnshardedRandom::UnshardedRandom(std::shared_ptr<RandomCounters> counters)
    : counters_(std::move(counters)),
      outer_(current_counters),
      include_(kUnshardedRandomKey) {
  current_counters = counters_.get();
}
UnshardedRandom::~UnshardedRandom() {
  current_counters = outer_;
}
RandomCounters* UnshardedRandom::current() {
  return current_counters;
}

}  // namespace tessera::detail::inline tensor_layer
