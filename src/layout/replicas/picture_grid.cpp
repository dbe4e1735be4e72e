#include "layout/replicas/picture_grid.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include <tessera/layout/replica_groups.h>

#include "base/text_columns.h"
#include "layout/arithmetic.h"
#include "layout/replicas/picture_table.h"
#include "layout/replicas/shard_text.h"

namespace tessera::detail::inline layout_layer {
namespace {

using base::center;
using base::columns;
using base::pad_left;
using base::repeat;

constexpr int kMostGridRows = 24;  // drawn in full up to this
constexpr int kShortRows = 8;      // else shortened to this
constexpr int kTail = 2;  // intervals kept at the end of a shortened axis
constexpr int kMostGridColumns = 64;

/// One axis of the picture: ranges of indices with one owner each. When it was
/// shortened, `gap` is the position before which ranges are missing.
struct GridAxis {
  std::vector<Run> ranges;
  std::optional<size_t> gap;
};

/// Returns the range around `index` of one tensor dim that its owner holds.
Run range_at(const Layout& layout, size_t dim, int64_t index) {
  std::vector<int64_t> element(layout.shape().size(), 0);
  element[dim] = index;
  Coordinate owner = layout.owner(element);
  std::replace(owner.begin(), owner.end(), int64_t{-1}, int64_t{0});
  for (const Run& run : layout.runs(static_cast<int64_t>(dim), owner)) {
    if (run.begin <= index && index < run.end) {
      return run;
    }
  }
  return {index, index + 1};
}

/// Walks from both ends, so a long axis costs no more than what is drawn.
GridAxis axis_of(const Layout& layout, size_t dim, int most) {
  const int64_t length = layout.shape()[dim];
  GridAxis axis;
  for (int64_t at = 0; at < length; at = axis.ranges.back().end) {
    if (static_cast<int>(axis.ranges.size()) == most) {
      axis.gap = most - kTail;
      break;
    }
    axis.ranges.push_back(range_at(layout, dim, at));
  }
  if (axis.gap) {
    int64_t end = length;
    for (int i = most - 1; i >= most - kTail; --i) {
      axis.ranges[static_cast<size_t>(i)] = range_at(layout, dim, end - 1);
      end = axis.ranges[static_cast<size_t>(i)].begin;
    }
  }
  return axis;
}

std::string range_text(const Run& run) {
  return std::to_string(run.begin) + ":" + std::to_string(run.end);
}

struct GridCell {
  std::string text;
  int64_t shard;  // cells of one shard share a colour
};

/// The finished content, before it is drawn.
struct PictureGrid {
  GridAxis rows, cols;
  std::vector<std::vector<GridCell>> cells;
  std::vector<int> widths;  // per column
  int label_width = 0;

  int width() const {
    int total = label_width + 4 + (cols.gap ? 4 : 0);
    for (const int w : widths) {
      total += w + 1;
    }
    return total;
  }
};

GridCell cell_at(const Layout& layout, const std::vector<int64_t>& element) {
  Coordinate owner = layout.owner(element);
  std::replace(owner.begin(), owner.end(), int64_t{-1}, int64_t{0});
  return {replicas_text(layout, owner), shard_index(layout, owner)};
}

PictureGrid grid_of(const Layout& layout, int most_columns) {
  const bool flat = layout.shape().size() == 1;
  PictureGrid grid;
  grid.rows =
      flat ? GridAxis{{Run{0, 1}}, {}} : axis_of(layout, 0, kMostGridRows);
  if (grid.rows.gap) {
    grid.rows = axis_of(layout, 0, kShortRows);
  }
  grid.cols = axis_of(layout, flat ? 0 : 1, most_columns);
  for (const Run& col : grid.cols.ranges) {
    grid.widths.push_back(columns(range_text(col)) + 2);
  }
  for (const Run& row : grid.rows.ranges) {
    std::vector<GridCell> cells;
    for (size_t c = 0; c < grid.cols.ranges.size(); ++c) {
      const int64_t col = grid.cols.ranges[c].begin;
      cells.push_back(cell_at(
          layout, flat ? std::vector<int64_t>{col}
                       : std::vector<int64_t>{row.begin, col}));
      grid.widths[c] = std::max(grid.widths[c], columns(cells[c].text) + 2);
    }
    grid.cells.push_back(std::move(cells));
    grid.label_width =
        flat ? 0 : std::max(grid.label_width, columns(range_text(row)));
  }
  return grid;
}

/// Characters of a rule: left end, crossing, right end, line.
struct GridRule {
  const char *left, *cross, *right, *line;
};

class GridPainter {
 public:
  GridPainter(const PictureGrid& grid, const VisualizeOptions& options)
      : grid_(grid), utf8_(!options.ascii), color_(options.color) {}

