// Which std::filesystem the programs of this library call: LibTorch exports
// another copy.
#include <dlfcn.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

namespace {

TEST(StandardLibrary, FilesystemIsTheToolchainsNotLibTorchs) {
  using RemoveAll = std::uintmax_t (*)(const std::filesystem::path&);
  const RemoveAll function = &std::filesystem::remove_all;
  Dl_info found{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(function), &found), 0);
  EXPECT_NE(std::string(found.dli_fname).find("libstdc++"), std::string::npos)
      << found.dli_fname;
}

}  // namespace
