#include <rules/all_rules.h>

namespace tessera::detail {

void add_reduction_rules(RuleTable& t) {
  t.reduction({"aten::sum.*"}, ReduceOp::kSum).also("sum,avg: P->P");
}

}  // namespace tessera::detail
