// Saving a checkpoint by several ranks. Ranks talk to each other by other
// means; here they get and give bytes.
//
//   rank 0     io::Save save(path, {.format = Format::kDcp, .ranks = 4});
//              send save.ticket() to all
//   each rank  auto writer = io::open_rank_writer(ticket, rank, contents);
//              writer->append(i, bytes, size) for each chunk
//              send writer->finish() to rank 0
//   rank 0     save.commit(records of all ranks);
//
// Ranks that must not talk, since they write beside the program, leave their
// records in files instead (Note [Agreement by files], commit/parts.h):
//
//   the others  RankPart part(ticket, rank);  part.leave(writer->finish());
//   rank 0      save.commit(save.wait_for_parts(writer->finish()));
//
// Nothing is visible until commit() has renamed (Note [One rename commits],
// publish.h). A Save that is destroyed without it removes what was written.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <io/commit/parts.h>
#include <io/files/file_system.h>
#include <io/files/folder.h>
#include <io/model/writer.h>

namespace tessera::io {

struct SaveOptions {
  Format format = Format::kTessera;
  int64_t ranks = 1;
  /// Replaces the checkpoint that is there, once the new one is complete.
  bool overwrite = false;
  FileSystem* files = &system_files();
};

class Save {
 public:
  /// Removes what crashed saves of this path have left, and makes the folder to
  /// write into. Throws Error (kUsage) where something is at the path that may
  /// not be overwritten, or another save of it is under way. A path that ends
  /// in
  /// ".safetensors" is one file, for that format and one rank.
  Save(const std::string& path, const SaveOptions& options);
  ~Save();

  /// Returns what all ranks need to open their writers.
  const std::string& ticket() const { return ticket_text_; }

  /// Returns the records of all ranks once the others have left theirs in their
  /// parts; `own` are those of rank 0. Throws where a rank has failed or ended,
  /// and where one still writes when `stops` is set.
  std::vector<std::string> wait_for_parts(
      std::string own, const std::atomic<bool>& stops = false);

  /// Checks that all ranks have written a part of one whole, and makes it the
  /// checkpoint. Returns what could not be cleaned up afterwards: messages
  /// about the old checkpoint, which the next save removes; mostly none.
  std::vector<std::string> commit(const std::vector<std::string>& records);

 private:
  void write_index(Contents contents);
  std::string publish_file(const std::string& name);

  SaveOptions options_;
  SaveTicket ticket_;
  std::string ticket_text_;
  std::string name_;  // in the parent folder
  std::string saving_;
  detail::Folder parent_;
  std::optional<detail::Folder> folder_;  // locked
  std::string single_file_;
  bool is_committed_ = false;
};

/// Opens the writer of one rank of a save.
std::unique_ptr<RankWriter> open_rank_writer(
    std::string_view ticket, int64_t rank, RankContents contents,
    FileSystem& files = system_files());

}  // namespace tessera::io
