// The ranks of the demo: threads, or the processes of a job.
#pragma once

#include <functional>
#include <string>

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

/// Waits until all processes of the job are there, however long.
void wait_for_all_ranks(const DemoOptions& options);

/// Runs `body` on every rank: on `ranks` threads, or as this process of the
/// job, when all are there.
void on_ranks(
    const DemoOptions& options, int64_t ranks,
    const std::function<void()>& body);

/// Returns the text of the first process on all processes of the job.
std::string agreed_text(const DemoOptions& options, const std::string& text);

}  // namespace tessera::cli
