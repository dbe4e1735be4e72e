// Errors that LibTorch has no type for.
#pragma once

#include <c10/util/Exception.h>
#include <tessera/export.h>

namespace tessera::sharded_tensor {

/// A key is not there, or may not be used.
class TESSERA_API KeyError : public c10::Error {
  using Error::Error;
};

/// A module has no member of that name.
class TESSERA_API AttributeError : public c10::Error {
  using Error::Error;
};

}  // namespace tessera::sharded_tensor
