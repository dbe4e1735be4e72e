#include "comm/engine/random_counters.h"

#include <utility>

#include "base/hash.h"

namespace tessera::detail::inline comm_layer {

namespace {

// Streams that no name can have: they are even, and those of names are odd.
constexpr uint64_t kScopeStream = 2;
constexpr uint64_t kGeneratorStream = 4;

// Spreads neighbouring numbers over all 64 bits, one to one (splitmix64).
uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t stream_number(const std::string& name) {
  return base::hash_bytes(name) | 1;
}

void RandomCounters::set_seed(uint64_t seed) {
  set_state({.seed = seed, .operations = 0, .streams = {}});
}

RandomOffset RandomCounters::next() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++all_.draws;
  if (all_.scopes.empty()) {
    return {
        .seed = all_.state.seed,
        .stream = 0,
        .operation = all_.state.operations++};
  }
  Scope& scope = all_.scopes.back();
  if (scope.stream.empty()) {
    const RandomOffset offset = scope.next;
    ++scope.next.operation;
    return offset;
  }
  return {
      .seed = all_.state.seed,
      .stream = stream_number(scope.stream),
      .operation = all_.state.streams[scope.stream]++};
}

RandomOffset RandomCounters::next(const at::Generator& generator) {
  const uint64_t seed = generator.current_seed();
  const std::lock_guard<std::mutex> lock(mutex_);
  ++all_.draws;
  std::erase_if(all_.generators, [](const auto& entry) {
    return entry.second.generator.expired();
  });
  const auto found = all_.generators.find(generator.unsafeGetGeneratorImpl());
  if (found != all_.generators.end() && found->second.next.seed == seed) {
    const RandomOffset offset = found->second.next;
    ++found->second.next.operation;
    return offset;
  }
  const RandomOffset first{
      .seed = seed, .stream = kGeneratorStream, .operation = 0};
  RandomOffset second = first;
  ++second.operation;
  all_.generators.insert_or_assign(
      generator.unsafeGetGeneratorImpl(),
      Counted{
          c10::weak_intrusive_ptr<c10::GeneratorImpl>(
              generator.getIntrusivePtr()),
          second});
  return first;
}

RandomStamp RandomCounters::stamp() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {.seed = all_.state.seed, .operations = all_.state.operations};
}

void RandomCounters::push_stream(const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  all_.scopes.push_back({.stream = name, .next = {}});
}

void RandomCounters::push_scope(const RandomOffset& offset) {
  const uint64_t seed =
      mixed(mixed(offset.seed) ^ offset.stream) ^ offset.operation;
  const std::lock_guard<std::mutex> lock(mutex_);
  all_.scopes.push_back(
      {.stream = {},
       .next = {.seed = mixed(seed), .stream = kScopeStream, .operation = 0}});
}

void RandomCounters::pop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  all_.scopes.pop_back();
}

RandomCounters::State RandomCounters::state() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return all_.state;
}

void RandomCounters::set_state(State state) {
  const std::lock_guard<std::mutex> lock(mutex_);
  all_.state = std::move(state);
}

uint64_t RandomCounters::draws() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return all_.draws;
}

std::shared_ptr<const RandomCounters::Snapshot> RandomCounters::snapshot()
    const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::shared_ptr<const Snapshot>(new Snapshot(all_));
}

void RandomCounters::restore(const Snapshot& snapshot) {
  const std::lock_guard<std::mutex> lock(mutex_);
  all_ = snapshot.all_;
}

}  // namespace tessera::detail::inline comm_layer
