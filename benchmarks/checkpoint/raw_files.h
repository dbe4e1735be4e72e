// What a disk and a checksum take without a checkpoint: the bytes of tensors in
// one file.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::cli {

/// Writes the bytes of contiguous tensors, one after the other, to a new file,
/// straight from their memory; returns when they are on the disk. Throws
/// std::system_error.
void write_raw(const std::string& path, const std::vector<at::Tensor>& tensors);

/// Reads such a file straight into the tensors, and returns the XXH3 of its
/// bytes: each MiB goes into the checksum when it has been read.
uint64_t read_raw(
    const std::string& path, const std::vector<at::Tensor>& tensors);

/// Returns when the names in a folder are on the disk.
void sync_folder(const std::string& path);

/// Returns when everything that any program has written to the file system of a
/// folder is on the disk.
void sync_file_system(const std::string& path);

/// Writes a file of so many bytes into a folder and removes it at once: the
/// memory that the next files take has just been in use. A host may have taken
/// free memory of a virtual machine back, and then the first use of a page
/// costs more than writing it to a disk.
void touch_file_memory(const std::string& folder, size_t bytes);

}  // namespace tessera::cli
