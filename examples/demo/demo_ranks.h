// The ranks of the demo: threads, or the processes of a job.
#pragma once

#include <functional>

#include "torch_part.h"

namespace tessera::cli {

/// Tells whether a launcher started this process with ranks, and how many.
LaunchedAs launched_as();

/// Runs `body` on every rank: on threads, or as this process of the job, where
/// it waits until all ranks are there, however long.
void on_ranks(const DemoOptions& options, const std::function<void()>& body);

}  // namespace tessera::cli
