#include "comm/engine/c10d/joining_store.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <c10/util/Exception.h>

namespace tessera::detail {
namespace {

// Looks are frequent at first, since most ranks arrive together.
constexpr auto kShortestPause = std::chrono::microseconds(200);
constexpr auto kLongestPause = std::chrono::microseconds(10000);

std::string place_key(int64_t place) {
  return "place " + std::to_string(place);
}

}  // namespace

JoiningStore::JoiningStore(c10::intrusive_ptr<::c10d::Store> store)
    : store_(std::move(store)) {}

void JoiningStore::announce(int64_t place) {
  store_->set(place_key(place), std::vector<uint8_t>{1});
}

void JoiningStore::wait_for_all(int64_t size) {
  for (int64_t place = 0; place < size; ++place) {
    wait({place_key(place)});
  }
}

std::vector<int64_t> JoiningStore::absent(int64_t size) {
  std::vector<int64_t> places;
  for (int64_t place = 0; place < size; ++place) {
    if (!store_->check({place_key(place)})) {
      places.push_back(place);
    }
  }
  return places;
}

c10::intrusive_ptr<::c10d::Store> JoiningStore::clone() {
  return c10::make_intrusive<JoiningStore>(store_->clone());
}
void JoiningStore::set(
    const std::string& key, const std::vector<uint8_t>& value) {
  store_->set(key, value);
}
std::vector<uint8_t> JoiningStore::get(const std::string& key) {
  wait({key});
  return store_->get(key);
}
int64_t JoiningStore::add(const std::string& key, int64_t value) {
  return store_->add(key, value);
}
bool JoiningStore::deleteKey(const std::string& key) {
  return store_->deleteKey(key);
}
bool JoiningStore::check(const std::vector<std::string>& keys) {
  return store_->check(keys);
}
int64_t JoiningStore::getNumKeys() {
  return store_->getNumKeys();
}

// The engine's deadline ends it, by stop(): the timeouts that Gloo asks for are
// those of connections.
void JoiningStore::wait(const std::vector<std::string>& keys) {
  auto pause = kShortestPause;
  while (!store_->check(keys)) {
    TORCH_CHECK_WITH(
        DistStoreError, !stopped_, "the group was closed while it was joined");
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}
void JoiningStore::wait(
    const std::vector<std::string>& keys,
    const std::chrono::milliseconds& /*timeout*/) {
  wait(keys);
}

}  // namespace tessera::detail
