// Expecting errors of types that the tests of layout have no use for.
#pragma once

#include <typeinfo>

#include "layout/expect_error.h"

#define EXPECT_NOT_IMPLEMENTED(statement, part) \
  TESSERA_EXPECT_ERROR(statement, c10::NotImplementedError, part)

namespace tessera::sharded_tensor {

/// Calls a function and passes on an error of exactly the type c10::Error.
template <class Call>
void with_plain_error(const Call& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    EXPECT_TRUE(typeid(error) == typeid(c10::Error)) << error.what();
    throw;
  }
}

}  // namespace tessera::sharded_tensor

/// An error without a finer type: Python's RuntimeError.
#define EXPECT_PLAIN_ERROR(statement, part)                                    \
  TESSERA_EXPECT_ERROR(                                                        \
      ::tessera::sharded_tensor::with_plain_error([&] { (void)(statement); }), \
      c10::Error, part)
