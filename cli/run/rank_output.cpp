#include "rank_output.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <utility>

#include "cli/text/terminal.h"

namespace tessera::cli {
namespace {

// A line that is longer is passed on in parts.
constexpr size_t kLongestLine = size_t{1} << 20;

// More than a pipe holds: what comes after that is not from the rank.
constexpr int kMostPieces = 16;

// Two ways into one pipe or terminal; those into one file never wait.
bool same_pipe(int a, int b) {
  struct stat of_a {};
  struct stat of_b {};
  return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 &&
         of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino &&
         !S_ISREG(of_a.st_mode);
}

/// Returns "[2] ", coloured where `fd` is a terminal.
std::string rank_prefix(int rank, int fd) {
  constexpr std::array kColors = {"36", "33", "32", "35", "34", "31"};
  const std::string text = "[" + std::to_string(rank) + "] ";
  if (!detect_terminal(fd, false).color) {
    return text;
  }
  const char* color = kColors[static_cast<size_t>(rank) % kColors.size()];
  return "\x1b[" + std::string(color) + "m" + text + "\x1b[0m";
}

}  // namespace

void LineSink::add(const std::string& lines) {
  if (!broken_) {
    text_ += lines;
    flush();
  }
}

// The file is shared with others and may not be made non-blocking. A pipe that
// poll() calls writable takes PIPE_BUF bytes at once.
void LineSink::flush() {
  while (waits()) {
    pollfd ready{.fd = fd_, .events = POLLOUT, .revents = 0};
    if (poll(&ready, 1, 0) != 1) {
      return;
    }
    const size_t piece = std::min(text_.size() - begin_, size_t{PIPE_BUF});
    const ssize_t wrote = write(fd_, text_.data() + begin_, piece);
    if (wrote < 0 && (errno == EINTR || errno == EAGAIN)) {
      return;
    }
    broken_ = wrote < 0;
    begin_ = broken_ ? text_.size() : begin_ + static_cast<size_t>(wrote);
  }
  text_.clear();
  begin_ = 0;
}

RankStream::RankStream(int from, LineSink& to, std::string prefix)
    : from_(from), to_(&to), prefix_(std::move(prefix)) {}

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
  write_lines(/*also_unfinished=*/from_ < 0);
}

bool RankStream::finish() {
  for (int i = 0; i < kMostPieces && !to_->waits() && from_ >= 0; ++i) {
    if (!read_some()) {
      break;
    }
    write_lines(/*also_unfinished=*/false);
  }
  if (to_->waits()) {
    return false;
  }
  write_lines(/*also_unfinished=*/true);
  return !to_->waits();
}

void RankStream::write_lines(bool also_unfinished) {
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
  to_->add(lines);
  // As in a pipeline, a rank whose output nobody reads gets SIGPIPE.
  if (to_->broken() && from_ >= 0) {
    close(std::exchange(from_, -1));
  }
}

RankOutput::RankOutput(bool prefixed)
    : prefixed_(prefixed),
      out_(std::make_shared<LineSink>(STDOUT_FILENO)),
      error_(
          same_pipe(STDOUT_FILENO, STDERR_FILENO)
              ? out_
              : std::make_shared<LineSink>(STDERR_FILENO)) {}

void RankOutput::add(int from, int rank, int to) {
  streams_.emplace_back(
      from, to == STDOUT_FILENO ? *out_ : *error_,
      prefixed_ ? rank_prefix(rank, to) : "");
}

void RankOutput::poll_for(std::vector<pollfd>& files) const {
  for (const RankStream& stream : streams_) {
    if (stream.fd() >= 0) {
      files.push_back({.fd = stream.fd(), .events = POLLIN, .revents = 0});
    }
  }
  poll_for_room(files);
}

void RankOutput::poll_for_room(std::vector<pollfd>& files) const {
  for (const auto& sink : {out_, error_}) {
    if (sink->waits()) {
      files.push_back({.fd = sink->fd(), .events = POLLOUT, .revents = 0});
    }
  }
}

// Only what is ready: a named pipe that nobody has opened yet reads as ended.
void RankOutput::forward(const std::vector<int>& ready) {
  for (const auto& sink : {out_, error_}) {
    sink->flush();
  }
  for (RankStream& stream : streams_) {
    if (stream.fd() >= 0 &&
        std::find(ready.begin(), ready.end(), stream.fd()) != ready.end()) {
      stream.forward();
    }
  }
}

bool RankOutput::finish() {
  for (const auto& sink : {out_, error_}) {
    sink->flush();
  }
  bool done = true;
  for (RankStream& stream : streams_) {
    done = stream.finish() && done;
  }
  return done && !out_->waits() && !error_->waits();
}

}  // namespace tessera::cli
