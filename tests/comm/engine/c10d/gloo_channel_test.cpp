// Wires of Gloo: what closing one ends, and what is left afterwards.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "comm/engine/c10d/gloo_channel.h"
#include "comm/expect_error.h"

namespace tessera::detail {
namespace {

using Clock = std::chrono::steady_clock;

struct Pair {
  explicit Pair(const std::string& key = "pair") : devices(gloo_devices("")) {
    for (int64_t place = 0; place < 2; ++place) {
      wires.push_back(make_gloo_channel(
          c10::make_intrusive<::c10d::PrefixStore>(key, store), devices, place,
          2));
    }
  }
  c10::intrusive_ptr<::c10d::Store> store =
      c10::make_intrusive<::c10d::HashStore>();
  GlooDevices devices;
  std::vector<std::unique_ptr<Channel>> wires;
};

// Tells whether it is done within five seconds; throws its error.
bool ends(Transfer& transit) {
  const auto limit = Clock::now() + std::chrono::seconds(5);
  while (!transit.done()) {
    if (Clock::now() > limit) {
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t entries(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return std::distance(begin(all), end(all));
}

TEST(GlooWire, ATransferStartedBeforeTheOtherSideJoinedCompletes) {
  const auto store = c10::make_intrusive<::c10d::HashStore>();
  const GlooDevices devices = gloo_devices("");
  const auto first = make_gloo_channel(store, devices, 0, 2);
  const int64_t sent = 41;
  int64_t got = 0;
  const auto gone = first->send(&sent, 8, 1, 3);
  std::vector<int64_t> all(2);
  const auto gathered = first->all_gather(&sent, 8, all.data(), {8, 8});
  EXPECT_FALSE(gathered->done());
  EXPECT_EQ(first->absent(), std::vector<int64_t>({1}));
  const auto second = make_gloo_channel(store, devices, 1, 2);
  const int64_t mine = 42;
  std::vector<int64_t> both(2);
  const auto also = second->all_gather(&mine, 8, both.data(), {8, 8});
  const auto come = second->receive(&got, 8, 0, 3);
  EXPECT_TRUE(ends(*gathered) && ends(*also) && ends(*gone) && ends(*come));
  EXPECT_EQ(all, std::vector<int64_t>({41, 42}));
  EXPECT_EQ(both, all);
  EXPECT_EQ(got, 41);
}

TEST(GlooWire, MessagesNeedTheirTwoPlacesOnly) {
  const auto store = c10::make_intrusive<::c10d::HashStore>();
  const GlooDevices devices = gloo_devices("");
  const auto first = make_gloo_channel(store, devices, 0, 4);
  const auto last = make_gloo_channel(store, devices, 3, 4);
  const int64_t there = 41;
  const int64_t back = 42;
  int64_t got_there = 0;
  int64_t got_back = 0;
  const std::vector<TransferPtr> all = [&] {
    std::vector<TransferPtr> made;
    made.push_back(first->send(&there, 8, 3, 7));
    made.push_back(first->receive(&got_back, 8, 3, 7));
    made.push_back(last->send(&back, 8, 0, 7));
    made.push_back(last->receive(&got_there, 8, 0, 7));
    return made;
  }();
  for (const TransferPtr& transit : all) {
    EXPECT_TRUE(ends(*transit));
  }
  EXPECT_EQ(got_there, 41);
  EXPECT_EQ(got_back, 42);
}

TEST(GlooWire, ClosingEndsWhatTheOtherSideNeverAnswers) {
  Pair pair;
  std::vector<char> data(1 << 20), received(8);
  const auto sent = pair.wires[0]->broadcast(data.data(), 8, 0);
  ASSERT_TRUE(ends(*pair.wires[1]->broadcast(received.data(), 8, 0)));
  const auto joined = pair.wires[1]->receive(received.data(), 8, 0, 9);
  std::vector<TransferPtr> open;
  open.push_back(pair.wires[0]->broadcast(data.data(), 1 << 20, 1));
  open.push_back(pair.wires[0]->receive(data.data(), 8, 1, 1));
  open.push_back(pair.wires[0]->send(data.data(), 1 << 20, 1, 2));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(open[0]->done() || open[1]->done());
  const auto start = Clock::now();
  pair.wires[0]->close();
  open.clear();
  pair.wires[0].reset();
  EXPECT_LT(seconds_since(start), 1);
}

TEST(GlooWire, ClosingOneSideEndsTheOthersWait) {
  Pair pair;
  std::vector<char> data(8), received(8);
  const auto sent = pair.wires[0]->broadcast(data.data(), 8, 0);
  ASSERT_TRUE(ends(*pair.wires[1]->broadcast(received.data(), 8, 0)));
  const auto waits = pair.wires[1]->broadcast(received.data(), 8, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto start = Clock::now();
  pair.wires[0]->close();
  EXPECT_NE(error_of([&] { ends(*waits); }), "");
  EXPECT_LT(seconds_since(start), 1);
}

TEST(GlooWire, ClosingDoesNotWaitForPlacesThatNeverJoin) {
  const auto store = c10::make_intrusive<::c10d::HashStore>();
  const auto start = Clock::now();
  {
    const auto wire = make_gloo_channel(store, gloo_devices(""), 1, 3);
    int64_t value = 0;
    const auto waits = wire->broadcast(&value, 8, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(wire->absent(), std::vector<int64_t>({0, 2}));
    wire->close();
  }
  EXPECT_LT(seconds_since(start), 1);
}

TEST(GlooWire, TwoHundredCyclesLeaveNoThreadAndNoFile) {
  const auto cycle = [](int number) {
    Pair pair("cycle " + std::to_string(number));
    int64_t value = number;
    int64_t got = 0;
    std::vector<TransferPtr> open;
    open.push_back(pair.wires[0]->broadcast(&value, 8, 0));
    open.push_back(pair.wires[1]->broadcast(&got, 8, 0));
    if (number % 2 == 0) {
      EXPECT_TRUE(ends(*open[0]) && ends(*open[1]));
      EXPECT_EQ(got, number);
    }
    open.push_back(pair.wires[1]->receive(&got, 8, 0, 1));
    pair.wires[number % 4 < 2]->close();
  };
  cycle(0);
  std::this_thread::sleep_for(std::chrono::seconds(2));  // what ended before
  const int64_t files = entries("/proc/self/fd");
  const int64_t threads = entries("/proc/self/task");
  for (int number = 1; number <= 200; ++number) {
    cycle(number);
  }
  // A wire that was closed while it connected may need a moment more.
  const auto limit = Clock::now() + std::chrono::seconds(20);
  while (Clock::now() < limit && entries("/proc/self/task") > threads) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_LE(entries("/proc/self/task"), threads);
  EXPECT_LE(entries("/proc/self/fd"), files);
}

}  // namespace
}  // namespace tessera::detail
