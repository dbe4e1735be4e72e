#include <io/commit/publish.h>

#include <algorithm>
#include <random>

#include <base/escape.h>
#include <io/checksum/xxh3.h>
#include <io/commit/checkpoint_names.h>
#include <io/files/error.h>

namespace tessera::detail::inline io_layer {

namespace {

constexpr std::string_view kSaving = ".tessera-saving-";
constexpr std::string_view kPrevious = ".tessera-previous";
constexpr size_t kTokenDigits = 16;

bool is_saving_name(std::string_view name, std::string_view checkpoint) {
  uint64_t token = 0;
  return name.size() > kTokenDigits &&
         parse_hex64(name.substr(name.size() - kTokenDigits), &token) &&
         name ==
             saving_name(checkpoint, name.substr(name.size() - kTokenDigits));
}

// Leftovers are removed while their lock is ours, so that nobody who believes
// them alive writes into them.
void remove_leftover(const Folder& parent, const std::string& name) {
  if (parent.find(name) == io::FileStatus::Kind::kFolder) {
    const Folder folder = parent.open_folder(name);
    if (!folder.lock()) {
      io::throw_usage(
          parent.path_of(name),
          "another save of this checkpoint is under way; wait for it, or end "
          "its process");
    }
    remove_checkpoint(parent, name);
  } else {
    remove_checkpoint(parent, name);
  }
}

}  // namespace

std::string saving_name(std::string_view checkpoint, std::string_view token) {
  return "." + std::string(checkpoint) + std::string(kSaving) +
         std::string(token);
}

std::string previous_name(std::string_view checkpoint) {
  return "." + std::string(checkpoint) + std::string(kPrevious);
}

std::string make_token() {
  std::random_device random;
  return print_hex64((uint64_t{random()} << 32) ^ random());
}

void check_removable(const Folder& parent, const std::string& name) {
  const auto kind = parent.find(name);
  const auto refuse = [&](const std::string& problem) {
    io::throw_usage(
        parent.path_of(name),
        problem + "; it is not overwritten: move it away, or save elsewhere");
  };
  if (kind == io::FileStatus::Kind::kFile) {
    if (!is_checkpoint_file(name) && !name.ends_with(kSafetensorsSuffix)) {
      refuse("is a file that no checkpoint format writes");
    }
    return;
  }
  if (kind != io::FileStatus::Kind::kFolder) {
    refuse("is neither a file nor a folder");
  }
  const Folder folder = parent.open_folder(name);
  for (const std::string& inside : folder.list()) {
    if (!is_checkpoint_file(inside) ||
        folder.find(inside) != io::FileStatus::Kind::kFile) {
      refuse(
          "holds '" + base::escape(inside) +
          "', which no checkpoint format writes");
    }
  }
}

void remove_checkpoint(const Folder& parent, const std::string& name) {
  check_removable(parent, name);
  if (parent.find(name) == io::FileStatus::Kind::kFile) {
    parent.remove_file(name);
    return;
  }
  {
    const Folder folder = parent.open_folder(name);
    for (const std::string& inside : folder.list()) {
      folder.remove_file(inside);
    }
  }
  parent.remove_folder(name);
}

void clean_leftovers(const Folder& parent, const std::string& checkpoint) {
  const std::string previous = previous_name(checkpoint);
  if (parent.find(previous)) {
    if (parent.find(checkpoint)) {
      remove_leftover(parent, previous);
    } else {
      parent.rename_new(previous, checkpoint);
    }
  }
  for (const std::string& name : parent.list()) {
    if (is_saving_name(name, checkpoint)) {
      remove_leftover(parent, name);
    }
  }
}

std::string publish(
    const Folder& parent, const std::string& saved,
    const std::string& checkpoint, bool overwrite) {
  if (!parent.find(checkpoint)) {
    parent.rename_new(saved, checkpoint);
    return "";
  }
  if (!overwrite) {
    io::throw_usage(
        parent.path_of(checkpoint),
        "is there already; save elsewhere, or say that it may be overwritten");
  }
  check_removable(parent, checkpoint);
  if (parent.exchange(saved, checkpoint)) {
    return saved;
  }
  const std::string previous = previous_name(checkpoint);
  parent.rename_new(checkpoint, previous);
  parent.sync();
  parent.rename_new(saved, checkpoint);
  return previous;
}

std::string readable_name(const Folder& parent, const std::string& checkpoint) {
  const std::string previous = previous_name(checkpoint);
  return !parent.find(checkpoint) && parent.find(previous) ? previous
                                                           : checkpoint;
}

}  // namespace tessera::detail::inline io_layer
