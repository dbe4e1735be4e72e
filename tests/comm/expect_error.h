// What a call throws, as text.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include <c10/util/Exception.h>

namespace tessera {

/// Returns the message of what `body` throws, without a backtrace; "" if
/// nothing.
inline std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

/// Expects every part in the text.
inline void expect_parts(
    const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos)
        << "\"" << part << "\" is missing in: " << text;
  }
}

/// Expects that `body` throws E with all parts in its message.
template <typename E>
void expect_error(
    const std::function<void()>& body, const std::vector<std::string>& parts) {
  EXPECT_THROW(
      {
        try {
          body();
        } catch (const c10::Error& error) {
          expect_parts(error.what_without_backtrace(), parts);
          throw;
        }
      },
      E);
}

}  // namespace tessera
