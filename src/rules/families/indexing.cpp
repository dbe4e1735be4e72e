// Picking and writing elements by index.
#include <rules/all_rules.h>

namespace tessera::detail {

void add_indexing_rules(RuleTable& t) {
  (void)t;
}

}  // namespace tessera::detail
