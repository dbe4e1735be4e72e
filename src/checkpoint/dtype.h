// LibTorch's dtypes and those of files.
#pragma once

#include <string>

#include <c10/core/ScalarType.h>
#include <io/model/dtype.h>

namespace tessera::detail::inline checkpoint_layer {

/// Throws where no format has the dtype (quantized ones); `what` is what the
/// error begins with.
io::Dtype to_io(const std::string& what, c10::ScalarType dtype);
c10::ScalarType from_io(io::Dtype dtype);

}  // namespace tessera::detail::inline checkpoint_layer
