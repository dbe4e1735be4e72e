#include <io/files/file_cache.h>

namespace tessera::detail::inline io_layer {

std::shared_ptr<const File> FileCache::open(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  if (const auto found = open_.find(name); found != open_.end()) {
    return found->second;
  }
  auto file = std::make_shared<const File>(folder_.open_file(name));
  if (order_.size() == kMostOpen) {
    open_.erase(order_.front());
    order_.pop_front();
  }
  open_.emplace(name, file);
  order_.push_back(name);
  return file;
}

}  // namespace tessera::detail::inline io_layer
