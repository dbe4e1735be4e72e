// Asynchronous calls go on while the program computes.
//
// A call between processes goes through stages (agreement, then data), and the
// step from one to the next needs this process to look. Operators on sharded
// tensors look on their way in, as does every wait. Between ranks that are
// threads nothing moves before somebody waits, by design.
#pragma once

#include <tessera/export.h>

namespace tessera {

/// Moves the asynchronous calls of this process on as far as they go without
/// waiting; returns at once where none is under way. For stretches without
/// operators on sharded tensors: kernels of one's own, loops on plain tensors.
/// Errors are thrown by wait(), not here.
/// Example: auto work = group.all_gather_async(whole, mine);
///          for (auto& part : parts) { compute(part); progress(); }
///          work.wait();
TESSERA_API void progress();

}  // namespace tessera
