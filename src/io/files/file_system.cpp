#include <io/files/file_system.h>

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace tessera::io {

namespace {

template <typename T>
T or_error(T result) {
  return result < 0 ? static_cast<T>(-errno) : result;
}

FileStatus::Kind kind_of(mode_t mode) {
  return S_ISREG(mode)   ? FileStatus::Kind::kFile
         : S_ISDIR(mode) ? FileStatus::Kind::kFolder
                         : FileStatus::Kind::kOther;
}

class SystemFiles : public FileSystem {
 public:
  int open_at(int folder, const char* name, int flags, mode_t mode) override {
    return or_error(::openat(folder, name, flags | O_CLOEXEC, mode));
  }
  int close(int file) override { return or_error(::close(file)); }
  int64_t read_at(
      int file, void* bytes, size_t size, uint64_t offset) override {
    return or_error<int64_t>(
        ::pread(file, bytes, size, static_cast<off_t>(offset)));
  }
  int64_t write_at(
      int file, const void* bytes, size_t size, uint64_t offset) override {
    return or_error<int64_t>(
        ::pwrite(file, bytes, size, static_cast<off_t>(offset)));
  }
  int sync(int file) override { return or_error(::fsync(file)); }
  int status(int file, FileStatus* status) override {
    struct stat found = {};
    const int result = or_error(::fstat(file, &found));
    if (result == 0) {
      *status = {kind_of(found.st_mode), static_cast<uint64_t>(found.st_size)};
    }
    return result;
  }
  int make_folder_at(int folder, const char* name, mode_t mode) override {
    return or_error(::mkdirat(folder, name, mode));
  }
  int rename_at(
      int from_folder, const char* from, int to_folder, const char* to,
      unsigned flags) override {
    return static_cast<int>(or_error(
        ::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags)));
  }
  int remove_at(int folder, const char* name, int flags) override {
    return or_error(::unlinkat(folder, name, flags));
  }
  int list(int folder, std::vector<std::string>* names) override;
  int lock(int file) override {
    return or_error(::flock(file, LOCK_EX | LOCK_NB));
  }
  int unlock(int file) override { return or_error(::flock(file, LOCK_UN)); }
};

int SystemFiles::list(int folder, std::vector<std::string>* names) {
  // A descriptor of its own: closedir() closes it, and its position is ours.
  const int own = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* entries = own < 0 ? nullptr : ::fdopendir(own);
  if (entries == nullptr) {
    const int error = errno;
    if (own >= 0) {
      ::close(own);
    }
    return -error;
  }
  errno = 0;
  while (const dirent* entry = ::readdir(entries)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") {
      names->push_back(name);
    }
  }
  const int error = errno;
  ::closedir(entries);
  return -error;
}

std::atomic<FileSystem*> g_replaced = nullptr;

}  // namespace

FileSystem& system_files() {
  static SystemFiles files;
  FileSystem* replaced = g_replaced.load(std::memory_order_acquire);
  return replaced != nullptr ? *replaced : files;
}

SystemFilesReplaced::SystemFilesReplaced(FileSystem& files)
    : before_(g_replaced.exchange(&files, std::memory_order_acq_rel)) {}

SystemFilesReplaced::~SystemFilesReplaced() {
  g_replaced.store(before_, std::memory_order_release);
}

}  // namespace tessera::io
