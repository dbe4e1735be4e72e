// Softmax and losses.
#include <rules/all_rules.h>

namespace tessera::detail {

void add_softmax_loss_rules(RuleTable& t) {
  (void)t;
}

}  // namespace tessera::detail
