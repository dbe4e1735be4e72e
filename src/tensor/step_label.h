// Names a plan's step to the logs, see CallLabel.
#pragma once

#include <comm/call_cause.h>
#include <tessera/plan/step.h>

namespace tessera::detail {

/// While it lives, this thread's collectives are recorded as this step. The
/// step must outlive it.
class StepLabel {
 public:
  explicit StepLabel(const Step& step) : label_(&step, fill_in) {}

 private:
  static void fill_in(const void* step, CommLogEntry& entry);
  CallLabel label_;
};

}  // namespace tessera::detail
