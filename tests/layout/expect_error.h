// Expecting an error of one type with a part of its text.
#pragma once

#include <string>

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#define TESSERA_EXPECT_ERROR(statement, type, part)             \
  try {                                                         \
    static_cast<void>(statement);                               \
    ADD_FAILURE() << "no error from " #statement;               \
  } catch (const type& error) {                                 \
    const std::string what = error.what_without_backtrace();    \
    EXPECT_NE(what.find(part), std::string::npos)               \
        << "wanted: " << (part) << "\ngot: " << what;           \
  } catch (const std::exception& error) {                       \
    ADD_FAILURE() << "another type of error: " << error.what(); \
  }                                                             \
  static_assert(true, "wants a semicolon")

#define EXPECT_VALUE_ERROR(statement, part) \
  TESSERA_EXPECT_ERROR(statement, c10::ValueError, part)
#define EXPECT_INDEX_ERROR(statement, part) \
  TESSERA_EXPECT_ERROR(statement, c10::IndexError, part)
