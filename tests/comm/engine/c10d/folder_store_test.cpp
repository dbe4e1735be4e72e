// A store in a folder.
#include "comm/engine/c10d/store/folder_store.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "comm/expect_error.h"

namespace tessera::detail {
namespace {

using Bytes = std::vector<uint8_t>;

struct Folder {
  Folder() {
    char name[] = "/tmp/tessera_folder_XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

TEST(FolderStore, KeepsWhatAnotherOneOfTheFolderSet) {
  const Folder folder;
  FolderStore mine(folder.path + "/store");
  FolderStore theirs(folder.path + "/store");
  const std::string key = "a/b {0, 1}" + std::string(1000, 'x');
  EXPECT_FALSE(theirs.check({key}));
  mine.set(key, Bytes{1, 0, 255});
  EXPECT_EQ(theirs.get(key), Bytes({1, 0, 255}));
  mine.set(key, Bytes{});
  EXPECT_EQ(theirs.get(key), Bytes());
  mine.set("other", Bytes{7});
  EXPECT_TRUE(theirs.check({key, "other"}));
  EXPECT_FALSE(theirs.check({key, "none"}));
  EXPECT_EQ(theirs.getNumKeys(), 2);
  EXPECT_TRUE(theirs.deleteKey(key));
  EXPECT_FALSE(mine.check({key}));
}

TEST(FolderStore, CountsTogether) {
  const Folder folder;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      FolderStore store(folder.path);
      for (int i = 0; i < 100; ++i) {
        store.add("count", i % 2 == 0 ? 3 : -1);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  FolderStore store(folder.path);
  EXPECT_EQ(store.add("count", 0), 400);
  EXPECT_EQ(store.get("count"), Bytes({'4', '0', '0'}));
}

TEST(FolderStore, WaitsUntilAKeyIsThereOrTheTimeoutPasses) {
  const Folder folder;
  FolderStore store(folder.path);
  std::thread setter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    FolderStore(folder.path).set("late", Bytes{5});
  });
  EXPECT_EQ(store.get("late"), Bytes{5});
  setter.join();
  expect_error<c10::DistStoreError>(
      [&] { store.wait({"never"}, std::chrono::milliseconds(20)); },
      {"within 20 ms", "never"});
}

TEST(FolderStore, SaysWhatIsWrongWithThePath) {
  const Folder folder;
  std::ofstream(folder.path + "/file") << "x";
  expect_error<c10::ValueError>(
      [&] { FolderStore store(folder.path + "/file"); },
      {"TESSERA_STORE=" + folder.path + "/file", "it is a file"});
  expect_error<c10::ValueError>(
      [&] { FolderStore store(folder.path + "/no/store"); },
      {"No such file or directory", "name a new folder"});
}

}  // namespace
}  // namespace tessera::detail
