#include <tensor/fast/decision_cache.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// Keys are short: a call of memcmp() would cost more than the loop.
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
  const Bucket* bucket = buckets_[hash % kBuckets].get();
  if (bucket == nullptr) {
    return nullptr;
  }
  for (size_t i = 0; i < kWays; ++i) {
    if (bucket->hashes[i] == hash && bucket->entries[i].decision &&
        are_equal(bucket->entries[i].key_data, key.key_data())) {
      return &bucket->entries[i].decision;
    }
  }
  return nullptr;
}

const DecisionPtr& DispatchCache::insert(
    const CallKey& key, DecisionPtr decision, std::vector<SpecPtr> specs) {
  auto& bucket = buckets_[key.hash() % kBuckets];
  if (!bucket) {
    bucket = std::make_unique<Bucket>();
  }
  Entry& entry = bucket->entries[bucket->oldest];
  bucket->hashes[bucket->oldest] = key.hash();
  bucket->oldest = static_cast<uint8_t>((bucket->oldest + 1) % kWays);
  size_ += entry.decision ? 0 : 1;
  push_out(entry);
  entry.key_data.assign(key.key_data().begin(), key.key_data().end());
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
  for (const auto& bucket : buckets_) {
    if (bucket) {
      for (Entry& entry : bucket->entries) {
        push_out(entry);
      }
    }
  }
  buckets_.clear();
  buckets_.resize(kBuckets);
  size_ = 0;
}

}  // namespace tessera::detail::inline tensor_layer
