// A table of text: a header, rows, columns as wide as their widest cell.
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
  /// Draws it; the first column is flush right.
  std::string draw(const Terminal& terminal) const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a gap
};

}  // namespace tessera::cli
