// Reading safetensors: one file, several with an index, or all of a folder.
#pragma once

#include <memory>
#include <string>

#include <io/files/folder.h>
#include <io/model/reader.h>

namespace tessera::detail::inline io_layer {

/// Opens a single file of a folder.
std::unique_ptr<io::Reader> open_safetensors_file(
    Folder folder, const std::string& name);
/// Opens the files that the folder's index names, or all *.safetensors of it
/// where it has none.
std::unique_ptr<io::Reader> open_safetensors_folder(Folder folder);

}  // namespace tessera::detail::inline io_layer
