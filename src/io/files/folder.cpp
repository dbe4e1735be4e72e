#include <io/files/folder.h>

#include <fcntl.h>
#include <linux/fs.h>

#include <algorithm>
#include <cerrno>

#include <base/escape.h>
#include <base/json.h>
#include <io/files/error.h>

namespace tessera::detail::inline io_layer {

namespace {

constexpr size_t kLongestName = 255;
constexpr mode_t kFileMode = 0666;  // less what the user's umask takes away
constexpr mode_t kFolderMode = 0777;

}  // namespace

std::string plain_name_problem(std::string_view name) {
  if (name.empty()) {
    return "is empty";
  }
  if (name == "." || name == "..") {
    return "is a folder";
  }
  if (name.find('/') != name.npos) {
    return "has a '/'";
  }
  if (name.find('\\') != name.npos) {
    return "has a backslash";
  }
  const auto is_control = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  };
  if (std::any_of(name.begin(), name.end(), is_control)) {
    return "has a control character";
  }
  if (name.size() > kLongestName) {
    return "has more than 255 bytes";
  }
  return base::is_utf8(name) ? "" : "is not UTF-8";
}

SplitPath split_path(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  if (path.empty() || end == path.npos) {
    io::throw_usage(path, "names no file and no folder of a checkpoint");
  }
  const std::string trimmed = path.substr(0, end + 1);
  const size_t slash = trimmed.rfind('/');
  std::string name = trimmed.substr(slash == path.npos ? 0 : slash + 1);
  if (name == "." || name == "..") {
    io::throw_usage(
        path, "ends in '" + name + "'; give the checkpoint's own name");
  }
  if (slash == path.npos) {
    return {".", name};
  }
  const size_t parent_end = trimmed.find_last_not_of('/', slash);
  return {
      parent_end == path.npos ? "/" : trimmed.substr(0, parent_end + 1), name};
}

Folder Folder::open(
    io::FileSystem& files, const std::string& path, bool follow_links) {
  const int result = retry_interrupted([&] {
    return files.open_at(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY, 0);
  });
  if (result < 0) {
    io::throw_system_error(path, "open the folder", -result);
  }
  Folder folder(files, result, path);
  folder.follow_links_ = follow_links;
  return folder;
}

std::string Folder::path_of(std::string_view name) const {
  return path_ + (path_.ends_with('/') ? "" : "/") + base::escape(name);
}

std::string Folder::require_plain(const std::string& name) const {
  if (const std::string problem = plain_name_problem(name); !problem.empty()) {
    io::throw_corrupt(
        path_, "the name '" + base::escape(name) + "' " + problem +
                   "; files of a checkpoint have plain names inside its "
                   "folder");
  }
  return name;
}

void Folder::require(
    int result, const std::string& name, const char* action) const {
  if (result < 0) {
    io::throw_system_error(path_of(name), action, -result);
  }
}

int Folder::open_name(const std::string& name, int flags) const {
  require_plain(name);
  return retry_interrupted([&] {
    return files().open_at(
        descriptor_.number(), name.c_str(), flags, kFileMode);
  });
}

File Folder::open_regular(const std::string& name, int access) const {
  // Without O_NONBLOCK a pipe of that name would make us wait for ever.
  const int result =
      open_name(name, access | O_NONBLOCK | (follow_links_ ? 0 : O_NOFOLLOW));
  if (result == -ELOOP) {
    io::throw_corrupt(
        path_of(name),
        "is a symbolic link; links in a checkpoint are refused: open it with "
        "follow_links where you trust them, as in the cache of Hugging Face");
  }
  require(result, name, "open");
  File file(files(), result, path_of(name));
  io::FileStatus status;
  require(files().status(result, &status), name, "ask what it is");
  if (status.kind != io::FileStatus::Kind::kFile) {
    io::throw_corrupt(path_of(name), "is no regular file");
  }
  return file;
}

File Folder::open_file(const std::string& name) const {
  return open_regular(name, O_RDONLY);
}

File Folder::open_file_to_change(const std::string& name) const {
  return open_regular(name, O_RDWR);
}

