// Writing checkpoints that PyTorch loads.
#pragma once

#include <memory>

#include <io/files/folder.h>
#include <io/model/writer.h>

namespace tessera::detail::inline io_layer {

/// Begins `__R_0.distcp` of a rank in the folder of a save.
std::unique_ptr<io::RankWriter> write_dcp(
    const Folder& folder, io::SaveTicket ticket, int64_t rank,
    io::RankContents contents);

/// Writes `.metadata` of what all ranks have written.
void write_dcp_metadata(const Folder& folder, io::Contents contents);

}  // namespace tessera::detail::inline io_layer
