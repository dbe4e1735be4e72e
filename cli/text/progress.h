// How far a long command is, on standard error.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "terminal.h"

namespace tessera::cli {

/// A terminal has one line with a bar, drawn again; other outputs get a line
/// about every 20 s (TESSERA_PROGRESS_SECONDS), and with --progress one for
/// every tenth.
class Progress {
 public:
  /// `title` is what is done: "converting"; `total` is in bytes, or in what
  /// `unit` names: "rounds".
  Progress(
      std::string title, uint64_t total, bool has_tenths,
      std::string unit = "");
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Says that so much more is done.
  void advance(uint64_t count = 1);

 private:
  using Clock = std::chrono::steady_clock;

  std::string line() const;
  void draw_on_terminal();
  void draw_lines();

  std::string title_;
  uint64_t total_;
  uint64_t done_ = 0;
  bool has_tenths_;
  std::string unit_;
  std::chrono::duration<double> pause_;
  Terminal terminal_;
  Clock::time_point begin_;
  Clock::time_point drawn_;
  bool is_drawn_ = false;  // on a terminal
  uint64_t tenths_ = 0;
};

}  // namespace tessera::cli
