// Reading a checkpoint of our own format.
#pragma once

#include <memory>

#include <io/files/folder.h>
#include <io/model/reader.h>

namespace tessera::detail::inline io_layer {

/// Opens the checkpoint of a folder that holds a manifest. Throws where the
/// manifest is damaged, and where a file is missing or has another size.
std::unique_ptr<io::Reader> open_tessera(Folder folder);

}  // namespace tessera::detail::inline io_layer
