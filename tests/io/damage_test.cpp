// What happens to the files of a checkpoint on their way: cut off, lost,
// exchanged, replaced by links. All of it is found before a value is used,
// where the format has what it takes.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "io/example.h"

namespace tessera::io_test {
namespace {

using io::Format;

class DamageTest : public testing::TestWithParam<Format> {
 protected:
  void SetUp() override { save_example(path_, GetParam(), 7); }

  // What reading all says; a mix of values is a failure, and no error.
  std::string problem() const {
    return message_of([&] { read_example(path_); });
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "step";
};

INSTANTIATE_TEST_SUITE_P(
    Formats, DamageTest,
    testing::Values(Format::kTessera, Format::kDcp, Format::kSafetensors),
    [](const auto& test) { return std::string(io::name_of(test.param)); });

// Every length, but of DCP's long files a part in the short form.
TEST_P(DamageTest, EveryTruncationOfEveryFileIsFound) {
  for (const std::string& name : names_in(path_)) {
    const std::string file = path_ + "/" + name;
    const std::string bytes = read_bytes(file);
    const bool all = is_long() || GetParam() == Format::kTessera;
    const size_t stride = all ? 1 : 1 + bytes.size() / 150;
    size_t size = bytes.size();
    while (size > 0) {
      size -= std::min(stride, size);
      ASSERT_EQ(::truncate(file.c_str(), static_cast<off_t>(size)), 0);
      ASSERT_NE(problem(), "no error") << name << " of " << size << " bytes";
    }
    write_bytes(file, bytes);
  }
  EXPECT_EQ(problem(), "no error");
}

TEST_P(DamageTest, EveryMissingFileIsFound) {
  for (const std::string& name : names_in(path_)) {
    std::filesystem::rename(path_ + "/" + name, folder_ / "elsewhere");
    EXPECT_NE(problem(), "no error") << name;
    std::filesystem::rename(folder_ / "elsewhere", path_ + "/" + name);
  }
  EXPECT_EQ(problem(), "no error");
}

TEST_P(DamageTest, FilesThatAreLinksFoldersOrPipesAreRefused) {
  for (const std::string& name : names_in(path_)) {
    const std::string file = path_ + "/" + name;
    std::filesystem::rename(file, folder_ / "elsewhere");
    std::filesystem::create_symlink(folder_ / "elsewhere", file);
    EXPECT_NE(problem().find("symbolic link"), std::string::npos) << problem();
    std::filesystem::remove(file);
    std::filesystem::create_directory(file);
    EXPECT_NE(problem().find("no regular file"), std::string::npos);
    std::filesystem::remove(file);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    EXPECT_NE(problem().find("no regular file"), std::string::npos);
    std::filesystem::remove(file);
    std::filesystem::rename(folder_ / "elsewhere", file);
  }
  EXPECT_EQ(problem(), "no error");
}

// Of our own format: the checksums of the manifest tell files apart. DCP's
// speak for one file each, and safetensors has none.
TEST(ForeignFilesTest, ExchangedRepeatedAndForeignFilesAreFound) {
  const TemporaryFolder folder;
  const std::string path = folder / "step";
  save_example(path, Format::kTessera, 7);
  save_example(folder / "later", Format::kTessera, 8);
  const std::set<std::string> names = names_in(path);
  const auto expect_found = [&](const std::string& what) {
    EXPECT_NE(message_of([&] { read_example(path); }), "no error") << what;
  };
  for (const std::string& one : names) {
    const std::string bytes = read_bytes(path + "/" + one);
    write_bytes(path + "/" + one, read_bytes(folder / ("later/" + one)));
    expect_found(one + " of a later save");
    for (const std::string& other : names) {
      if (other != one) {
        const std::string other_bytes = read_bytes(path + "/" + other);
        write_bytes(path + "/" + one, other_bytes);
        expect_found(other + " as " + one);
        write_bytes(path + "/" + other, bytes);
        expect_found(other + " exchanged with " + one);
        write_bytes(path + "/" + other, other_bytes);
      }
    }
    write_bytes(path + "/" + one, bytes);
  }
  EXPECT_EQ(read_example(path), 7);
}

}  // namespace
}  // namespace tessera::io_test
