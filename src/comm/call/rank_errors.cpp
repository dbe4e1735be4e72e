#include "comm/call/rank_errors.h"

#include <c10/util/Exception.h>

namespace tessera::detail::inline comm_layer {

std::string message_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

std::string two_callers_text(const CollectiveCall& call, int64_t rank) {
  return c10::str(
      "two threads of rank ", rank, " call at once: ", describe(call),
      " while another thread waits in this group, so that their order would be "
      "left to chance; call from one thread at a time, or from each in a group "
      "of its own");
}

void rethrow_with_rank(
    const std::exception_ptr& exception, const std::string& who) {
  try {
    std::rethrow_exception(exception);
  } catch (c10::Error& error) {
    error.add_context(who);
    throw;
  } catch (...) {
    std::throw_with_nested(c10::Error(
        {__func__, __FILE__, __LINE__},
        who + " failed: " + message_of(std::current_exception())));
  }
}

}  // namespace tessera::detail::inline comm_layer
