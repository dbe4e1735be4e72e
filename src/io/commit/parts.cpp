#include <io/commit/parts.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include <base/packed.h>
#include <io/files/error.h>
#include <io/model/ticket.h>

namespace tessera::detail::inline io_layer {

namespace {

constexpr std::chrono::microseconds kShortestPause{100};
constexpr std::chrono::microseconds kLongestPause{20'000};
constexpr size_t kDigits = 5;

std::string part_name(int64_t rank) {
  std::string digits = std::to_string(rank);
  digits.insert(0, digits.size() < kDigits ? kDigits - digits.size() : 0, '0');
  return "rank_" + digits + ".part";
}

Folder open_saving_folder(std::string_view ticket, io::FileSystem& files) {
  return Folder::open(files, decode_ticket(ticket).folder);
}

void wait_for_lock(const File& file, const std::atomic<bool>& stops) {
  std::chrono::microseconds pause = kShortestPause;
  while (!file.lock()) {
    if (stops) {
      throw io::Error(
          io::ErrorKind::kSystem, file.path(),
          "its rank is still writing, and the save is given up");
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

// Returns the records of a rank, or "" where it has left none.
std::string wait_for_part(
    const Folder& folder, int64_t rank, const std::atomic<bool>& stops) {
  const File file = folder.open_file_to_change(part_name(rank));
  wait_for_lock(file, stops);
  const std::string bytes = file.read_all(std::numeric_limits<uint64_t>::max());
  try {
    base::PackedReader in(bytes);
    std::string records(in.text());
    in.finish();
    return records;
  } catch (const base::PackedError&) {
    return "";
  }
}

}  // namespace

std::vector<std::string> wait_for_parts(
    const Folder& folder, int64_t ranks, const std::atomic<bool>& stops) {
  std::vector<std::string> all;
  std::vector<int64_t> failed;
  for (int64_t rank = 1; rank < ranks; ++rank) {
    all.push_back(wait_for_part(folder, rank, stops));
    if (all.back().empty()) {
      failed.push_back(rank);
    }
  }
  if (!failed.empty()) {
    throw io::Error(
        io::ErrorKind::kSystem, folder.path(),
        "rank " + std::to_string(failed[0]) +
            " has not written its part: it has failed or ended");
  }
  for (int64_t rank = 1; rank < ranks; ++rank) {
    folder.remove_file(part_name(rank));
  }
  return all;
}

}  // namespace tessera::detail::inline io_layer

namespace tessera::io {

RankPart::RankPart(std::string_view ticket, int64_t rank, FileSystem& files)
    : folder_(detail::open_saving_folder(ticket, files)),
      file_(folder_.create_file(detail::part_name(rank))) {
  is_locked_ = file_.lock();
}

RankPart::~RankPart() {
  give_up();
}

void RankPart::give_up() {
  try {
    if (std::exchange(is_locked_, false)) {
      file_.unlock();
    }
  } catch (const std::exception&) {
    // Closing the file unlocks it too, where no child has it.
  }
}

void RankPart::leave(const std::string& records) {
  base::PackedWriter out;
  out.text(records);
  const std::string bytes = out.take();
  file_.write(bytes.data(), bytes.size(), 0);
  if (std::exchange(is_locked_, false)) {
    file_.unlock();
  }
}

bool RankPart::is_save_over() {
  if (!is_over_ && folder_.lock()) {
    folder_.unlock();
    is_over_ = true;
  }
  return is_over_;
}

void check_part(std::string_view ticket, int64_t rank, FileSystem& files) {
  const detail::Folder folder = detail::open_saving_folder(ticket, files);
  const std::string name = detail::part_name(rank);
  const std::string who = "the file of rank " + std::to_string(rank);
  if (!folder.find(name)) {
    throw_usage(
        folder.path_of(name),
        who +
            " is not seen here; all ranks must write into one folder of one "
            "file system");
  }
  if (folder.open_file_to_change(name).lock()) {
    throw_unsupported(
        folder.path_of(name),
        who +
            " is locked there and not here; an asynchronous save needs a "
            "file system whose locks (flock) all ranks see: use save()");
  }
}

}  // namespace tessera::io