  std::string paint() const {
    const GridRule ascii{"+", "+", "+", "-"};
    std::string text =
        header() + rule(utf8_ ? GridRule{"┌", "┬", "┐", "─"} : ascii);
    for (size_t r = 0; r < grid_.cells.size(); ++r) {
      if (r > 0) {
        text += rule(utf8_ ? GridRule{"├", "┼", "┤", "─"} : ascii);
      }
      if (grid_.rows.gap == r) {
        text += gap_row() + rule(utf8_ ? GridRule{"├", "┼", "┤", "─"} : ascii);
      }
      text += row(r);
    }
    return text + rule(utf8_ ? GridRule{"└", "┴", "┘", "─"} : ascii);
  }

 private:
  std::string indent(const std::string& label) const {
    return "  " + pad_left(label, grid_.label_width) +
           (grid_.label_width == 0 ? "" : " ");
  }

  std::string header() const {
    std::string text = indent("") + " ";
    for (size_t c = 0; c < grid_.widths.size(); ++c) {
      text += grid_.cols.gap == c ? "    " : "";
      text += center(range_text(grid_.cols.ranges[c]), grid_.widths[c]) + " ";
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text + "\n";
  }

  std::string rule(const GridRule& rule) const {
    std::string text = indent("") + rule.left;
    for (size_t c = 0; c < grid_.widths.size(); ++c) {
      if (grid_.cols.gap == c) {
        text += repeat(rule.line, 3) + rule.cross;
      }
      text += repeat(rule.line, grid_.widths[c]) +
              (c + 1 < grid_.widths.size() ? rule.cross : rule.right);
    }
    return text + "\n";
  }

  std::string row(size_t r) const {
    const std::string bar = utf8_ ? "│" : "|";
    const bool flat = grid_.label_width == 0;
    std::string text =
        indent(flat ? "" : range_text(grid_.rows.ranges[r])) + bar;
    for (size_t c = 0; c < grid_.widths.size(); ++c) {
      if (grid_.cols.gap == c) {
        text += (utf8_ ? " … " : "...") + bar;
      }
      const GridCell& cell = grid_.cells[r][c];
      text += colored(center(cell.text, grid_.widths[c]), cell.shard) + bar;
    }
    return text + "\n";
  }

  std::string gap_row() const {
    const std::string bar = utf8_ ? "│" : "|";
    const std::string dots = utf8_ ? "⋮" : ":";
    std::string text = indent(dots) + bar;
    for (size_t c = 0; c < grid_.widths.size(); ++c) {
      if (grid_.cols.gap == c) {
        text += (utf8_ ? " ⋱ " : "   ") + bar;
      }
      text += center(dots, grid_.widths[c]) + bar;
    }
    return text + "\n";
  }

  std::string colored(const std::string& text, int64_t shard) const {
    // Twelve light backgrounds of the 256-colour palette, far apart in hue.
    static constexpr int kPalette[] = {117, 216, 150, 183, 222, 152,
                                       211, 186, 147, 180, 115, 224};
    if (!color_) {
      return text;
    }
    const int color = kPalette[shard % 12];
    return "\x1b[30;48;5;" + std::to_string(color) + "m" + text + "\x1b[0m";
  }

  const PictureGrid& grid_;
  bool utf8_;
  bool color_;
};

std::string legend(const Layout& layout) {
  const bool copies = replica_count(layout) > 1;
  if (layout.has_partial()) {
    return "\n" + reduction_name(layout) +
           "(a,b): each of these ranks holds one term" +
           (copies ? "; = stands between copies\n" : "\n");
  }
  return copies ? "\nranks in one cell hold copies\n" : "";
}

}  // namespace

bool fits_grid(const Layout& layout) {
  const auto& shape = layout.shape();
  return (shape.size() == 1 || shape.size() == 2) &&
         checked_product(shape) != int64_t{0};
}

std::string draw_grid(const Layout& layout, const VisualizeOptions& options) {
  PictureGrid grid = grid_of(layout, kMostGridColumns);
  while (grid.width() > options.width &&
         grid.cols.ranges.size() > size_t{kTail + 1}) {
    grid = grid_of(layout, static_cast<int>(grid.cols.ranges.size()) - 1);
  }
  if (layout.shape().size() == 1 && grid.cols.gap) {
    return draw_table(layout, options);  // one long row says less
  }
  const bool shortened = grid.cols.gap || grid.rows.gap;
  return GridPainter(grid, options).paint() + legend(layout) +
         (shortened && !options.shortened_note.empty()
              ? "\n" + options.shortened_note + "\n"
              : "");
}

}  // namespace tessera::detail::inline layout_layer
