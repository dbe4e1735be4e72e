// The calls of the system that checkpoints are made of, one virtual function
// each, so that a test can count them, fail any of them as the kernel would
// (EIO, ENOSPC, EINTR, a short write), or end the process between two.
//
// They behave as the calls of their names: file descriptors, and a negative
// errno where the kernel returns -1. Folder and File (folder.h, file.h) are
// what the layer uses: there, interrupted and short calls are gone on with, and
// errors name the file.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::io {

struct FileStatus {
  enum class Kind { kFile, kFolder, kOther };
  Kind kind = Kind::kOther;
  uint64_t size = 0;
};

class FileSystem {
 public:
  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
  virtual ~FileSystem() = default;

  /// openat(); `folder` is a descriptor or AT_FDCWD.
  virtual int open_at(int folder, const char* name, int flags, mode_t mode) = 0;
  virtual int close(int file) = 0;
  virtual int64_t read_at(
      int file, void* bytes, size_t size, uint64_t offset) = 0;
  virtual int64_t write_at(
      int file, const void* bytes, size_t size, uint64_t offset) = 0;
  virtual int sync(int file) = 0;
  virtual int status(int file, FileStatus* status) = 0;
  virtual int make_folder_at(int folder, const char* name, mode_t mode) = 0;
  /// renameat2(), with its flags.
  virtual int rename_at(
      int from_folder, const char* from, int to_folder, const char* to,
      unsigned flags) = 0;
  /// unlinkat(), with its flags.
  virtual int remove_at(int folder, const char* name, int flags) = 0;
  /// Names in a folder but "." and "..".
  virtual int list(int folder, std::vector<std::string>* names) = 0;
  /// Takes the lock that a folder has, which ends with the descriptor;
  /// -EWOULDBLOCK where somebody else holds it.
  virtual int lock(int file) = 0;
  /// Gives the lock back, also where a forked child has the descriptor too.
  virtual int unlock(int file) = 0;
};

/// Returns the kernel's, or what stands in its place.
FileSystem& system_files();

/// Puts another file system in the kernel's place while it lives, for all
/// threads and everything above that names none: so tests reach the files of
/// checkpoint::save() and load().
class SystemFilesReplaced {
 public:
  explicit SystemFilesReplaced(FileSystem& files);
  ~SystemFilesReplaced();
  SystemFilesReplaced(const SystemFilesReplaced&) = delete;
  SystemFilesReplaced& operator=(const SystemFilesReplaced&) = delete;

 private:
  FileSystem* before_;
};

}  // namespace tessera::io
