#include <tessera/rules/rule_table.h>
#include <tessera/tensor/operators.h>

#include "torch_part.h"

namespace tessera::cli {

std::vector<std::string> list_rules() {
  std::vector<std::string> lines;
  for (const RuleInfo& info : rules().list()) {
    lines.push_back(to_string(info));
  }
  return lines;
}

}  // namespace tessera::cli
