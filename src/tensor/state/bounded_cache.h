// A map of bounded size for what is made once and looked up often.
#pragma once

#include <cstddef>
#include <unordered_map>
#include <utility>

namespace tessera::detail::inline tensor_layer {

/// Keeps at most `capacity` entries. Those that were found since the last
/// change of generations are young; a new entry pushes out one of the others,
/// and when all are young they become the old ones. So an insertion drops one
/// entry and never many, and entries in use stay.
///
/// Example, capacity 2: a, b inserted, a found, c inserted: b is dropped.
template <class Key, class Value, class Hash>
class BoundedCache {
 public:
  explicit BoundedCache(size_t capacity) : capacity_(capacity) {}

  /// Returns nullptr where there is none; valid until the next insert().
  Value* find(const Key& key) {
    if (const auto found = young_.find(key); found != young_.end()) {
      return &found->second;
    }
    auto node = old_.extract(key);
    return node.empty() ? nullptr
                        : &young_.insert(std::move(node)).position->second;
  }

  /// Precondition: find(key) returns nullptr.
  Value& insert(Key key, Value value) {
    if (young_.size() == capacity_) {
      old_.swap(young_);
    }
    if (size() == capacity_) {
      old_.erase(old_.begin());
    }
    return young_.emplace(std::move(key), std::move(value)).first->second;
  }

  size_t size() const { return young_.size() + old_.size(); }
  void clear() {
    young_.clear();
    old_.clear();
  }

 private:
  using Map = std::unordered_map<Key, Value, Hash>;
  size_t capacity_;
  Map young_;
  Map old_;
};

}  // namespace tessera::detail::inline tensor_layer
