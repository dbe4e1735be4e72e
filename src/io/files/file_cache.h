// The data files of a checkpoint, opened when first read. Of many files, those
// that were opened last stay open.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include <io/files/folder.h>

namespace tessera::detail::inline io_layer {

class FileCache {
 public:
  explicit FileCache(Folder folder) : folder_(std::move(folder)) {}

  const Folder& folder() const { return folder_; }
  /// Returns the open file of a name; any thread may ask.
  std::shared_ptr<const File> open(const std::string& name) const;

 private:
  static constexpr size_t kMostOpen = 64;

  Folder folder_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string, std::shared_ptr<const File>> open_;
  mutable std::deque<std::string> order_;
};

}  // namespace tessera::detail::inline io_layer
