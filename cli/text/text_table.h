// The library's table of text, as wide as the terminal.
#pragma once

#include <string>

#include <base/text_table.h>

#include "terminal.h"

namespace tessera::cli {

class TextTable : public base::TextTable {
 public:
  using base::TextTable::TextTable;
  /// Draws it as the terminal can show it.
  std::string draw(const Terminal& terminal) const {
    return base::TextTable::draw(terminal.width, terminal.utf8);
  }
};

}  // namespace tessera::cli
