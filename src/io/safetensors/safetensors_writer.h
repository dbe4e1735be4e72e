// Writing safetensors: each rank its files, then names and index for all.
//
// Tensors that are in one piece give what Hugging Face has: model.safetensors,
// or model-00001-of-00002.safetensors and so on with an index. Where tensors
// are in parts, the files are what PyTorch's HuggingFaceStorageReader takes:
// shard-00001-model-00001-of-00001.safetensors, whose DCP_SHARDING_INFO says
// where the parts belong. A file has one part of a tensor at most, so a rank
// with two writes two files.
#pragma once

#include <memory>

#include <io/files/folder.h>
#include <io/model/writer.h>

namespace tessera::detail::inline io_layer {

std::unique_ptr<io::RankWriter> write_safetensors(
    const Folder& folder, io::SaveTicket ticket, int64_t rank,
    io::RankContents contents);

/// Gives the files of all ranks their names, and writes the index where there
/// is one. For a ticket of one file returns the name of that file.
std::string finish_safetensors(
    const Folder& folder, const io::SaveTicket& ticket,
    const io::Contents& contents);

}  // namespace tessera::detail::inline io_layer
