// Opening a checkpoint of any format, which is recognised by its files:
//
//   manifest.jsonl                        our own
//   .metadata                             PyTorch's DCP
//   *.safetensors, with or without index  safetensors, in a folder or alone
#pragma once

#include <memory>
#include <string>

#include <io/files/file_system.h>
#include <io/model/reader.h>

namespace tessera::io {

/// Opens the checkpoint at a path. Throws Error: kSystem where it is not there,
/// kUsage where it is none or of two formats at once, kCorrupt where its index
/// is damaged.
std::unique_ptr<Reader> open_checkpoint(
    const std::string& path, FileSystem& files = system_files());

}  // namespace tessera::io
