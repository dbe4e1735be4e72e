// What ranks print, on its way through the launcher: whole lines, each with the
// number of its rank before it.
#pragma once

#include <string>

namespace tessera::cli {

/// One stream of one rank.
class RankStream {
 public:
  /// Takes over `from`, which must not block.
  RankStream(int from, int to, std::string prefix);
  ~RankStream();
  RankStream(RankStream&& other) noexcept;
  RankStream(const RankStream&) = delete;
  RankStream& operator=(const RankStream&) = delete;

  /// Returns what to poll; -1 once the rank has closed it.
  int fd() const { return from_; }
  /// Passes on the lines that are there, the last one also unfinished when the
  /// stream has ended.
  void forward();
  /// Passes on all that is there and an unfinished line.
  void finish();

 private:
  /// False when nothing was there, or it has ended.
  bool read_some();
  bool write_lines(bool also_unfinished);

  int from_;
  int to_;
  std::string prefix_;
  std::string text_;  // not yet written
};

/// Returns "[2] ", coloured where `fd` is a terminal.
std::string rank_prefix(int rank, int fd);

}  // namespace tessera::cli
