// The checkpoint between the demo's two meshes.
#pragma once

#include <cstdint>
#include <string>

#include "demo.h"

namespace tessera::cli {

/// Has the path that --checkpoint names, or one in a new folder, which is
/// removed with the object. Every process of a job makes one.
class DemoCheckpoint {
 public:
  explicit DemoCheckpoint(const DemoOptions& options);
  DemoCheckpoint(const DemoCheckpoint&) = delete;
  DemoCheckpoint& operator=(const DemoCheckpoint&) = delete;
  ~DemoCheckpoint();

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::string folder_;  // on the rank that removes it
};

/// Returns the bytes of the tensors of a checkpoint.
int64_t checkpoint_bytes(const std::string& path);

}  // namespace tessera::cli
