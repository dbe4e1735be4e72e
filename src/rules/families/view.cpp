// Views: operators that rename or pick elements of one tensor.
#include <rules/all_rules.h>

namespace tessera::detail {

void add_view_rules(RuleTable& t) {
  (void)t;
}

}  // namespace tessera::detail
