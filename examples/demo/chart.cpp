#include "chart.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>

namespace tessera::cli {
namespace {

constexpr int kHeight = 10;
constexpr int kLabel = 8;  // columns of the numbers beside the axis

struct Scale {
  double low;
  double high;
};

Scale scale_of(const std::vector<Curve>& curves) {
  Scale scale{0, 0};
  for (const Curve& curve : curves) {
    for (const double value : curve.values) {
      scale.low = std::isfinite(value) ? std::min(scale.low, value) : scale.low;
      scale.high =
          std::isfinite(value) ? std::max(scale.high, value) : scale.high;
    }
  }
  if (scale.high == scale.low) {
    scale.high = scale.low + 1;
  }
  return scale;
}

/// A field of dots, `across` x `down` dots per character.
class Dots {
 public:
  Dots(int width, int across, int down)
      : width_(width),
        across_(across),
        down_(down),
        on_(static_cast<size_t>(width * across * kHeight * down)) {}

  int dots_wide() const { return width_ * across_; }
  int dots_high() const { return kHeight * down_; }
  void set(int x, int y) {
    on_[static_cast<size_t>(y * dots_wide() + x)] = true;
  }
  bool get(int x, int y) const {
    return on_[static_cast<size_t>(y * dots_wide() + x)];
  }

  /// Draws one line of characters.
  std::string line(int row) const {
    std::string text;
    for (int c = 0; c < width_; ++c) {
      text += down_ == 1 ? (get(c, row) ? "*" : " ") : braille(c, row);
    }
    return text;
  }

 private:
  std::string braille(int column, int row) const {
    // Bits of U+2800 + pattern: 1 2 4 64 down the left, 8 16 32 128 the right.
    static constexpr int kBits[2][4] = {{1, 2, 4, 64}, {8, 16, 32, 128}};
    int pattern = 0;
    for (int x = 0; x < 2; ++x) {
      for (int y = 0; y < 4; ++y) {
        pattern |= get(column * 2 + x, row * 4 + y) ? kBits[x][y] : 0;
      }
    }
    if (pattern == 0) {
      return " ";
    }
    // U+2800 .. U+28FF in UTF-8: E2, A0 + high two bits, 80 + low six.
    return {
        static_cast<char>(0xE2), static_cast<char>(0xA0 + (pattern >> 6)),
        static_cast<char>(0x80 + (pattern & 63))};
  }

  int width_, across_, down_;
  std::vector<bool> on_;
};

/// Sets the dots of a curve, joined vertically so that steep falls show.
Dots plot(
    const std::vector<double>& values, const Scale& scale, int width,
    bool braille) {
  Dots dots(width, braille ? 2 : 1, braille ? 4 : 1);
  int previous = -1;
  for (int x = 0; x < dots.dots_wide() && !values.empty(); ++x) {
    const size_t last = values.size() - 1;
    const size_t i = last * static_cast<size_t>(x) /
                     static_cast<size_t>(dots.dots_wide() - 1);
    if (!std::isfinite(values[i])) {
      previous = -1;
      continue;
    }
    const double part = (scale.high - values[i]) / (scale.high - scale.low);
    const int y = static_cast<int>(std::lround(part * (dots.dots_high() - 1)));
    const int from = previous < 0 || !braille ? y : previous;
    for (int k = std::min(from, y); k <= std::max(from, y); ++k) {
      dots.set(x, k);
    }
    previous = y;
  }
  return dots;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

std::string axis_line(int row, const Scale& scale, bool utf8) {
  const bool top = row == 0;
  const bool bottom = row == kHeight - 1;
  const std::string label = top      ? number(scale.high)
                            : bottom ? number(scale.low)
                                     : "";
  const bool tick = top || bottom;
  return pad_left(label, kLabel) +
         (utf8 ? (tick ? " ┤" : " │") : (tick ? " +" : " |"));
}

void trim_end(std::string& text) {
  text.erase(text.find_last_not_of(' ') + 1);
}

}  // namespace

std::string draw_curves(
    const std::vector<Curve>& curves, const Terminal& terminal) {
  const int count = static_cast<int>(curves.size());
  const int panel = std::min(terminal.width, 100) / count;
  const int width = panel - kLabel - 3;
  const Scale scale = scale_of(curves);
  std::vector<std::string> lines(kHeight + 3);
  for (const Curve& curve : curves) {
    const std::string margin(kLabel + 2, ' ');
    lines[0] += pad_right(margin + curve.title, panel);
    const Dots dots = plot(curve.values, scale, width, terminal.utf8);
    for (int row = 0; row < kHeight; ++row) {
      lines[static_cast<size_t>(row) + 1] += pad_right(
          axis_line(row, scale, terminal.utf8) + dots.line(row), panel);
    }
    lines[kHeight + 1] += pad_right(
        std::string(kLabel + 1, ' ') + (terminal.utf8 ? "└" : "+") +
            repeat(terminal.utf8 ? "─" : "-", width),
        panel);
    const std::string last = "step " + std::to_string(curve.values.size());
    lines[kHeight + 2] +=
        pad_right(margin + "1" + pad_left(last, width - 1), panel);
  }
  std::string text;
  for (std::string& line : lines) {
    trim_end(line);
    text += line + "\n";
  }
  return text;
}

std::string draw_bar(int done, int total, int width, const Terminal& terminal) {
  const int filled =
      total == 0 ? width : static_cast<int>(int64_t{width} * done / total);
  return "[" + repeat(terminal.utf8 ? "█" : "#", filled) +
         repeat(terminal.utf8 ? "░" : ".", width - filled) + "]";
}

}  // namespace tessera::cli
