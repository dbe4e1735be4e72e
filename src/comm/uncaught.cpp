#include "comm/uncaught.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include <c10/util/Exception.h>

#include "comm/call/rank_errors.h"
#include "comm/engine/launch.h"

namespace tessera::detail::inline comm_layer {
namespace {

// The exception that left run() last, and the handler that was there before.
struct Uncaught {
  std::mutex mutex;
  std::exception_ptr exception;
  std::string text;
  std::terminate_handler before = nullptr;
};

Uncaught& uncaught() {
  static auto* const one = new Uncaught;  // outlives static destructors
  return *one;
}

std::string text_of(const std::exception_ptr& exception) {
  if (environment("TESSERA_BACKTRACE") == "1") {
    try {
      std::rethrow_exception(exception);
    } catch (const std::exception& error) {
      return error.what();
    } catch (...) {
      return message_of(exception);
    }
  }
  return message_of(exception);
}

[[noreturn]] void end_program() {
  Uncaught& known = uncaught();
  std::terminate_handler before = nullptr;
  {
    const std::lock_guard lock(known.mutex);
    if (std::current_exception() == known.exception) {
      std::fflush(stdout);
      std::fprintf(stderr, "tessera: %s\n", known.text.c_str());
      std::fflush(stderr);
      std::_Exit(1);
    }
    before = known.before;
  }
  if (before != nullptr) {
    before();
  }
  std::abort();
}

}  // namespace

void report_if_uncaught(
    const std::exception_ptr& exception, const std::string& who) noexcept {
  try {
    std::string text = text_of(exception);
    if (!who.empty()) {
      text += " (" + who + ")";
    }
    Uncaught& known = uncaught();
    const std::lock_guard lock(known.mutex);
    known.exception = exception;
    known.text = std::move(text);
    if (std::get_terminate() != end_program) {
      known.before = std::set_terminate(end_program);
    }
  } catch (...) {
    static_cast<void>(0);  // it ends as it would have
  }
}

}  // namespace tessera::detail::inline comm_layer
