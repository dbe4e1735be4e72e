#include "raw_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <io/checksum/xxh3.h>

namespace tessera::cli {
namespace {

constexpr size_t kWriteBytes = size_t{16} << 20;
constexpr size_t kReadBytes = size_t{1} << 20;

class OpenFile {
 public:
  OpenFile(const std::string& path, int flags)
      : path_(path), number_(open(path.c_str(), flags | O_CLOEXEC, 0600)) {
    check(number_, "open");
  }
  ~OpenFile() { close(number_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int number() const { return number_; }
  /// Returns a result of a call of the system; throws where it is an error.
  size_t check(ssize_t result, const char* what) const {
    if (result < 0) {
      throw std::system_error(
          errno, std::generic_category(), std::string(what) + " " + path_);
    }
    return static_cast<size_t>(result);
  }

 private:
  std::string path_;
  int number_;
};

}  // namespace

void write_raw(
    const std::string& path, const std::vector<at::Tensor>& tensors) {
  const OpenFile file(path, O_WRONLY | O_CREAT | O_EXCL);
  for (const at::Tensor& tensor : tensors) {
    const auto* bytes = static_cast<const char*>(tensor.const_data_ptr());
    for (size_t done = 0; done < tensor.nbytes();) {
      const size_t part = std::min(kWriteBytes, tensor.nbytes() - done);
      done += file.check(write(file.number(), bytes + done, part), "write");
    }
  }
  file.check(fsync(file.number()), "fsync");
}

uint64_t read_raw(
    const std::string& path, const std::vector<at::Tensor>& tensors) {
  const OpenFile file(path, O_RDONLY);
  detail::Xxh3 hash;
  for (const at::Tensor& tensor : tensors) {
    auto* bytes = static_cast<char*>(tensor.mutable_data_ptr());
    for (size_t done = 0; done < tensor.nbytes();) {
      const size_t part = std::min(kReadBytes, tensor.nbytes() - done);
      const size_t count =
          file.check(read(file.number(), bytes + done, part), "read");
      if (count == 0) {
        throw std::runtime_error(path + " ends early");
      }
      hash.update(bytes + done, count);
      done += count;
    }
  }
  return hash.value();
}

void sync_folder(const std::string& path) {
  const OpenFile folder(path, O_RDONLY | O_DIRECTORY);
  folder.check(fsync(folder.number()), "fsync");
}

void sync_file_system(const std::string& path) {
  const OpenFile folder(path, O_RDONLY | O_DIRECTORY);
  folder.check(syncfs(folder.number()), "syncfs");
}

void touch_file_memory(const std::string& folder, size_t bytes) {
  const std::string path = folder + "/touched";
  const OpenFile file(path, O_WRONLY | O_CREAT | O_EXCL);
  const std::vector<char> zeros(std::min(bytes, kReadBytes));
  for (size_t done = 0; done < bytes;) {
    const size_t part = std::min(zeros.size(), bytes - done);
    done += file.check(write(file.number(), zeros.data(), part), "write");
  }
  file.check(unlink(path.c_str()), "remove");
}

}  // namespace tessera::cli
