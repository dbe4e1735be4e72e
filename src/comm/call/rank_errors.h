// What the exceptions of ranks say, whatever the engine.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "comm/call/call.h"

namespace tessera::detail::inline comm_layer {

/// Returns the text of an exception, without a backtrace.
std::string message_of(const std::exception_ptr& exception);
/// Throws an exception again, with the rank that it left: "rank 2 of 4".
[[noreturn]] void rethrow_with_rank(
    const std::exception_ptr& exception, const std::string& who);
/// Prints why a rank's call is refused while another thread of it waits in its
/// group; both orders of the two calls would be right.
std::string two_callers_text(const CollectiveCall& call, int64_t rank);

}  // namespace tessera::detail::inline comm_layer
