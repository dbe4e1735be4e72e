#include <tensor/move/cpu_block_cache.h>

#include <algorithm>
#include <cstdlib>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/accumulate.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// Below this size malloc itself keeps memory.
constexpr size_t kSmallest = size_t{1} << 20;
// Sizes are rounded up to this, so that shards that differ by a row fit.
constexpr size_t kGrain = size_t{1} << 16;

size_t limit_from_environment() {
#if defined(__SANITIZE_ADDRESS__)
  return 0;  // a block kept is a use after free not seen
#else
  const char* text = std::getenv("TESSERA_BLOCK_CACHE_MIB");
  return (text == nullptr ? 256 : std::strtoull(text, nullptr, 10)) << 20;
#endif
}

class CpuBlockCache final : public c10::Allocator {
 public:
  static CpuBlockCache& instance() {
    static auto* blocks = new CpuBlockCache();  // outlives every tensor
    return *blocks;
  }

  c10::DataPtr allocate(size_t bytes) override {
    const size_t size = (bytes + kGrain - 1) / kGrain * kGrain;
    void* data = take(size);
    if (data == nullptr) {
      data = c10::alloc_cpu(size);
    }
    return {
        data, new Block{data, size}, &CpuBlockCache::give_back,
        c10::Device(c10::DeviceType::CPU)};
  }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  struct Block {
    void* data;
    size_t size;
  };

  void* take(size_t size) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = std::find_if(
        free_.rbegin(), free_.rend(),
        [size](const Block& block) { return block.size == size; });
    if (found == free_.rend()) {
      return nullptr;
    }
    void* data = found->data;
    free_.erase(std::next(found).base());
    kept_ -= size;
    return data;
  }

  // Keeps a block; the oldest ones make room, so that sizes that do not come
  // back do not stay. Returns what is to be freed.
  std::vector<Block> keep(const Block& block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (block.size > limit_) {
      return {block};
    }
    std::vector<Block> dropped;
    while (kept_ > limit_ - block.size) {
      dropped.push_back(free_.front());
      kept_ -= free_.front().size;
      free_.pop_front();
    }
    free_.push_back(block);
    kept_ += block.size;
    return dropped;
  }

  static void give_back(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    for (const Block& dropped : instance().keep(*block)) {
      c10::free_cpu(dropped.data);
    }
  }

  std::mutex mutex_;
  std::list<Block> free_;  // at most a few hundred, oldest first
  size_t kept_ = 0;
  const size_t limit_ = limit_from_environment();
};

}  // namespace

at::Tensor empty_cached(
    at::IntArrayRef sizes, const at::TensorOptions& options) {
  const size_t bytes = static_cast<size_t>(c10::multiply_integers(sizes)) *
                       options.dtype().itemsize();
  if (!options.device().is_cpu() || bytes < kSmallest) {
    return at::empty(sizes, options);
  }
  return at::detail::empty_generic(
      sizes, &CpuBlockCache::instance(),
      c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::typeMetaToScalarType(options.dtype()), std::nullopt);
}

}  // namespace tessera::detail::inline tensor_layer
