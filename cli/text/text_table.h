// A table of text: a header, rows, columns as wide as their widest cell where
// the terminal is.
#pragma once

#include <string>
#include <vector>

#include "terminal.h"

namespace tessera::cli {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header);
  /// Adds a row; missing cells at the end are blank.
  void add(std::vector<std::string> row);
  /// Adds a row of dots where rows were left out.
  void add_gap();
  /// Draws it; the first column is flush right. What is wider than the
  /// terminal is cut into lines: cells of the widest columns, while names in
  /// the first one get a line of their own.
  std::string draw(const Terminal& terminal) const;

 private:
  std::vector<int> fitting_widths(int width) const;
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a gap
};

}  // namespace tessera::cli
