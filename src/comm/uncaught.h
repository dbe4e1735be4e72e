// What a program prints that lets an exception leave main().
#pragma once

#include <exception>
#include <string>

namespace tessera::detail::inline comm_layer {

/// Arranges that the program, when this very exception ends it, prints one
/// message with `who` and exits with 1. A program that catches it notices
/// nothing. TESSERA_BACKTRACE=1: with the backtrace.
void report_if_uncaught(
    const std::exception_ptr& exception, const std::string& who) noexcept;

}  // namespace tessera::detail::inline comm_layer
