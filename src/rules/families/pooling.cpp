// Pooling and interpolation.
#include <rules/all_rules.h>

namespace tessera::detail {

void add_pooling_rules(RuleTable& t) {
  (void)t;
}

}  // namespace tessera::detail
