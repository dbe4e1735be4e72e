// How the ranks of a save agree without talking: by files.
//
// Note [Agreement by files]
// An asynchronous save writes beside the program, so its threads must not use
// the program's communicators: their calls would stand between the program's
// own, in an order that differs from rank to rank. And what is committed only
// at a later call of the program is lost where it ends before. So the ranks
// agree in the folder that they write into anyway:
//
//   in the call     each rank but the first makes rank_00003.part and locks it
//   when it has written and synced its files, it writes its records there,
//   behind their length, and unlocks it
//   rank 0, when it has written its own files, takes the lock of each part in
//   turn; then it has all records, removes the parts, and commits
//
// A lock ends with its process. So a part that can be locked and holds no
// records is that of a rank which has failed or died, and rank 0 gives the save
// up: nobody waits for the dead, and no file needs space on a full disk to say
// that something went wrong. Only rank 0 waits for others, and only one rename
// commits (Note [One rename commits], publish.h): whoever dies, and when, there
// is the old checkpoint or the new one. Parts need no sync: rank 0 reads them
// as the file system shows them, and what they speak of is synced.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <io/files/file_system.h>
#include <io/files/folder.h>

namespace tessera::io {

/// The part of a rank other than the first, from the call on until it has
/// written. Destroyed without leave(), it says that the rank has failed. For
/// one thread at a time, but is_save_over(), which any may call.
class RankPart {
 public:
  /// `ticket` is that of io::Save.
  RankPart(
      std::string_view ticket, int64_t rank,
      FileSystem& files = system_files());
  ~RankPart();
  RankPart(const RankPart&) = delete;
  RankPart& operator=(const RankPart&) = delete;

  /// Leaves the records of a RankWriter that has finished.
  void leave(const std::string& records);
  /// Says that the rank has failed.
  void give_up();
  /// Tells whether the save is complete, or has failed, or its first rank has
  /// ended.
  bool is_save_over();

 private:
  detail::Folder folder_;
  detail::File file_;
  bool is_locked_ = false;
  std::atomic<bool> is_over_ = false;
};

/// Throws unless another rank's part is there, and locked: where the ranks do
/// not write into one folder, or the file system does not share locks.
void check_part(
    std::string_view ticket, int64_t rank, FileSystem& files = system_files());

}  // namespace tessera::io

namespace tessera::detail::inline io_layer {

/// Returns the records of ranks 1 to `ranks` - 1 when all have left them, and
/// removes the parts. When all have ended and one has left none, throws which;
/// and when it has to wait though `stops` is set.
std::vector<std::string> wait_for_parts(
    const Folder& folder, int64_t ranks, const std::atomic<bool>& stops);

}  // namespace tessera::detail::inline io_layer
