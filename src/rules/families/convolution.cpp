// Convolutions.
#include <rules/all_rules.h>

namespace tessera::detail {

void add_convolution_rules(RuleTable& t) {
  (void)t;
}

}  // namespace tessera::detail
