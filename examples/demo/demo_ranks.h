// The ranks of the demo: threads, or the processes of a job.
#pragma once

#include <functional>

#include "demo.h"

namespace tessera::cli {

/// Where this process stands when it was started with ranks: as one of several
/// processes, or to make ranks as threads. Else rank 0 of 1.
struct LaunchedAs {
  int rank = 0;
  int ranks = 1;
  bool processes = false;
};

/// Tells whether a launcher started this process with ranks, and how many.
LaunchedAs launched_as();

/// Runs `body` on every rank: on threads, or as this process of the job, where
/// it waits until all ranks are there, however long.
void on_ranks(const DemoOptions& options, const std::function<void()>& body);

}  // namespace tessera::cli
