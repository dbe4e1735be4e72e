// Curves drawn with characters.
#pragma once

#include <string>
#include <vector>

#include "cli/text/terminal.h"

namespace tessera::cli {

/// A curve and the words above it.
struct Curve {
  std::string title;
  std::vector<double> values;
};

/// Draws curves side by side with one vertical scale; values are steps 1, 2,
/// ... Braille dots in UTF-8, stars in ASCII.
std::string draw_curves(
    const std::vector<Curve>& curves, const Terminal& terminal);

/// Draws "[#####.....]" with `done` of `total` filled.
std::string draw_bar(int done, int total, int width, const Terminal& terminal);

}  // namespace tessera::cli
