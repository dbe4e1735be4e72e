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

struct OpenOptions {
  FileSystem* files = &system_files();
  /// Takes files inside the checkpoint that are symbolic links, as all are in
  /// the cache of Hugging Face. A stranger's could lead anywhere.
  bool follow_links = false;
};

/// Opens the checkpoint at a path, which may be a link. Throws Error: kSystem
/// where it is not there, kUsage where it is none or of two formats at once,
/// kCorrupt where its index is damaged.
std::unique_ptr<Reader> open_checkpoint(
    const std::string& path, const OpenOptions& options = {});

}  // namespace tessera::io
