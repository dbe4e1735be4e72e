#include <rules/all_rules.h>

namespace tessera::detail {

void add_pointwise_rules(RuleTable& t) {
  t.pointwise({"aten::add.*", "aten::sub.*"})
      .also("sum,avg: PP->P")
      .also("avg,max,min: PR->P")
      .also("avg: RP->P");
  t.pointwise({"aten::mul.*"})
      .also("sum,avg: P->P")
      .also("sum,avg: PR->P")
      .also("sum,avg: RP->P");
  t.pointwise({"aten::relu"}).also("max,min: P->P");
}

}  // namespace tessera::detail
