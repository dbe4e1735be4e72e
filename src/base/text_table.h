// A table of text: a header, rows, columns as wide as their widest cell where
// the width allows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <base/text_columns.h>

namespace tessera::base {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header)
      : header_(std::move(header)) {}

  /// Adds a row; missing cells at the end are blank.
  void add(std::vector<std::string> row) {
    row.resize(header_.size());
    rows_.push_back(std::move(row));
  }

  /// Adds a row of dots where rows were left out.
  void add_gap() { rows_.emplace_back(); }

  /// Draws it; the first column is flush right. What is wider than `width`
  /// columns is broken into lines: cells of the widest columns, while names in
  /// the first one get a line of their own.
  std::string draw(int width, bool utf8) const {
    const std::vector<int> widths = fitting_widths(width);
    std::vector<std::string> rule, gap;
    for (const int column : widths) {
      rule.push_back(repeat(utf8 ? "─" : "-", column));
      gap.emplace_back(utf8 ? "⋮" : ":");
    }
    std::string text = draw_row(header_, widths) + draw_row(rule, widths);
    for (const auto& row : rows_) {
      text += draw_row(row.empty() ? gap : row, widths);
    }
    return text;
  }

 private:
  // A column that is broken into lines keeps its longest word up to this, and
  // the names of the first column this.
  static constexpr int kWord = 17;
  static constexpr int kName = 28;
  static constexpr int kLeast = 12;

  static std::string draw_line(
      const std::vector<std::string>& cells, const std::vector<int>& widths) {
    std::string line = "  ";
    for (size_t i = 0; i < cells.size(); ++i) {
      line += i == 0 ? pad_left(cells[i], widths[i])
                     : pad_right(cells[i], widths[i]);
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
  }

  static std::string draw_row(
      std::vector<std::string> cells, const std::vector<int>& widths) {
    std::string text;
    if (columns(cells[0]) > widths[0]) {
      text = "  " + std::exchange(cells[0], "") + "\n";
    }
    std::vector<std::vector<std::string>> lines{{cells[0]}};
    size_t height = 1;
    for (size_t i = 1; i < cells.size(); ++i) {
      lines.push_back(break_lines(cells[i], widths[i]));
      height = std::max(height, lines.back().size());
    }
    for (size_t row = 0; row < height; ++row) {
      std::vector<std::string> line;
      for (const auto& cell : lines) {
        line.push_back(row < cell.size() ? cell[row] : "");
      }
      text += draw_line(line, widths);
    }
    return text;
  }

  static int longest_word(std::string_view text) {
    int longest = 0;
    while (!text.empty()) {
      const size_t end = std::min(text.find(' '), text.size());
      longest = std::max(longest, columns(text.substr(0, end)));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return longest;
  }

  // Makes the widest columns narrower, down to `least`, until they have `room`.
  static void shrink(
      std::vector<int>& widths, const std::vector<int>& least, int room) {
    for (int sum = std::accumulate(widths.begin(), widths.end(), 0); sum > room;
         --sum) {
      size_t widest = widths.size();
      for (size_t i = 0; i < widths.size(); ++i) {
        if (widths[i] > least[i] &&
            (widest == widths.size() || widths[i] > widths[widest])) {
          widest = i;
        }
      }
      if (widest == widths.size()) {
        return;
      }
      --widths[widest];
    }
  }

  std::vector<int> fitting_widths(int width) const {
    std::vector<int> widths, words;
    for (size_t i = 0; i < header_.size(); ++i) {
      widths.push_back(columns(header_[i]));
      words.push_back(longest_word(header_[i]));
      for (const auto& row : rows_) {
        if (!row.empty()) {
          widths[i] = std::max(widths[i], columns(row[i]));
          words[i] = std::max(words[i], longest_word(row[i]));
        }
      }
      words[i] = std::min(words[i], kWord);
    }
    const int room = width - 2 * static_cast<int>(header_.size());
    for (const int name : {kName, kLeast}) {
      words[0] = std::min(widths[0], name);
      shrink(widths, words, room);
    }
    return widths;
  }

  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a gap
};

}  // namespace tessera::base
