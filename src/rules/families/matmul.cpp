// Products of matrices. Each is linear in each factor, so that a Partial factor
// passes where the other one is replicated.
#include <rules/all_rules.h>

namespace tessera::detail {

void add_matmul_rules(RuleTable& t) {
  for (auto [name, text] :
       {std::pair{"aten::mm", "mk,kn->mn"},
        {"aten::bmm", "bmk,bkn->bmn"},
        {"aten::mv", "mk,k->m"},
        {"aten::dot", "k,k->"},
        {"aten::vdot", "k,k->"}}) {
    t.factors(name, text).also("sum,avg: PR->P").also("sum,avg: RP->P");
  }
  for (auto [name, text] :
       {std::pair{"aten::addmm", "mn,mk,kn->mn"},
        {"aten::baddbmm", "bmn,bmk,bkn->bmn"},
        {"aten::addbmm", "mn,bmk,bkn->mn"},
        {"aten::addmv", "m,mk,k->m"},
        {"aten::addr", "mn,m,n->mn"}}) {
    t.factors(name, text)
        .bias(0)
        .also("sum,avg: PPR->P")
        .also("sum,avg: PRP->P");
  }
}

}  // namespace tessera::detail
