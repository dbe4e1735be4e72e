#include "rank_output.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "terminal.h"

namespace tessera::cli {
namespace {

// A line that is longer is passed on in parts.
constexpr size_t kLongestLine = size_t{1} << 20;

/// Writes all of it; false when nobody reads it.
bool write_all(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno != EINTR && errno != EAGAIN) {
      return false;
    }
    if (wrote < 0) {
      pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
      poll(&ready, 1, -1);
    }
    done += wrote > 0 ? static_cast<size_t>(wrote) : 0;
  }
  return true;
}

}  // namespace

RankStream::RankStream(int from, int to, std::string prefix)
    : from_(from), to_(to), prefix_(std::move(prefix)) {}

RankStream::RankStream(RankStream&& other) noexcept
    : from_(std::exchange(other.from_, -1)),
      to_(other.to_),
      prefix_(std::move(other.prefix_)),
      text_(std::move(other.text_)) {}

RankStream::~RankStream() {
  if (from_ >= 0) {
    close(from_);
  }
}

bool RankStream::read_some() {
  std::array<char, 65536> piece;
  const ssize_t got = read(from_, piece.data(), piece.size());
  if (got == 0) {
    close(std::exchange(from_, -1));
  }
  if (got > 0) {
    text_.append(piece.data(), static_cast<size_t>(got));
  }
  return got > 0;
}

void RankStream::forward() {
  read_some();
  // As in a pipeline, a rank whose output nobody reads gets SIGPIPE.
  if (!write_lines(/*also_unfinished=*/from_ < 0) && from_ >= 0) {
    close(std::exchange(from_, -1));
  }
}

void RankStream::finish() {
  while (from_ >= 0 && read_some() && write_lines(false)) {
  }
  write_lines(/*also_unfinished=*/true);
}

bool RankStream::write_lines(bool also_unfinished) {
  std::string lines;
  size_t begin = 0;
  for (size_t end = 0; (end = text_.find('\n', begin)) != std::string::npos;) {
    lines += prefix_ + text_.substr(begin, end + 1 - begin);
    begin = end + 1;
  }
  text_.erase(0, begin);
  if (!text_.empty() && (also_unfinished || text_.size() > kLongestLine)) {
    lines += prefix_ + std::exchange(text_, "") + "\n";
  }
  return write_all(to_, lines);
}

std::string rank_prefix(int rank, int fd) {
  constexpr std::array kColors = {"36", "33", "32", "35", "34", "31"};
  const std::string text = "[" + std::to_string(rank) + "] ";
  if (!detect_terminal(fd, false).color) {
    return text;
  }
  const char* color = kColors[static_cast<size_t>(rank) % kColors.size()];
  return "\x1b[" + std::string(color) + "m" + text + "\x1b[0m";
}

}  // namespace tessera::cli
