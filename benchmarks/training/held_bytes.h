// What a body holds of the CPU's memory, to the byte.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>

#include <c10/core/CPUAllocator.h>

namespace tessera::cli {

/// Counts the tensors of one thread that are made while it is the allocator.
class HeldBytes final : public c10::Allocator {
 public:
  /// Returns the most bytes that a body holds at a time of what it makes.
  template <class F>
  static int64_t peak_of(const F& body) {
    HeldBytes& counting = instance();
    counting.peak_ = counting.now_ = 0;
    c10::SetCPUAllocator(&counting, kPriority);
    body();
    c10::SetCPUAllocator(counting.inner_, kPriority);
    return counting.peak_;
  }

  c10::DataPtr allocate(size_t bytes) override {
    void* memory = inner_->raw_allocate(bytes);
    sizes_[memory] = bytes;
    now_ += static_cast<int64_t>(bytes);
    peak_ = std::max(peak_, now_);
    return {memory, memory, &release, c10::DeviceType::CPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }

 private:
  static constexpr uint8_t kPriority = 100;
  static HeldBytes& instance() {
    static auto* counting = new HeldBytes();  // outlives its memory
    return *counting;
  }
  static void release(void* memory) {
    HeldBytes& counting = instance();
    if (const auto found = counting.sizes_.find(memory);
        found != counting.sizes_.end()) {
      counting.now_ -= static_cast<int64_t>(found->second);
      counting.sizes_.erase(found);
    }
    counting.inner_->raw_deallocate(memory);
  }

  c10::Allocator* inner_ = c10::GetCPUAllocator();
  std::unordered_map<void*, size_t> sizes_;
  int64_t now_ = 0;
  int64_t peak_ = 0;
};

}  // namespace tessera::cli
