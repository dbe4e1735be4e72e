// A store in a folder: one file per key.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace tessera::detail::inline comm_layer {

/// LibTorch's FileStore appends each value to one file in several writes, and a
/// reader that meets half a value never returns. Here a value appears at once,
/// by renaming, so that a process may be killed at any moment.
class FolderStore final : public ::c10d::Store {
 public:
  /// Makes the folder where it is missing, for this user only.
  explicit FolderStore(std::string folder);

  c10::intrusive_ptr<::c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  /// Waits for the key until the timeout of the store.
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(
      const std::vector<std::string>& keys,
      const std::chrono::milliseconds& timeout) override;

 private:
  std::string path_of(const std::string& key) const;
  std::vector<uint8_t> read(const std::string& key) const;

  std::string folder_;
};

}  // namespace tessera::detail::inline comm_layer
