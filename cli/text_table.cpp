#include "text_table.h"

#include <algorithm>
#include <utility>

namespace tessera::cli {
namespace {

std::string draw_row(
    const std::vector<std::string>& cells, const std::vector<int>& widths) {
  std::string line = "  ";
  for (size_t i = 0; i < cells.size(); ++i) {
    line +=
        i == 0 ? pad_left(cells[i], widths[i]) : pad_right(cells[i], widths[i]);
    line += "  ";
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

TextTable::TextTable(std::vector<std::string> header)
    : header_(std::move(header)) {}

void TextTable::add(std::vector<std::string> row) {
  row.resize(header_.size());
  rows_.push_back(std::move(row));
}

void TextTable::add_gap() {
  rows_.emplace_back();
}

std::string TextTable::draw(const Terminal& terminal) const {
  std::vector<int> widths;
  for (size_t i = 0; i < header_.size(); ++i) {
    int width = columns(header_[i]);
    for (const auto& row : rows_) {
      width = row.empty() ? width : std::max(width, columns(row[i]));
    }
    widths.push_back(width);
  }
  std::vector<std::string> rule, gap;
  for (const int width : widths) {
    rule.push_back(repeat(terminal.utf8 ? "─" : "-", width));
    gap.emplace_back(terminal.utf8 ? "⋮" : ":");
  }
  std::string text = draw_row(header_, widths) + draw_row(rule, widths);
  for (const auto& row : rows_) {
    text += draw_row(row.empty() ? gap : row, widths);
  }
  return text;
}

}  // namespace tessera::cli
