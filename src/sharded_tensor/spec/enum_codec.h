// The values that a property can have, with their codes in bytes and their
// names in text.
#pragma once

#include <cstdint>
#include <string>

#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

namespace tessera::sharded_tensor::format {

/// Codes 0 .. count - 1; name() returns the word of one, or nothing where the
/// code has no meaning.
struct EnumCodec {
  uint8_t count;
  std::string (*name)(uint8_t code);
};

/// false, true.
extern const EnumCodec kFlags;
/// Every dtype, by LibTorch's number: f32, i64, ...
extern const EnumCodec kDtypes;
/// Every layout, by LibTorch's number: strided, sparse, ...
extern const EnumCodec kLayouts;
/// The memory formats of MemFormatEncoding.
extern const EnumCodec kMemoryFormats;

}  // namespace tessera::sharded_tensor::format
