// Putting tensors side by side, and moving elements along a dim.
#include <rules/all_rules.h>

namespace tessera::detail {

void add_concat_rules(RuleTable& t) {
  (void)t;
}

}  // namespace tessera::detail
