// Writing a checkpoint of our own format.
#pragma once

#include <memory>

#include <io/files/folder.h>
#include <io/model/writer.h>

namespace tessera::detail::inline io_layer {

/// Begins the data file of a rank in the folder of a save.
std::unique_ptr<io::RankWriter> write_tessera(
    const Folder& folder, io::SaveTicket ticket, int64_t rank,
    io::RankContents contents);

/// Writes the manifest of what all ranks have written.
void write_tessera_manifest(const Folder& folder, io::Contents contents);

}  // namespace tessera::detail::inline io_layer
