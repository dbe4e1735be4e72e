// Scaled dot product attention.
#include <rules/all_rules.h>

namespace tessera::detail {

void add_attention_rules(RuleTable& t) {
  (void)t;
}

}  // namespace tessera::detail
