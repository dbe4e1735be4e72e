#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include <io/files/buffered_file.h>
#include <io/files/error.h>
#include <io/files/file_cache.h>
#include <io/files/folder.h>

#include "io/example.h"
#include "io/files/faulty_file_system.h"

namespace tessera::detail {
namespace {

using io_test::FaultyFileSystem;
using io_test::read_bytes;
using io_test::TemporaryFolder;
using io_test::write_bytes;

io::Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const io::Error& error) {
    return error;
  }
  return {io::ErrorKind::kUsage, "no", "error"};
}

TEST(PlainNameTest, OnlyOneComponentIsPlain) {
  EXPECT_EQ(plain_name_problem("rank_00000.0.bin"), "");
  EXPECT_EQ(plain_name_problem(".metadata"), "");
  EXPECT_EQ(plain_name_problem("h\xc3\xa9"), "");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "is empty"},
      {".", "is a folder"},
      {"..", "is a folder"},
      {"../x", "has a '/'"},
      {"/etc/passwd", "has a '/'"},
      {"a/b", "has a '/'"},
      {"a\\b", "has a backslash"},
      {std::string("a\0b", 3), "has a control character"},
      {"a\nb", "has a control character"},
      {std::string(256, 'a'), "has more than 255 bytes"},
      {"\xff", "is not UTF-8"},
  };
  for (const auto& [name, problem] : cases) {
    EXPECT_EQ(plain_name_problem(name), problem);
  }
}

TEST(SplitPathTest, GivesTheFolderAndTheName) {
  const auto split = [](const char* path) {
    const SplitPath parts = split_path(path);
    return parts.parent + "|" + parts.name;
  };
  EXPECT_EQ(split("/a/b"), "/a|b");
  EXPECT_EQ(split("/a/b///"), "/a|b");
  EXPECT_EQ(split("/a//b"), "/a|b");
  EXPECT_EQ(split("/a"), "/|a");
  EXPECT_EQ(split("b"), ".|b");
  EXPECT_EQ(split("../b/c"), "../b|c");
  EXPECT_THROW(split(""), io::Error);
  EXPECT_THROW(split("/"), io::Error);
  EXPECT_THROW(split("a/.."), io::Error);
}

TEST(FolderTest, OpensNothingOutsideOfItself) {
  const TemporaryFolder temporary;
  std::filesystem::create_directory(temporary / "in");
  write_bytes(temporary / "secret", "s");
  const Folder folder = Folder::open(io::system_files(), temporary / "in");
  for (const char* name : {"../secret", "..", "/etc/passwd", ""}) {
    const io::Error error = error_of([&] { folder.open_file(name); });
    EXPECT_EQ(error.kind(), io::ErrorKind::kCorrupt) << name;
    EXPECT_NE(std::string(error.what()).find("plain names"), std::string::npos);
  }
}

TEST(FolderTest, FollowsNoLinksAndWaitsForNoPipes) {
  const TemporaryFolder temporary;
  write_bytes(temporary / "secret", "s");
  std::filesystem::create_symlink(temporary / "secret", temporary / "link");
  ASSERT_EQ(::mkfifo((temporary / "pipe").c_str(), 0600), 0);
  std::filesystem::create_directory(temporary / "folder");
  const Folder folder = Folder::open(io::system_files(), temporary.path());
  EXPECT_NE(
      std::string(error_of([&] { folder.open_file("link"); }).what())
          .find("symbolic link"),
      std::string::npos);
  for (const char* name : {"pipe", "folder"}) {
    EXPECT_NE(
        std::string(error_of([&] { folder.open_file(name); }).what())
            .find("no regular file"),
        std::string::npos);
  }
  EXPECT_EQ(folder.find("link"), io::FileStatus::Kind::kOther);
  EXPECT_EQ(folder.find("folder"), io::FileStatus::Kind::kFolder);
  EXPECT_EQ(folder.find("nothing"), std::nullopt);
  std::filesystem::create_directory_symlink(
      temporary / "folder", temporary / "to_folder");
  EXPECT_THROW(folder.open_folder("to_folder"), io::Error);
}

