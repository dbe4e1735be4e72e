#include <tensor/fast/decision_cache.h>

namespace tessera::detail {

namespace {

// Few words: a call of memcmp() would cost more.
bool are_equal(c10::ArrayRef<uint64_t> a, c10::ArrayRef<uint64_t> b) {
  if (a.size() != b.size()) {
    return false;
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) {
      return false;
    }
  }
  return true;
}

}  // namespace

const DecisionPtr* DispatchCache::find(const CallKey& key) const {
  const uint64_t hash = key.hash();
  const Place* place = places_[hash % kPlaces].get();
  if (place == nullptr) {
    return nullptr;
  }
  for (size_t i = 0; i < kWays; ++i) {
    if (place->hashes[i] == hash && place->entries[i].decision &&
        are_equal(place->entries[i].words, key.words())) {
      return &place->entries[i].decision;
    }
  }
  return nullptr;
}

const DecisionPtr& DispatchCache::insert(
    const CallKey& key, DecisionPtr decision, std::vector<SpecPtr> specs) {
  auto& place = places_[key.hash() % kPlaces];
  if (!place) {
    place = std::make_unique<Place>();
  }
  Entry& entry = place->entries[place->oldest];
  place->hashes[place->oldest] = key.hash();
  place->oldest = static_cast<uint8_t>((place->oldest + 1) % kWays);
  size_ += entry.decision ? 0 : 1;
  push_out(entry);
  entry.words.assign(key.words().begin(), key.words().end());
  entry.decision = std::move(decision);
  entry.specs = std::move(specs);
  return entry.decision;
}

void DispatchCache::push_out(Entry& entry) {
  if (holds_ > 0 && entry.decision) {
    pushed_out_.push_back(std::move(entry.decision));
  }
}

void DispatchCache::clear() {
  for (const auto& place : places_) {
    if (place) {
      for (Entry& entry : place->entries) {
        push_out(entry);
      }
    }
  }
  places_.clear();
  places_.resize(kPlaces);
  size_ = 0;
}

}  // namespace tessera::detail
