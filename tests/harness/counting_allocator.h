// The memory that ranks hold on the CPU.
#pragma once

#include <c10/core/CPUAllocator.h>
#include <tessera/comm/world.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>

namespace tessera::testing {

/// Counts what the threads of ranks hold: bytes now, at most, and in one piece.
class CountingAllocator final : public c10::Allocator {
 public:
  struct Count {
    std::atomic<int64_t> live = 0;
    std::atomic<int64_t> peak = 0;
    std::atomic<int64_t> largest = 0;
  };
  static Count& of_rank() {
    static std::array<Count, 8> counts;
    return counts[static_cast<size_t>(rank())];
  }

  c10::DataPtr allocate(size_t bytes) override {
    Count& mine = of_rank();
    const auto size = static_cast<int64_t>(bytes);
    mine.live += size;
    mine.peak = std::max(mine.peak.load(), mine.live.load());
    mine.largest = std::max(mine.largest.load(), size);
    auto* held = new Held{inner_->allocate(bytes), &mine, size};
    return {held->memory.get(), held, &release, c10::DeviceType::CPU};
  }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }

 private:
  struct Held {
    c10::DataPtr memory;
    Count* count;
    int64_t bytes;
  };
  static void release(void* context) {
    const std::unique_ptr<Held> held(static_cast<Held*>(context));
    held->count->live -= held->bytes;
  }
  c10::Allocator* inner_ = c10::GetCPUAllocator();
};

/// Counts while it lives.
class WithCounts {
 public:
  WithCounts() : before_(c10::GetCPUAllocator()) {
    static auto* counting = new CountingAllocator();  // outlives its memory
    c10::SetCPUAllocator(counting, /*priority=*/100);
  }
  ~WithCounts() { c10::SetCPUAllocator(before_, /*priority=*/100); }
  WithCounts(const WithCounts&) = delete;
  WithCounts& operator=(const WithCounts&) = delete;

 private:
  c10::Allocator* before_;
};

}  // namespace tessera::testing
