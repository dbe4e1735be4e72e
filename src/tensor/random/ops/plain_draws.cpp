#include <tensor/random/ops/plain_draws.h>

#include <utility>

#include <comm/engine/inherited_modes.h>
#include <tensor/state/dispatch_keys.h>

namespace tessera::detail::inline tensor_layer {

using CountersPtr = std::shared_ptr<RandomCounters>;

UnshardedRandom::UnshardedRandom(CountersPtr counters)
    : outer_(exchange_mode(
          Mode::kRandomCounters,
          std::make_shared<const CountersPtr>(std::move(counters)))),
      include_(kUnshardedRandomKey) {}
UnshardedRandom::~UnshardedRandom() {
  exchange_mode(Mode::kRandomCounters, std::move(outer_));
}
RandomCounters* UnshardedRandom::current() {
  const auto* counters = mode_value<CountersPtr>(Mode::kRandomCounters);
  return counters != nullptr ? counters->get() : nullptr;
}

}  // namespace tessera::detail::inline tensor_layer
