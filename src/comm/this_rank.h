// The rank whose code runs on this thread.
#pragma once

#include <memory>

#include "comm/engine/engine.h"

namespace tessera::detail::inline comm_layer {

/// Returns the rank that this thread is, or belongs to; see init(). `call` is
/// what errors begin with.
std::shared_ptr<WorldImpl> this_rank(const char* call = "init");

/// Says that this rank has taken the shards of others to be as large as its
/// own, without asking them: from now on errors of ranks that disagree on how
/// much an operator communicates say so.
void note_equal_shards();

}  // namespace tessera::detail::inline comm_layer
