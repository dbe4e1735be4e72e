#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace tessera::cli {

namespace {

// As set-up and builds have it.
double seconds_between_lines() {
  const char* text = std::getenv("TESSERA_PROGRESS_SECONDS");
  char* end = nullptr;
  const double seconds = text == nullptr ? 20 : std::strtod(text, &end);
  return end == text ? 20 : seconds;
}

}  // namespace

Progress::Progress(
    std::string title, uint64_t total, bool has_tenths, std::string unit)
    : title_(std::move(title)),
      total_(total),
      has_tenths_(has_tenths),
      unit_(std::move(unit)),
      pause_(seconds_between_lines()),
      terminal_(detect_terminal(STDERR_FILENO, false)),
      begin_(Clock::now()),
      drawn_(begin_) {
  if (terminal_.is_terminal && !unit_.empty() && total_ != 0) {
    draw_on_terminal();  // rounds may take long
  }
}

Progress::~Progress() {
  if (terminal_.is_terminal) {
    std::fprintf(stderr, "\r%s\r", repeat(" ", terminal_.width - 1).c_str());
  }
}

void Progress::advance(uint64_t count) {
  done_ += count;
  if (total_ != 0) {
    terminal_.is_terminal ? draw_on_terminal() : draw_lines();
  }
}

std::string Progress::line() const {
  const double seconds =
      std::chrono::duration<double>(Clock::now() - begin_).count();
  const double share = static_cast<double>(done_) / static_cast<double>(total_);
  const std::string percent =
      title_ + " " + pad_left(std::to_string(int(share * 100)), 3) + " %  ";
  if (!unit_.empty()) {
    return percent + std::to_string(done_) + " of " + std::to_string(total_) +
           " " + unit_ + ", " + std::to_string(int64_t(seconds)) + " s";
  }
  const auto speed = static_cast<uint64_t>(
      seconds > 0 ? static_cast<double>(done_) / seconds : 0);
  return percent + readable_bytes(done_) + " of " + readable_bytes(total_) +
         "  " + readable_bytes(speed) + "/s";
}

void Progress::draw_on_terminal() {
  constexpr std::chrono::milliseconds kPause{100};
  if (std::exchange(is_drawn_, true) && Clock::now() - drawn_ < kPause) {
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

void Progress::draw_lines() {
  const uint64_t tenths = done_ * 10 / total_;
  const bool is_due = Clock::now() - drawn_ >= pause_;
  if (is_due || (has_tenths_ && tenths > tenths_)) {
    drawn_ = Clock::now();
    std::fprintf(stderr, "%s\n", line().c_str());
  }
  tenths_ = tenths;
}

}  // namespace tessera::cli
