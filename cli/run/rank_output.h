// What ranks print, on its way through the launcher: whole lines, each with the
// number of its rank before it.
//
// Nothing here waits: a reader that takes its time must not keep the launcher
// from hearing of ranks and signals. What it has not taken stays in a LineSink,
// and ranks that write there are not read until it is gone.
#pragma once

#include <poll.h>

#include <memory>
#include <string>
#include <vector>

namespace tessera::cli {

/// Where lines go.
class LineSink {
 public:
  explicit LineSink(int fd) : fd_(fd) {}

  int fd() const { return fd_; }
  /// Takes whole lines, and passes on what it can.
  void add(const std::string& lines);
  /// Passes on what can be written without waiting.
  void flush();
  /// True while the reader has not taken all.
  bool waits() const { return begin_ < text_.size(); }
  /// True once nobody reads.
  bool broken() const { return broken_; }

 private:
  int fd_;
  std::string text_;
  size_t begin_ = 0;  // of what is not yet written
  bool broken_ = false;
};

/// One stream of one rank.
class RankStream {
 public:
  /// Takes over `from`, which must not block.
  RankStream(int from, LineSink& to, std::string prefix);
  ~RankStream();
  RankStream(RankStream&& other) noexcept;
  RankStream(const RankStream&) = delete;
  RankStream& operator=(const RankStream&) = delete;

  /// Returns what to poll; -1 once the rank has closed it, and while the reader
  /// has not taken what was there before.
  int fd() const { return to_->waits() ? -1 : from_; }
  /// Passes on the lines that are there, the last one also unfinished when the
  /// stream has ended.
  void forward();
  /// Passes on all that is there and an unfinished line; false when the reader
  /// must take some before that.
  bool finish();

 private:
  /// False when nothing was there, or it has ended.
  bool read_some();
  void write_lines(bool also_unfinished);

  int from_;
  LineSink* to_;
  std::string prefix_;
  std::string text_;  // not yet passed on
};

/// All streams of a job.
class RankOutput {
 public:
  /// `prefixed`: whether lines come with their rank.
  explicit RankOutput(bool prefixed);

  /// Adds a stream of a rank that goes to STDOUT_FILENO or STDERR_FILENO.
  void add(int from, int rank, int to);
  /// Prints the launcher's own words to stderr.
  void say(const std::string& text) { error_->add(text); }

  /// Adds what to wait for: text of ranks, and room for it.
  void poll_for(std::vector<pollfd>& files) const;
  void poll_for_room(std::vector<pollfd>& files) const;
  /// Passes on what is ready; `ready` has what poll() found.
  void forward(const std::vector<int>& ready);
  /// Passes on all that is there, of ranks that have ended; false when the
  /// readers must take some before that.
  bool finish();

 private:
  bool prefixed_;
  std::shared_ptr<LineSink> out_;
  std::shared_ptr<LineSink> error_;  // the same, where both go the same way
  std::vector<RankStream> streams_;
};

}  // namespace tessera::cli
