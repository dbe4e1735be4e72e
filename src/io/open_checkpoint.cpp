#include <io/open_checkpoint.h>

#include <cerrno>

#include <io/commit/checkpoint_names.h>
#include <io/commit/publish.h>
#include <io/dcp/dcp_reader.h>
#include <io/files/error.h>
#include <io/safetensors/safetensors_reader.h>
#include <io/tessera_format/tessera_reader.h>

namespace tessera::io {

namespace {

std::unique_ptr<Reader> open_folder(detail::Folder folder) {
  bool is_tessera = false, is_dcp = false, is_safetensors = false;
  for (const std::string& name : folder.list()) {
    is_tessera |= name == detail::kManifestName;
    is_dcp |= name == detail::kDcpMetadataName;
    is_safetensors |= name.ends_with(detail::kSafetensorsSuffix);
  }
  if (is_tessera + is_dcp + is_safetensors > 1) {
    throw_usage(
        folder.path(),
        "holds files of several formats (manifest.jsonl, .metadata, "
        "*.safetensors); keep one");
  }
  if (is_tessera) {
    return detail::open_tessera(std::move(folder));
  }
  if (is_dcp) {
    return detail::open_dcp(std::move(folder));
  }
  if (is_safetensors) {
    return detail::open_safetensors_folder(std::move(folder));
  }
  throw_usage(
      folder.path(),
      "holds no checkpoint: neither manifest.jsonl nor .metadata nor "
      "*.safetensors");
}

}  // namespace

std::unique_ptr<Reader> open_checkpoint(
    const std::string& path, const OpenOptions& options) {
  FileSystem& files = *options.files;
  const detail::SplitPath split = detail::split_path(path);
  const detail::Folder parent = detail::Folder::open(files, split.parent);
  const std::string name = detail::readable_name(parent, split.name);
  if (name != split.name) {
    return open_folder(parent.open_folder(name));
  }
  // What the user names may be a link, unlike what lies inside.
  const auto kind = parent.find(name);
  if (kind != FileStatus::Kind::kFile) {
    try {
      return open_folder(
          detail::Folder::open(files, path, options.follow_links));
    } catch (const Error& error) {
      const bool is_link_to_file = kind == FileStatus::Kind::kOther &&
                                   error.error_number() == ENOTDIR &&
                                   error.path() == path;
      if (!is_link_to_file) {
        throw;
      }
    }
  }
  return detail::open_safetensors_file(
      detail::Folder::open(files, split.parent, true), name);
}

}  // namespace tessera::io