File Folder::create_file(const std::string& name) const {
  const int result = open_name(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
  require(result, name, "create");
  return File(files(), result, path_of(name));
}

Folder Folder::open_folder(const std::string& name) const {
  const int result = open_name(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  require(result, name, "open the folder");
  return Folder(files(), result, path_of(name));
}

void Folder::create_folder(const std::string& name) const {
  require_plain(name);
  require(
      retry_interrupted([&] {
        return files().make_folder_at(
            descriptor_.number(), name.c_str(), kFolderMode);
      }),
      name, "make the folder");
}

std::optional<io::FileStatus::Kind> Folder::find(
    const std::string& name) const {
  const int result = open_name(name, O_PATH | O_NOFOLLOW);
  if (result == -ENOENT) {
    return std::nullopt;
  }
  require(result, name, "look for");
  const Descriptor found(files(), result);
  io::FileStatus status;
  require(files().status(result, &status), name, "ask what it is");
  return status.kind;
}

std::vector<std::string> Folder::list() const {
  std::vector<std::string> names;
  const int result = retry_interrupted([&] {
    names.clear();
    return files().list(descriptor_.number(), &names);
  });
  if (result < 0) {
    io::throw_system_error(path_, "list the folder", -result);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void Folder::rename(const std::string& from, const std::string& to) const {
  require_plain(from);
  require_plain(to);
  const int folder = descriptor_.number();
  require(
      retry_interrupted([&] {
        return files().rename_at(folder, from.c_str(), folder, to.c_str(), 0);
      }),
      from, ("rename to " + base::escape(to)).c_str());
}

void Folder::rename_new(const std::string& from, const std::string& to) const {
  require_plain(from);
  require_plain(to);
  const int folder = descriptor_.number();
  const int result = retry_interrupted([&] {
    return files().rename_at(
        folder, from.c_str(), folder, to.c_str(), RENAME_NOREPLACE);
  });
  if (result == -EINVAL || result == -ENOSYS) {
    // A file system without the flag: a folder replaces an empty one at most.
    if (find(to)) {
      require(-EEXIST, to, "rename to a new name");
    }
    return rename(from, to);
  }
  require(result, to, ("rename " + base::escape(from) + " to it").c_str());
}

void Folder::move_file(
    const std::string& from, const Folder& to_folder,
    const std::string& to) const {
  require_plain(from);
  require_plain(to);
  require(
      retry_interrupted([&] {
        return files().rename_at(
            descriptor_.number(), from.c_str(), to_folder.descriptor_.number(),
            to.c_str(), 0);
      }),
      from, ("rename to " + to_folder.path_of(to)).c_str());
}

bool Folder::exchange(const std::string& a, const std::string& b) const {
  require_plain(a);
  require_plain(b);
  const int folder = descriptor_.number();
  const int result = retry_interrupted([&] {
    return files().rename_at(
        folder, a.c_str(), folder, b.c_str(), RENAME_EXCHANGE);
  });
  if (result == -EINVAL || result == -ENOSYS) {
    return false;
  }
  require(result, a, ("exchange with " + base::escape(b)).c_str());
  return true;
}

void Folder::remove_file(const std::string& name) const {
  require_plain(name);
  require(
      retry_interrupted([&] {
        return files().remove_at(descriptor_.number(), name.c_str(), 0);
      }),
      name, "remove");
}

void Folder::remove_folder(const std::string& name) const {
  require_plain(name);
  require(
      retry_interrupted([&] {
        return files().remove_at(
            descriptor_.number(), name.c_str(), AT_REMOVEDIR);
      }),
      name, "remove the folder");
}

void Folder::sync() const {
  const int result =
      retry_interrupted([&] { return files().sync(descriptor_.number()); });
  if (result < 0) {
    io::throw_system_error(path_, "sync the folder", -result);
  }
}

bool Folder::lock() const {
  const int result =
      retry_interrupted([&] { return files().lock(descriptor_.number()); });
  if (result < 0 && result != -EWOULDBLOCK) {
    io::throw_system_error(path_, "lock the folder", -result);
  }
  return result == 0;
}

void Folder::unlock() const {
  const int result =
      retry_interrupted([&] { return files().unlock(descriptor_.number()); });
  if (result < 0) {
    io::throw_system_error(path_, "unlock the folder", -result);
  }
}

}  // namespace tessera::detail::inline io_layer
