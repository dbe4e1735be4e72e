// Scans and sorts along a dim.
#include <rules/all_rules.h>

namespace tessera::detail {

void add_sorting_rules(RuleTable& t) {
  (void)t;
}

}  // namespace tessera::detail
