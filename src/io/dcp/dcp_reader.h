// Reading PyTorch's distributed checkpoints.
#pragma once

#include <memory>

#include <io/files/folder.h>
#include <io/model/reader.h>

namespace tessera::detail::inline io_layer {

/// Opens the checkpoint of a folder that holds `.metadata`.
std::unique_ptr<io::Reader> open_dcp(Folder folder);

}  // namespace tessera::detail::inline io_layer
