#include <parallel/fully_shard/use_order.h>

#include <algorithm>
#include <utility>

namespace tessera::detail::inline parallel_layer {

namespace {

// Programs that only evaluate have no end of a step.
constexpr size_t kMostUses = 4096;

}  // namespace

void UseOrder::note(size_t group) {
  if (current_.size() == kMostUses) {
    end_step();
  }
  current_.push_back(group);
  const auto begin = last_.begin();
  const auto from = begin + static_cast<std::ptrdiff_t>(place_);
  auto found = std::find(from, last_.end(), group);
  if (found == last_.end()) {
    found = std::find(begin, from, group);
    if (found == from) {
      return;
    }
  }
  place_ = static_cast<size_t>(found - begin) + 1;
}

std::vector<size_t> UseOrder::next(size_t count) const {
  const size_t end = std::min(last_.size(), place_ + count);
  return {
      last_.begin() + static_cast<std::ptrdiff_t>(place_),
      last_.begin() + static_cast<std::ptrdiff_t>(end)};
}

void UseOrder::end_step() {
  if (!current_.empty()) {
    last_ = std::exchange(current_, {});
  }
  place_ = 0;
}

}  // namespace tessera::detail::inline parallel_layer
