// Bytes go to a file in portions, so that progress is seen and no copy is
// large.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include <tessera/checkpoint/checkpoint.h>

namespace tessera::detail::inline checkpoint_layer {

inline constexpr int64_t kPortionBytes = int64_t{16} << 20;

/// Calls f(pointer, bytes) for portions of memory.
template <class F>
void for_each_portion(const void* memory, size_t bytes, const F& f) {
  const auto* begin = static_cast<const char*>(memory);
  for (size_t done = 0; done < bytes; done += kPortionBytes) {
    f(begin + done, std::min<size_t>(kPortionBytes, bytes - done));
  }
}

/// Counts bytes that are written, for SaveOptions::progress.
class ProgressReport {
 public:
  ProgressReport(
      std::function<void(const checkpoint::Progress&)> report, int64_t total)
      : report_(std::move(report)), progress_{0, total} {}
  void add(size_t bytes) {
    progress_.bytes += static_cast<int64_t>(bytes);
    if (report_) {
      report_(progress_);
    }
  }

 private:
  std::function<void(const checkpoint::Progress&)> report_;
  checkpoint::Progress progress_;
};

}  // namespace tessera::detail::inline checkpoint_layer
