#include <io/steps.h>

#include <algorithm>
#include <charconv>

#include <io/checksum/xxh3.h>
#include <io/commit/checkpoint_names.h>
#include <io/commit/publish.h>
#include <io/files/error.h>
#include <io/files/folder.h>

namespace tessera::io {

namespace {

constexpr std::string_view kPrefix = "step_";
constexpr size_t kDigits = 12;
constexpr const char* kLatest = "latest";
constexpr std::string_view kRemoving = ".tessera-removing-";
constexpr std::string_view kLatestSaving = ".latest.tessera-saving-";
constexpr size_t kTokenDigits = 16;

bool ends_in_token(std::string_view name, std::string_view before) {
  uint64_t token = 0;
  return name.size() >= kTokenDigits + before.size() &&
         detail::parse_hex64(name.substr(name.size() - kTokenDigits), &token) &&
         name.substr(0, name.size() - kTokenDigits).ends_with(before);
}

// A folder with the index of a format is complete: it was renamed when it was.
bool is_checkpoint(const detail::Folder& folder, const std::string& name) {
  if (folder.find(name) != FileStatus::Kind::kFolder) {
    return false;
  }
  const std::vector<std::string> inside = folder.open_folder(name).list();
  return std::any_of(inside.begin(), inside.end(), [](const auto& file) {
    return file == detail::kManifestName || file == detail::kDcpMetadataName ||
           file.ends_with(detail::kSafetensorsSuffix);
  });
}

std::vector<int64_t> list_steps_of(const detail::Folder& folder) {
  std::vector<int64_t> steps;
  for (const std::string& name : folder.list()) {
    const auto step = step_of(name);
    if (step && is_checkpoint(folder, name)) {
      steps.push_back(*step);
    }
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<int64_t> latest_of(
    const detail::Folder& folder, const std::vector<int64_t>& steps) {
  if (folder.find(kLatest)) {
    std::string text = folder.open_file(kLatest).read_all(4096);
    if (text.ends_with('\n')) {
      text.pop_back();
    }
    const auto step = step_of(text);
    if (step && std::binary_search(steps.begin(), steps.end(), *step)) {
      return step;
    }
  }
  return steps.empty() ? std::nullopt : std::optional(steps.back());
}

// What a crash has left: temporary files of `latest`, and steps on their way
// out.
void clean_steps(const detail::Folder& folder) {
  for (const std::string& name : folder.list()) {
    if (ends_in_token(name, kLatestSaving)) {
      folder.remove_file(name);
    } else if (name.starts_with(".step_") && ends_in_token(name, kRemoving)) {
      detail::remove_checkpoint(folder, name);
    }
  }
}

}  // namespace

std::string step_name(int64_t step) {
  std::string digits = std::to_string(step);
  if (step < 0) {
    throw_usage("step", "steps are counted from 0; got " + digits);
  }
  digits.insert(0, digits.size() < kDigits ? kDigits - digits.size() : 0, '0');
  return std::string(kPrefix) + digits;
}

std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) {
    return std::nullopt;
  }
  const std::string_view digits = name.substr(kPrefix.size());
  int64_t step = 0;
  const char* end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, step);
  if (result.ec != std::errc() || result.ptr != end || step < 0 ||
      step_name(step) != name) {
    return std::nullopt;
  }
  return step;
}

std::vector<int64_t> list_steps(const std::string& folder, FileSystem& files) {
  return list_steps_of(detail::Folder::open(files, folder));
}

void set_latest(const std::string& path, int64_t step, FileSystem& files) {
  const detail::Folder folder = detail::Folder::open(files, path);
  if (!is_checkpoint(folder, step_name(step))) {
    throw_usage(
        folder.path_of(step_name(step)),
        "holds no checkpoint, so it is not the latest one");
  }
  clean_steps(folder);
  const std::string name = std::string(kLatestSaving) + detail::make_token();
  const std::string text = step_name(step) + "\n";
  detail::File file = folder.create_file(name);
  file.write(text.data(), text.size(), 0);
  file.sync();
  file.close();
  folder.rename(name, kLatest);
  folder.sync();
}

std::optional<int64_t> find_latest(const std::string& path, FileSystem& files) {
  const detail::Folder folder = detail::Folder::open(files, path);
  return latest_of(folder, list_steps_of(folder));
}

std::vector<int64_t> remove_old_steps(
    const std::string& path, int64_t keep, FileSystem& files) {
  if (keep < 1) {
    throw_usage(path, "keep one step or more, not " + std::to_string(keep));
  }
  const detail::Folder folder = detail::Folder::open(files, path);
  clean_steps(folder);
  std::vector<int64_t> steps = list_steps_of(folder);
  const std::optional<int64_t> latest = latest_of(folder, steps);
  const auto kept = static_cast<size_t>(keep);
  steps.resize(steps.size() > kept ? steps.size() - kept : 0);
  std::erase_if(steps, [&](int64_t step) { return step == latest; });
  for (const int64_t step : steps) {
    const std::string name = step_name(step);
    detail::check_removable(folder, name);
    const std::string removing =
        "." + name + std::string(kRemoving) + detail::make_token();
    folder.rename_new(name, removing);
    folder.sync();
    detail::remove_checkpoint(folder, removing);
  }
  return steps;
}

}  // namespace tessera::io
