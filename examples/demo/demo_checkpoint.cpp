#include "demo_checkpoint.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include <tessera/checkpoint/checkpoint.h>
#include <tessera/comm/world.h>

#include "demo_ranks.h"

namespace tessera::cli {
namespace {

std::string make_folder() {
  std::string path =
      std::filesystem::temp_directory_path() / "tessera_demo_XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    throw std::runtime_error(
        "cannot make the folder " + path + ": " + std::strerror(errno));
  }
  return path;
}

}  // namespace

DemoCheckpoint::DemoCheckpoint(const DemoOptions& options)
    : path_(options.checkpoint) {
  if (!options.restart || !path_.empty()) {
    return;
  }
  if (!options.processes || rank() == 0) {
    folder_ = make_folder();
  }
  path_ = agreed_text(options, folder_) + "/half_way";
}

DemoCheckpoint::~DemoCheckpoint() {
  if (!folder_.empty()) {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }
}

int64_t checkpoint_bytes(const std::string& path) {
  int64_t bytes = 0;
  for (const checkpoint::Entry& entry : checkpoint::list(path)) {
    bytes += entry.bytes;
  }
  return bytes;
}

}  // namespace tessera::cli
