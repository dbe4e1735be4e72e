// What a system or a stranger does to checkpoints: permissions, a full disk, a
// later version, files that are none of the checkpoint's.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <tessera/checkpoint/checkpoint.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include <checkpoint/generation.h>
#include <checkpoint/scratch_folder.h>
#include <io/checksum/xxh3.h>

namespace tessera::testing {
namespace {

using checkpoint::StateDict;
namespace fs = std::filesystem;

// The errors of 4 ranks, which must be the same.
std::string error_on_all(const std::function<void()>& body) {
  std::vector<std::string> errors(4);
  run_ranks(4, [&] { errors[static_cast<size_t>(rank())] = error_of(body); });
  EXPECT_EQ(errors, std::vector<std::string>(4, errors[0]));
  return errors[0];
}

// A user whom permissions hold back, unlike root.
class AsNobody {
 public:
  AsNobody() : is_root_(::geteuid() == 0) {
    if (is_root_ && ::seteuid(kNobody) != 0) {
      problem_ = std::strerror(errno);
    }
  }
  ~AsNobody() {
    if (is_root_ && ::seteuid(0) != 0) {
      std::abort();  // later tests would run as nobody
    }
  }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;
  const std::string& problem() const { return problem_; }

 private:
  static constexpr uid_t kNobody = 65534;
  bool is_root_;
  std::string problem_;
};

TEST(SystemErrors, AFolderWithoutPermissionIsNamed) {
  const ScratchFolder folder;
  run_ranks(4, [&] { save_generation(1, folder / "a"); });
  fs::permissions(
      folder.path(), fs::perms::owner_all | fs::perms::group_exec |
                         fs::perms::group_read | fs::perms::others_exec |
                         fs::perms::others_read);
  fs::permissions(folder / "a/manifest.jsonl", fs::perms::none);
  const bool is_root = ::geteuid() == 0;
  std::string problem, of_save, of_load;
  if (!is_root) {
    fs::permissions(
        folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
  }
  {
    const AsNobody nobody;
    problem = nobody.problem();
    of_save = error_on_all([&] { save_generation(2, folder / "b"); });
    of_load = error_on_all([&] { load_generation(folder / "a"); });
  }
  fs::permissions(folder.path(), fs::perms::owner_all);
  if (!problem.empty()) {
    GTEST_SKIP() << "the user cannot be changed: " << problem;
  }
  EXPECT_PRED_FORMAT2(
      ::testing::IsSubstring, "checkpoint::save(\"" + (folder / "b"), of_save);
  EXPECT_PRED_FORMAT2(
      ::testing::IsSubstring, "make the folder: Permission denied (EACCES)",
      of_save);
  EXPECT_PRED_FORMAT2(
      ::testing::IsSubstring,
      (folder / "a/manifest.jsonl") + ": open: Permission denied (EACCES)",
      of_load);
  EXPECT_FALSE(fs::exists(folder / "b"));
}

// A disk of a few MiB that this process sees alone.
std::string mount_small_disk(const std::string& folder) {
  fs::create_directory(folder);
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=4m") != 0) {
    return std::strerror(errno);
  }
  return "";
}

TEST(SystemErrors, AFullDiskLeavesTheOldCheckpoint) {
  const ScratchFolder folder;
  const std::string disk = folder / "disk";
  if (const std::string problem = mount_small_disk(disk); !problem.empty()) {
    GTEST_SKIP() << "a small disk cannot be mounted: " << problem;
  }
  run_ranks(4, [&] { save_generation(1, disk + "/a"); });
  for (const auto format :
       {checkpoint::Format::kTessera, checkpoint::Format::kDcp,
        checkpoint::Format::kSafetensors}) {
    const std::string error = error_on_all([&] {
      save_generation(2, disk + "/a", {.format = format, .overwrite = true});
    });
    EXPECT_PRED_FORMAT2(
        ::testing::IsSubstring, "No space left on device (ENOSPC)", error);
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, "on rank ", error);
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, disk + "/.a.tessera", error);
    run_ranks(4, [&] { TORCH_CHECK(load_generation(disk + "/a") == 1); });
    EXPECT_EQ(names_in(disk), std::set<std::string>{"a"});
  }
  // What is small enough is saved.
  run_ranks(4, [&] { checkpoint::save({{"n", 1}}, disk + "/b"); });
  EXPECT_EQ(::umount2(disk.c_str(), MNT_DETACH), 0);
}

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

TEST(SystemErrors, ALaterVersionIsNamedWithWhatToDo) {
  const ScratchFolder folder;
  run_ranks(4, [&] { save_generation(1, folder / "a"); });
  const std::string path = folder / "a/manifest.jsonl";
  std::string text = read_text(path);
  const std::string version = "\"version\":1";
  text.replace(text.find(version), version.size(), "\"version\":7");
  text.resize(text.rfind("{\"xxh3\":"));
  text += "{\"xxh3\":\"" + detail::print_hex64(detail::xxh3(text)) + "\"}\n";
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_PRED_FORMAT2(
      ::testing::IsSubstring,
      path +
          ": is version 7 of the format; this library reads version 1: use the "
          "library that wrote it, or a later one",
      error_on_all([&] { load_generation(folder / "a"); }));
}

TEST(SystemErrors, FoldersThatAreNoCheckpointSayWhatIsMissing) {
  const ScratchFolder folder;
  fs::create_directory(folder / "empty");
  std::ofstream(folder / "empty/model.pt") << "x";
  EXPECT_PRED_FORMAT2(
      ::testing::IsSubstring,
      (folder / "empty") +
          ": holds no checkpoint: neither manifest.jsonl nor .metadata nor "
          "*.safetensors",
      error_on_all([&] { load_generation(folder / "empty"); }));
  EXPECT_ERROR("holds no checkpoint", checkpoint::verify(folder / "empty"));
}

TEST(SystemErrors, VerifySaysWhatHasNoChecksum) {
  const ScratchFolder folder;
  const auto unchecked = [&](checkpoint::Format format) {
    const std::string path = folder / checkpoint::to_string(format);
    run_ranks(4, [&] { save_generation(1, path, {.format = format}); });
    const std::vector<std::string> all = checkpoint::verify(path);
    return all.empty() ? "" : all[0];
  };
  EXPECT_EQ(unchecked(checkpoint::Format::kTessera), "");
  EXPECT_PRED_FORMAT2(
      ::testing::IsSubstring, ".metadata has no checksum",
      unchecked(checkpoint::Format::kDcp));
  EXPECT_PRED_FORMAT2(
      ::testing::IsSubstring, "safetensors has no checksums",
      unchecked(checkpoint::Format::kSafetensors));
}

}  // namespace
}  // namespace tessera::testing
