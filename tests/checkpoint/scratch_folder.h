// A folder for a test's checkpoints, in memory where the machine has such, and
// removed with the object.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <string>

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

}  // namespace tessera::testing
