// Values as JSON. What JSON has no kind for is an object of one member:
//
//   None True 3 2.0 "x" [1]    null true 3 2.0 "x" [1]
//   (1, 2)                     {"tuple":[1,2]}
//   {"a": 1, 2: 3}             {"dict":[["a",1],[2,3]]}
//   b"\x00\xff"                {"bytes":"00ff"}
//   inf, -inf, nan             {"float":"7ff0000000000000"}, its bits
#pragma once

#include <base/json.h>
#include <io/model/value.h>

namespace tessera::detail::inline io_layer {

/// Writes a value; throws io::Error (kUsage) for one that is nested too deep or
/// holds what is not UTF-8, kUnsupported for an opaque one.
void write_value(base::JsonWriter& out, const io::Value& value);
/// Reads what write_value() writes; throws base::JsonError for anything else.
io::Value read_value(base::JsonReader& in);

}  // namespace tessera::detail::inline io_layer
