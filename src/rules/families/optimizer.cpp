// Steps of optimizers.
#include <rules/all_rules.h>

namespace tessera::detail {

void add_optimizer_rules(RuleTable& t) {
  (void)t;
}

}  // namespace tessera::detail
