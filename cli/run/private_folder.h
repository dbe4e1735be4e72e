// A folder that only this user can enter, for what the processes of a job
// share.
#pragma once

#include <string>

namespace tessera::cli {

class PrivateFolder {
 public:
  /// Makes a new one in TMPDIR, else in /tmp.
  PrivateFolder();
  /// Removes it with the files in it.
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace tessera::cli
