// What is wrong with a call that one rank can see by itself.
#pragma once

#include "comm/call/call.h"

namespace tessera::detail::inline comm_layer {

/// Checks what one rank can see: counts, dtypes, devices, contiguous outputs,
/// memory shared by input and output, the reduce op. Makes the input contiguous
/// and marks the output as written. Errors start with the site.
void check_call(CollectiveCall& call, const CallSite& site);

}  // namespace tessera::detail::inline comm_layer
