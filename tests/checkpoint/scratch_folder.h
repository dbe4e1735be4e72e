// A folder for a test's checkpoints, in memory where the machine has such, and
// removed with the object.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include <harness/ranks.h>

namespace tessera::testing {

class ScratchFolder {
 public:
  ScratchFolder() {
    const std::string memory = "/dev/shm";
    std::string name = (::access(memory.c_str(), W_OK) == 0
                            ? memory
                            : std::filesystem::temp_directory_path().string()) +
                       "/tessera_checkpoint_XXXXXX";
    path_ = ::mkdtemp(name.data());
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() { std::filesystem::remove_all(path_); }

  std::string operator/(const std::string& name) const {
    return path_ + "/" + name;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Returns the same folder on all processes of a job.
inline std::string shared_path(const ScratchFolder& folder) {
  return harness::on_processes() ? harness::gather_texts(folder.path())[0]
                                 : folder.path();
}

}  // namespace tessera::testing
