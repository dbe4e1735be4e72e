// What a process holds in memory, as the system counts it.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace tessera::cli {

/// Returns a figure of /proc/self/status, in bytes; 0 where there is none.
inline int64_t status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == name + ":") {
      int64_t kibibytes = 0;
      status >> kibibytes;
      return kibibytes << 10;
    }
  }
  return 0;
}

/// The most bytes that this process holds beyond those of now.
class ResidentBytes {
 public:
  ResidentBytes() : before_(status_bytes("VmRSS")) {
    std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins anew
  }
  int64_t peak() const { return status_bytes("VmHWM") - before_; }

 private:
  int64_t before_;
};

}  // namespace tessera::cli
