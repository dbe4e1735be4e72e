#include <tessera/sharded_tensor/remote_device.h>

#include <sstream>
#include <unordered_set>

#include <gtest/gtest.h>

#include "sharded_tensor/spec/expect_torch_error.h"

namespace tessera::sharded_tensor {
namespace {

struct Row {
  const char* text;
  std::optional<std::string> worker;
  std::optional<int64_t> rank;
  const char* device;
  const char* printed;
};

TEST(RemoteDevice, ParsesOwnersAndDevices) {
  const Row rows[] = {
      {"rank:0/cuda:0", {}, 0, "cuda:0", "rank:0/cuda:0"},
      {"rank:12/cpu", {}, 12, "cpu", "rank:12/cpu"},
      {"rank:3", {}, 3, "cpu", "rank:3/cpu"},
      {"rank:007", {}, 7, "cpu", "rank:7/cpu"},
      {"rank:9223372036854775807",
       {},
       INT64_MAX,
       "cpu",
       "rank:9223372036854775807/cpu"},
      {"worker0", "worker0", {}, "cpu", "worker0/cpu"},
      {"worker1/cuda:1", "worker1", {}, "cuda:1", "worker1/cuda:1"},
      {"cpu/cuda:2", "cpu", {}, "cuda:2", "cpu/cuda:2"},
      {"rank/cpu", "rank", {}, "cpu", "rank/cpu"},
      {"cpu2", "cpu2", {}, "cpu", "cpu2/cpu"},
      {"cpu", {}, {}, "cpu", "cpu"},
      {"cuda:1", {}, {}, "cuda:1", "cuda:1"},
      {"cuda:127", {}, {}, "cuda:127", "cuda:127"},
      {"meta", {}, {}, "meta", "meta"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.text);
    const RemoteDevice device(row.text);
    EXPECT_EQ(device.worker_name(), row.worker);
    EXPECT_EQ(device.rank(), row.rank);
    EXPECT_EQ(device.device(), c10::Device(row.device));
    EXPECT_EQ(to_string(device), row.printed);
    EXPECT_EQ(RemoteDevice(to_string(device)), device);
    std::ostringstream out;
    out << device;
    EXPECT_EQ(out.str(), row.printed);
  }
}

TEST(RemoteDevice, RefusesOwnersThatAreNone) {
  for (const char* text :
       {"", "/cpu", "foo:0", "rank:foo", "rank:-1", "rank:+1",
        "rank:", "rank:1x", "rank: 1", "rank:9223372036854775808", "cuda:foo",
        "cuda:300", "rank:0:1/cpu", "a:b:c", "foo:0/cpu"}) {
    SCOPED_TRACE(text);
    EXPECT_VALUE_ERROR(RemoteDevice{text}, "an owner is rank:N or the name");
  }
  EXPECT_VALUE_ERROR(RemoteDevice("rank:0/cpu/1"), "at most one '/'");
  EXPECT_VALUE_ERROR(RemoteDevice("//"), "at most one '/'");
}

TEST(RemoteDevice, ABadDeviceBehindTheSlashIsTheParsersError) {
  EXPECT_PLAIN_ERROR(RemoteDevice("rank:0/cuda:foo"), "Invalid device string");
  EXPECT_PLAIN_ERROR(RemoteDevice("rank:0/cpu2"), "Invalid device string");
  EXPECT_PLAIN_ERROR(RemoteDevice("rank:foo/gpu"), "device type at start");
  EXPECT_PLAIN_ERROR(RemoteDevice("rank:0/"), "must not be empty");
  // The parser would keep their low bits: cuda:44, cuda, cuda:0.
  for (const char* text : {"cuda:300", "cuda:255", "cuda:256"}) {
    EXPECT_PLAIN_ERROR(
        RemoteDevice(std::string("rank:0/") + text), "index of a device");
  }
}

TEST(RemoteDevice, IsMadeOfItsParts) {
  EXPECT_EQ(RemoteDevice(2, c10::Device("cuda:1")), "rank:2/cuda:1");
  EXPECT_EQ(RemoteDevice(c10::Device(c10::kCPU)), "cpu");
  EXPECT_EQ(
      RemoteDevice("worker1/cpu").with_device(c10::Device("cuda:1")),
      "worker1/cuda:1");
  EXPECT_VALUE_ERROR(
      RemoteDevice(-1, c10::Device(c10::kCPU)), "a rank is not negative");
}

TEST(RemoteDevice, ComparesAndHashesAllParts) {
  EXPECT_EQ(RemoteDevice("rank:0"), RemoteDevice("rank:0/cpu"));
  EXPECT_NE(RemoteDevice("cuda"), RemoteDevice("cuda:0"));
  EXPECT_NE(RemoteDevice("rank:0/cpu"), RemoteDevice("cpu"));
  EXPECT_NE(RemoteDevice("rank:0/cpu"), RemoteDevice("worker0/cpu"));
  const std::hash<RemoteDevice> hash;
  EXPECT_EQ(hash("rank:1"), hash("rank:1/cpu"));
  std::unordered_set<size_t> hashes;
  for (int64_t rank = 0; rank < 100; ++rank) {
    for (const char* device : {"cpu", "cuda", "cuda:0", "cuda:1"}) {
      hashes.insert(hash(RemoteDevice(rank, c10::Device(device))));
    }
    hashes.insert(hash("worker" + std::to_string(rank)));
  }
  EXPECT_EQ(hashes.size(), 500u);
}

}  // namespace
}  // namespace tessera::sharded_tensor
