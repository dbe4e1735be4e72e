// Lookups in tables.
#include <rules/all_rules.h>

namespace tessera::detail {

void add_embedding_rules(RuleTable& t) {
  (void)t;
}

}  // namespace tessera::detail
