#include <io/save.h>

#include <base/json.h>
#include <io/commit/checkpoint_names.h>
#include <io/commit/publish.h>
#include <io/dcp/dcp_writer.h>
#include <io/files/error.h>
#include <io/model/records.h>
#include <io/safetensors/safetensors_writer.h>
#include <io/tessera_format/tessera_writer.h>

namespace tessera::io {

namespace {

// Temporary names are longer than the name, and names have at most 255 bytes.
constexpr size_t kLongestName = 200;

void check_options(const std::string& path, const SaveOptions& options) {
  const std::string name = detail::split_path(path).name;
  const std::string problem = detail::plain_name_problem(name);
  if (!problem.empty() || name.size() > kLongestName || !base::is_utf8(path)) {
    throw_usage(
        path, "a checkpoint's name is UTF-8 of at most 200 bytes; this one " +
                  (problem.empty() ? "is not" : problem));
  }
  if (options.ranks < 1) {
    throw_usage(path, "a save by " + std::to_string(options.ranks) + " ranks");
  }
}

bool is_one_file(const std::string& name, const SaveOptions& options) {
  return options.format == Format::kSafetensors &&
         name.ends_with(detail::kSafetensorsSuffix);
}

// The files that ranks say to have written are there, with all their bytes.
void check_files(const detail::Folder& folder, const Contents& contents) {
  for (const StoredFile& file : contents.files) {
    const detail::File written = folder.open_file(file.name);
    if (const uint64_t bytes = written.size(); bytes != file.bytes) {
      throw_corrupt(
          written.path(), "has " + std::to_string(bytes) +
                              " bytes; its rank has written " +
                              std::to_string(file.bytes) +
                              ": do all ranks see the same folder?");
    }
  }
}

}  // namespace

Save::Save(const std::string& path, const SaveOptions& options)
    : options_(options), parent_([&] {
        check_options(path, options);
        return detail::Folder::open(
            *options.files, detail::split_path(path).parent);
      }()) {
  name_ = detail::split_path(path).name;
  ticket_.path = path;
  ticket_.token = detail::make_token();
  ticket_.format = options.format;
  ticket_.ranks = options.ranks;
  ticket_.is_one_file = is_one_file(name_, options);
  saving_ = detail::saving_name(name_, ticket_.token);
  ticket_.folder = detail::split_path(path).parent + "/" + saving_;
  ticket_text_ = detail::encode_ticket(ticket_);
  detail::clean_leftovers(parent_, name_);
  if (parent_.find(name_)) {
    if (!options.overwrite) {
      throw_usage(
          path, "is there already; save elsewhere, or pass overwrite = true");
    }
    detail::check_removable(parent_, name_);
  }
  parent_.create_folder(saving_);
  folder_.emplace(parent_.open_folder(saving_));
  folder_->lock();
}

Save::~Save() {
  if (!is_committed_) {
    try {
      detail::remove_checkpoint(parent_, saving_);
    } catch (const std::exception&) {
      // The next save of this path removes it.
    }
  }
  try {
    if (folder_) {
      folder_->unlock();  // closing does not, where a forked child has it too
    }
  } catch (const std::exception&) {
    // Nothing depends on it.
  }
}

void Save::write_index(Contents contents) {
  switch (options_.format) {
    case Format::kTessera:
      detail::write_tessera_manifest(*folder_, std::move(contents));
      break;
    case Format::kDcp:
      detail::write_dcp_metadata(*folder_, std::move(contents));
      break;
    case Format::kSafetensors:
      single_file_ = detail::finish_safetensors(*folder_, ticket_, contents);
      break;
  }
  folder_->sync();
}

// A rename replaces a file at once; the folder that it lay in is empty then.
std::string Save::publish_file(const std::string& name) {
  if (const auto kind = parent_.find(name_)) {
    if (!options_.overwrite || *kind != FileStatus::Kind::kFile) {
      throw_usage(
          ticket_.path,
          "is there already; save elsewhere, or pass overwrite = true");
    }
  }
  folder_->move_file(name, parent_, name_);
  return saving_;
}

std::vector<std::string> Save::wait_for_parts(
    std::string own, const std::atomic<bool>& stops) {
  std::vector<std::string> all =
      detail::wait_for_parts(*folder_, options_.ranks, stops);
  all.insert(all.begin(), std::move(own));
  return all;
}

std::vector<std::string> Save::commit(const std::vector<std::string>& records) {
  if (is_committed_) {
    throw_usage(ticket_.path, "a save is committed once");
  }
  Contents contents = detail::merge_records(ticket_, records);
  check_files(*folder_, contents);
  write_index(std::move(contents));
  const std::string old =
      single_file_.empty()
          ? detail::publish(parent_, saving_, name_, options_.overwrite)
          : publish_file(single_file_);
  is_committed_ = true;
  parent_.sync();
  std::vector<std::string> left;
  try {
    if (!old.empty()) {
      detail::remove_checkpoint(parent_, old);
    }
  } catch (const Error& error) {
    left.emplace_back(error.what());
  }
  return left;
}

std::unique_ptr<RankWriter> open_rank_writer(
    std::string_view ticket_text, int64_t rank, RankContents contents,
    FileSystem& files) {
  SaveTicket ticket = detail::decode_ticket(ticket_text);
  const detail::Folder folder = detail::Folder::open(files, ticket.folder);
  switch (ticket.format) {
    case Format::kTessera:
      return detail::write_tessera(
          folder, std::move(ticket), rank, std::move(contents));
    case Format::kDcp:
      return detail::write_dcp(
          folder, std::move(ticket), rank, std::move(contents));
    case Format::kSafetensors:
      break;
  }
  return detail::write_safetensors(
      folder, std::move(ticket), rank, std::move(contents));
}

}  // namespace tessera::io
