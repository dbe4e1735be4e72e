// Random operators whose draws are by global index.
#include <rules/all_rules.h>

namespace tessera::detail {

void add_random_rules(RuleTable& t) {
  (void)t;
}

}  // namespace tessera::detail
