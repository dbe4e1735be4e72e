// The demo's two trainings.
#pragma once

#include "demo.h"

namespace tessera::cli {

/// Trains plainly, then on the ranks of a mesh. On rank 0 of a job of processes
/// returns the result, on the others an empty one.
DemoResult train_demo(const DemoOptions& options, const DemoProgress& progress);

}  // namespace tessera::cli
