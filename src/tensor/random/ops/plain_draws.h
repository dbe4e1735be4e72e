// Where random operators on plain tensors draw from.
#pragma once

#include <memory>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <comm/engine/random_counters.h>

namespace tessera::detail::inline tensor_layer {

/// While it lives on this thread, random operators on plain tensors draw from
/// `counters`.
class UnshardedRandom {
 public:
  explicit UnshardedRandom(std::shared_ptr<RandomCounters> counters);
  ~UnshardedRandom();
  UnshardedRandom(const UnshardedRandom&) = delete;
  UnshardedRandom& operator=(const UnshardedRandom&) = delete;
  /// Returns the innermost one's counters; nullptr where there is none.
  static RandomCounters* current();

 private:
  std::shared_ptr<const void> outer_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

}  // namespace tessera::detail::inline tensor_layer
