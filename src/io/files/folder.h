// An open folder. Names inside it are plain: one component, no way out. So what
// a file of a stranger names is looked for in the folder and nowhere else, and
// a link there is not followed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <io/files/file.h>

namespace tessera::detail::inline io_layer {

/// Returns why a name that stands in a file cannot name a file of its folder;
/// "" where it can. Example: "../x" -> "has a '/'".
std::string plain_name_problem(std::string_view name);

/// A path given by the user: the folder that holds it and its last component.
/// Example: "/a/b/" -> {"/a", "b"}; "b" -> {".", "b"}.
struct SplitPath {
  std::string parent;
  std::string name;
};
SplitPath split_path(const std::string& path);

class Folder {
 public:
  /// Opens a folder by a path of the user, links in it included. Files in it
  /// may be links too where the user says so.
  static Folder open(
      io::FileSystem& files, const std::string& path,
      bool follow_links = false);

  const std::string& path() const { return path_; }
  io::FileSystem& files() const { return descriptor_.files(); }
  std::string path_of(std::string_view name) const;

  /// Opens an existing regular file for reading.
  File open_file(const std::string& name) const;
  /// The same for reading and writing: some network file systems ask for that
  /// where a lock is taken.
  File open_file_to_change(const std::string& name) const;
  /// Makes a new file; it must not be there.
  File create_file(const std::string& name) const;
  Folder open_folder(const std::string& name) const;
  void create_folder(const std::string& name) const;
  /// Returns what a name stands for; nothing where there is none. A link is
  /// kOther.
  std::optional<io::FileStatus::Kind> find(const std::string& name) const;
  /// Returns the names inside, sorted.
  std::vector<std::string> list() const;

  /// Renames; replaces a file of that name, and fails where a folder with
  /// something in it has it.
  void rename(const std::string& from, const std::string& to) const;
  /// Renames where `to` is not there yet, and fails where it is.
  void rename_new(const std::string& from, const std::string& to) const;
  /// Moves a file to another folder; replaces a file of that name there.
  void move_file(
      const std::string& from, const Folder& to_folder,
      const std::string& to) const;
  /// Exchanges two names at once; false where the file system cannot.
  bool exchange(const std::string& a, const std::string& b) const;
  void remove_file(const std::string& name) const;
  void remove_folder(const std::string& name) const;
  /// Returns once new, renamed and removed names are on the disk.
  void sync() const;
  /// Takes the folder's lock until it is closed; false where it is taken.
  bool lock() const;
  void unlock() const;

 private:
  Folder(io::FileSystem& files, int descriptor, std::string path)
      : descriptor_(files, descriptor), path_(std::move(path)) {}

  File open_regular(const std::string& name, int access) const;
  int open_name(const std::string& name, int flags) const;
  void require(int result, const std::string& name, const char* action) const;
  std::string require_plain(const std::string& name) const;

  Descriptor descriptor_;
  std::string path_;
  bool follow_links_ = false;
};

}  // namespace tessera::detail::inline io_layer
