#include "comm/engine/c10d/store/joining_store.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <c10/util/Exception.h>

namespace tessera::detail::inline comm_layer {
namespace {

// Looks are frequent at first, since most ranks arrive together.
constexpr auto kShortestPause = std::chrono::microseconds(200);
constexpr auto kLongestPause = std::chrono::microseconds(10000);
constexpr auto kGrace = std::chrono::milliseconds(1000);
constexpr const char* kGivenUp = "given up";

std::string group_rank_key(int64_t group_rank) {
  return "place " + std::to_string(group_rank);
}

}  // namespace

JoiningStore::JoiningStore(c10::intrusive_ptr<::c10d::Store> store)
    : PrefixStore("joining", std::move(store)) {}

void JoiningStore::announce(int64_t group_rank) {
  set(group_rank_key(group_rank), std::vector<uint8_t>{1});
}

void JoiningStore::wait_for_all(int64_t size) {
  for (int64_t group_rank = 0; group_rank < size; ++group_rank) {
    wait_until(group_rank_key(group_rank), std::chrono::seconds(0));
  }
}

std::vector<int64_t> JoiningStore::absent(int64_t size) {
  std::vector<int64_t> group_ranks;
  for (int64_t group_rank = 0; group_rank < size; ++group_rank) {
    if (!check({group_rank_key(group_rank)})) {
      group_ranks.push_back(group_rank);
    }
  }
  return group_ranks;
}

c10::intrusive_ptr<::c10d::Store> JoiningStore::clone() {
  return c10::make_intrusive<JoiningStore>(store_->clone());
}
std::vector<uint8_t> JoiningStore::get(const std::string& key) {
  wait({key});
  return PrefixStore::get(key);
}

// Waits of Gloo's, for the addresses of ranks that are there: a rank that went
// away in between would keep the others waiting for its connections.
void JoiningStore::wait(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    wait_until(key, kGrace);
  }
}
void JoiningStore::wait(
    const std::vector<std::string>& keys,
    const std::chrono::milliseconds& /*timeout*/) {
  wait(keys);
}

// The engine's deadline ends it, by stop(), and so does a rank that gave up.
void JoiningStore::wait_until(
    const std::string& key, std::chrono::milliseconds grace) {
  const auto start = std::chrono::steady_clock::now();
  auto pause = kShortestPause;
  while (!check({key})) {
    const bool stops =
        stopped_ && std::chrono::steady_clock::now() - start >= grace;
    if (stops) {
      set(kGivenUp, std::vector<uint8_t>{1});
    }
    TORCH_CHECK_WITH(
        DistStoreError, !check({kGivenUp}),
        "the group was closed while it was joined");
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace tessera::detail::inline comm_layer
