#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "ckpt.h"

namespace tessera::cli {

Progress::Progress(std::string title, uint64_t total, bool is_asked_for)
    : title_(std::move(title)),
      total_(total),
      terminal_(detect_terminal(STDERR_FILENO, false)),
      begin_(Clock::now()),
      drawn_(begin_) {
  is_shown_ = is_asked_for || terminal_.is_terminal;
}

Progress::~Progress() {
  if (is_shown_ && terminal_.is_terminal) {
    std::fprintf(stderr, "\r%s\r", repeat(" ", terminal_.width - 1).c_str());
  }
}

void Progress::advance(uint64_t bytes) {
  done_ += bytes;
  if (!is_shown_ || total_ == 0) {
    return;
  }
  terminal_.is_terminal ? draw_on_terminal() : draw_tenths();
}

std::string Progress::line() const {
  const double seconds =
      std::chrono::duration<double>(Clock::now() - begin_).count();
  const double share = static_cast<double>(done_) / static_cast<double>(total_);
  const auto speed = static_cast<uint64_t>(
      seconds > 0 ? static_cast<double>(done_) / seconds : 0);
  return title_ + " " + pad_left(std::to_string(int(share * 100)), 3) + " %  " +
         readable_bytes(done_) + " of " + readable_bytes(total_) + "  " +
         readable_bytes(speed) + "/s";
}

void Progress::draw_on_terminal() {
  constexpr std::chrono::milliseconds kPause{100};
  if (Clock::now() - drawn_ < kPause) {
    return;
  }
  drawn_ = Clock::now();
  constexpr int kText = 64;  // columns, so that all lines have one length
  const int bar = std::min(terminal_.width - kText - 2, 30);
  std::string text = pad_right(line(), kText);
  if (bar >= 6) {
    const auto full = static_cast<int>(done_ * uint64_t(bar) / total_);
    text += repeat(terminal_.utf8 ? "█" : "#", full) +
            repeat(terminal_.utf8 ? "░" : ".", bar - full);
  } else {
    text.resize(
        std::min(text.size(), static_cast<size_t>(terminal_.width - 1)));
  }
  std::fprintf(stderr, "\r%s", text.c_str());
}

void Progress::draw_tenths() {
  const uint64_t tenths = done_ * 10 / total_;
  if (tenths > tenths_) {
    tenths_ = tenths;
    std::fprintf(stderr, "%s\n", line().c_str());
  }
}

}  // namespace tessera::cli
