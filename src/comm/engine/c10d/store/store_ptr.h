// A store of c10d, as all files here pass it around.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace tessera::detail::inline comm_layer {

using StorePtr = c10::intrusive_ptr<::c10d::Store>;

}  // namespace tessera::detail::inline comm_layer
