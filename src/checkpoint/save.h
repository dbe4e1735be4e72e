// What saving and the other functions of checkpoint.h share.
#pragma once

#include <io/model/reader.h>
#include <tessera/checkpoint/checkpoint.h>

namespace tessera::detail::inline checkpoint_layer {

io::Format to_io(checkpoint::Format format);

}  // namespace tessera::detail::inline checkpoint_layer
