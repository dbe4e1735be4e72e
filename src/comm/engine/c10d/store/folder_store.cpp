#include "comm/engine/c10d/store/folder_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include <c10/util/Exception.h>

#include "base/hash.h"

namespace tessera::detail::inline comm_layer {
namespace {

constexpr auto kFolderPollInterval = std::chrono::milliseconds(1);

// Holds other processes off while a number is read and written; the system ends
// it with the process.
class FolderLock {
 public:
  explicit FolderLock(const std::string& path)
      : fd_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    while (flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~FolderLock() { close(fd_); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

}  // namespace

FolderStore::FolderStore(std::string folder) : folder_(std::move(folder)) {
  const bool is_there = mkdir(folder_.c_str(), 0700) == 0 || errno == EEXIST;
  TORCH_CHECK_VALUE(
      is_there && std::filesystem::is_directory(folder_),
      "init: the ranks cannot meet in the folder TESSERA_STORE=", folder_, ": ",
      is_there ? "it is a file" : std::strerror(errno),
      "; name a new folder inside one that exists");
}

std::string FolderStore::path_of(const std::string& key) const {
  // Two hashes from two starts: keys are longer than names of files may be.
  char name[34] = {};
  std::snprintf(
      name, sizeof(name), "%016llx%016llx",
      static_cast<unsigned long long>(base::hash_bytes(key)),
      static_cast<unsigned long long>(
          base::hash_bytes(key, 0x9e3779b97f4a7c15ULL)));
  return folder_ + "/" + name;
}

c10::intrusive_ptr<::c10d::Store> FolderStore::clone() {
  return c10::make_intrusive<FolderStore>(folder_);
}

void FolderStore::set(
    const std::string& key, const std::vector<uint8_t>& value) {
  static std::atomic<uint64_t> writes = 0;
  const std::string path = path_of(key);
  const std::string draft =
      path + "." + std::to_string(getpid()) + "." + std::to_string(writes++);
  {
    std::ofstream file(draft, std::ios::binary);
    file.write(
        reinterpret_cast<const char*>(value.data()),
        static_cast<std::streamsize>(value.size()));
    TORCH_CHECK_WITH(
        DistStoreError, file.flush(), "cannot write into the folder ", folder_,
        ": ", std::strerror(errno));
  }
  std::filesystem::rename(draft, path);
}

std::vector<uint8_t> FolderStore::read(const std::string& key) const {
  std::ifstream file(path_of(key), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<uint8_t> FolderStore::get(const std::string& key) {
  wait({key});
  return read(key);
}

int64_t FolderStore::add(const std::string& key, int64_t value) {
  const FolderLock lock(folder_ + "/lock");
  const std::vector<uint8_t> bytes = read(key);
  const std::string before(bytes.begin(), bytes.end());
  const int64_t sum = (before.empty() ? 0 : std::stoll(before)) + value;
  const std::string after = std::to_string(sum);
  set(key, std::vector<uint8_t>(after.begin(), after.end()));
  return sum;
}

bool FolderStore::deleteKey(const std::string& key) {
  return unlink(path_of(key).c_str()) == 0;
}

bool FolderStore::check(const std::vector<std::string>& keys) {
  return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) {
    return access(path_of(key).c_str(), F_OK) == 0;
  });
}

int64_t FolderStore::getNumKeys() {
  int64_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    count += entry.path().filename().string().size() == 32 ? 1 : 0;
  }
  return count;
}

void FolderStore::wait(const std::vector<std::string>& keys) {
  wait(keys, timeout_);
}

void FolderStore::wait(
    const std::vector<std::string>& keys,
    const std::chrono::milliseconds& timeout) {
  const auto limit = std::chrono::steady_clock::now() + timeout;
  while (!check(keys)) {
    TORCH_CHECK_WITH(
        DistStoreError, std::chrono::steady_clock::now() < limit,
        "nobody set a key in the folder ", folder_, " within ", timeout.count(),
        " ms: ", keys);
    std::this_thread::sleep_for(kFolderPollInterval);
  }
}

}  // namespace tessera::detail::inline comm_layer
