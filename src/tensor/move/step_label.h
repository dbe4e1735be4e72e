// Names a plan's step, or an exchange between tilings, to the logs, see
// CallLabel.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include <c10/util/accumulate.h>
#include <comm/log/call_cause.h>
#include <tessera/layout/box_layout.h>
#include <tessera/plan/step.h>

namespace tessera::detail::inline tensor_layer {

/// While it lives, this thread's collectives are recorded as this step, which
/// makes a shard of shape `after` of one with `before` elements. The step must
/// outlive it.
class StepLabel {
 public:
  StepLabel(const Step& step, int64_t before, const std::vector<int64_t>& after)
      : label_(
            &step, fill_in, shards_of(before, c10::multiply_integers(after))) {}

 private:
  static CallLabel::Shards shards_of(int64_t before, int64_t after) {
    return {.larger = std::max(before, after), .after = after};
  }
  static void fill_in(const void* step, CommLogEntry& entry);
  CallLabel label_;
};

/// While it lives, this thread's collectives are recorded as the exchange
/// between two tilings, which must outlive it.
class BoxExchangeLabel {
 public:
  BoxExchangeLabel(const BoxLayout& source, const BoxLayout& target)
      : tilings_(&source, &target), label_(&tilings_, fill_in, std::nullopt) {}

 private:
  static void fill_in(const void* tilings, CommLogEntry& entry);
  std::pair<const BoxLayout*, const BoxLayout*> tilings_;
  CallLabel label_;
};

}  // namespace tessera::detail::inline tensor_layer
