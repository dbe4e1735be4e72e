// Errors of a user's rules: texts that cannot be read, a second entry of one
// name, rules that do not fit the call.
#include <tensor/call/user_rules/own_operators.h>

namespace tessera {
namespace {

using testing::change_rules;
using testing::close;
using testing::cut;
using testing::distinct;
using testing::error_of;
using testing::full_name;
using testing::mesh_of;
using testing::product_of;
using testing::remove_rule;

TEST(UserRules, RefuseASecondEntryOfOneName) {
  rules().factors(full_name("product"), "mk,kn->mn");
  EXPECT_ERROR(
      "rules().pointwise: 'rule_user_test::product' has a rule already: "
      "factors mk,kn->mn; remove() it first",
      rules().pointwise({full_name("product")}));
  EXPECT_ERROR(
      "has a rule already",
      rules().rows(full_name("product"), {{Shard(0), Shard(0), Replicate()}}));
  EXPECT_ERROR(
      "'aten::embedding' has a rule already",
      rules().pointwise({"aten::embedding"}));
  rules().remove(full_name("product"));
}

TEST(UserRules, RefuseTextsThatCannotBeRead) {
  EXPECT_ERROR(
      "a name must have a namespace, as in 'aten::mm'; got 'product'",
      rules().factors("product", "mk,kn->mn"));
  const auto factors = [](const char* text) {
    return [text] {
      rules().factors(full_name("main_diagonal"), text);
      rules().remove(full_name("main_diagonal"));
    };
  };
  EXPECT_ERROR("must look like 'mk,kn->mn'; got 'mk,kn'", factors("mk,kn")());
  EXPECT_ERROR("got ''", factors("")());
  EXPECT_ERROR("must look like 'mk,kn->mn'", factors("mk->kn->mn")());
  EXPECT_ERROR("must look like 'mk,kn->mn'", factors("m1->m")());
  // A letter twice would mean a diagonal, of which a cut has no part.
  EXPECT_ERROR(
      "a letter may stand once in a tensor; got 'ii->i'", factors("ii->i")());
  const auto also = [](const char* text) {
    return [text] {
      const std::shared_ptr<void> undo(
          nullptr, [](void*) { rules().remove(full_name("scale")); });
      rules().pointwise({full_name("scale")}).also(text);
    };
  };
  for (const char* text :
       {"P->P", "sum: P", "sum: P->", "sum: P-> ", "sum: PX->P", "sum: P->X",
        "sum: P->PP", "sum: ->P"}) {
    EXPECT_ERROR("must look like 'sum,avg: PR->P'", also(text)());
  }
  EXPECT_ERROR(
      "reduce ops are sum, avg, max, min, product; got 'median'",
      also("median: P->P")());
  EXPECT_ERROR("'Q' is for max and min; got 'sum: P->Q'", also("sum: P->Q")());
  EXPECT_ERROR("only factors have one", [] {
    const std::shared_ptr<void> undo(
        nullptr, [](void*) { rules().remove(full_name("scale")); });
    rules().pointwise({full_name("scale")}).bias(0);
  }());
  EXPECT_EQ(error_of(factors("m.->m")), "");
}

TEST(UserRules, ThatDoNotFitTheCallAreErrorsOnAllRanks) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto a = cut(distinct({4, 6}), mesh, "S(0)");
    const auto b = cut(distinct({6, 2}), mesh, "R");
    const auto c = cut(distinct({6, 3}), mesh, "R");
    change_rules([] { rules().factors(full_name("product"), "mk->m"); });
    EXPECT_ERROR("its rule lists 1 operands; got 2", product_of(a, b));
    EXPECT_ERROR("rule_user_test::product(f64[4, 6] S(0)", product_of(a, b));
    remove_rule("product");
    change_rules([] {
      rules().rows(full_name("product"), {{Shard(0), Shard(0)}});
    });
    EXPECT_ERROR(
        "a row of its rule must list 1 outputs and 2 operands; got S(0), S(0)",
        product_of(a, b));
    remove_rule("product");
    // A result that is not what its row says is an error, not wrong values.
    change_rules([] {
      rules().rows(full_name("product"), {{Shard(1), Shard(0), Replicate()}});
    });
    EXPECT_ERROR("has shape [2, 3]", product_of(a, c));
    remove_rule("product");
    EXPECT_TRUE(close(product_of(a, b), distinct({4, 6}).mm(distinct({6, 2}))));
  });
}

}  // namespace
}  // namespace tessera