TEST(FolderTest, NewFilesReplaceNothing) {
  const TemporaryFolder temporary;
  const Folder folder = Folder::open(io::system_files(), temporary.path());
  folder.create_file("a");
  const io::Error error = error_of([&] { folder.create_file("a"); });
  EXPECT_EQ(error.error_number(), EEXIST);
  EXPECT_EQ(
      std::string(error.what()),
      temporary / "a" + ": create: File exists (EEXIST)");
  folder.create_file("b");
  EXPECT_EQ(
      error_of([&] { folder.rename_new("a", "b"); }).error_number(), EEXIST);
  FaultyFileSystem plain;
  plain.refuse_exchange();
  const Folder old = Folder::open(plain, temporary.path());
  EXPECT_EQ(error_of([&] { old.rename_new("a", "b"); }).error_number(), EEXIST);
  EXPECT_FALSE(old.exchange("a", "b"));
  old.rename_new("a", "c");
  EXPECT_EQ(old.list(), (std::vector<std::string>{"b", "c"}));
}

TEST(FileTest, ReadsAllOrSaysWhereTheFileEnds) {
  const TemporaryFolder temporary;
  write_bytes(temporary / "a", "0123456789");
  const Folder folder = Folder::open(io::system_files(), temporary.path());
  const File file = folder.open_file("a");
  char bytes[20];
  file.read(bytes, 4, 3);
  EXPECT_EQ(std::string(bytes, 4), "3456");
  const io::Error error = error_of([&] { file.read(bytes, 8, 5); });
  EXPECT_EQ(error.kind(), io::ErrorKind::kCorrupt);
  EXPECT_NE(
      std::string(error.what())
          .find("ends at byte 10; expected 8 bytes at byte 5"),
      std::string::npos)
      << error.what();
  EXPECT_EQ(file.read_all(10), "0123456789");
  EXPECT_THROW(file.read_all(9), io::Error);
}

TEST(FileTest, AWriteThatTakesNothingIsAnError) {
  class FullDisk : public FaultyFileSystem {
   public:
    int64_t write_at(int, const void*, size_t, uint64_t) override { return 0; }
  };
  const TemporaryFolder temporary;
  FullDisk files;
  File file = Folder::open(files, temporary.path()).create_file("a");
  EXPECT_EQ(error_of([&] { file.write("x", 1, 0); }).error_number(), EIO);
}

TEST(BufferedFileTest, WritesInAnyOrderGiveTheSameFile) {
  const TemporaryFolder temporary;
  const Folder folder = Folder::open(io::system_files(), temporary.path());
  const std::string all = io_test::make_bytes(0, 400000, 1);
  std::vector<std::pair<size_t, size_t>> parts;  // offset, size
  for (size_t at = 0, size = 1; at < all.size();
       at += size, size = size * 3 + 1) {
    parts.emplace_back(at, std::min(size, all.size() - at));
  }
  for (int order = 0; order < 6; ++order) {
    BufferedFile file(folder.create_file("f" + std::to_string(order)));
    for (const auto& [at, size] : parts) {
      file.write(all.data() + at, size, at);
    }
    file.finish();
    EXPECT_EQ(read_bytes(temporary / ("f" + std::to_string(order))), all);
    std::rotate(parts.begin(), parts.begin() + 2, parts.end());
    if (order % 2 == 1) {
      std::reverse(parts.begin(), parts.end());
    }
  }
}

TEST(FileCacheTest, KeepsFewFilesOpen) {
  const TemporaryFolder temporary;
  for (int i = 0; i < 200; ++i) {
    write_bytes(temporary / std::to_string(i), std::to_string(i));
  }
  const FileCache cache(Folder::open(io::system_files(), temporary.path()));
  const auto first = cache.open("0");
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 200; ++i) {
      EXPECT_EQ(cache.open(std::to_string(i))->read_all(9), std::to_string(i));
    }
  }
  EXPECT_EQ(first->read_all(9), "0");  // whoever holds it may go on
}

}  // namespace
}  // namespace tessera::detail
