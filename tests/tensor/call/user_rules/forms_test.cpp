// Rules of a user's own operators in every form, added and removed while the
// program runs.
#include <tensor/call/user_rules/own_operators.h>

namespace tessera {
namespace {

using testing::apply;
using testing::call;
using testing::centered_of;
using testing::change_rules;
using testing::close;
using testing::cut;
using testing::distinct;
using testing::expect_fallback;
using testing::expect_local;
using testing::f64;
using testing::full_name;
using testing::i64;
using testing::mesh_of;
using testing::pick_of;
using testing::product_of;
using testing::remove_rule;
using testing::scale_of;
using testing::total_of;

TEST(UserRules, TakeEffectAtOnceAndSoDoesTheirRemoval) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto x = cut(distinct({5, 4}), mesh, "S(0)");
    const auto want = distinct({5, 4}) * 3;
    const auto run = [&] { return scale_of(x, 3); };
    for (int round = 0; round < 3; ++round) {
      for (int again = 0; again < 3; ++again) {
        expect_fallback(run, want);
      }
      change_rules([] { rules().pointwise({full_name("scale")}); });
      for (int again = 0; again < 3; ++again) {
        expect_local(run, want, "S(0)");
      }
      remove_rule("scale");
    }
    expect_fallback(run, want);
  });
}

TEST(UserRules, FollowAChangeOfForm) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto a = cut(distinct({4, 6}), mesh, "S(1)");
    const auto b = cut(distinct({6, 2}), mesh, "S(0)");
    const auto want = distinct({4, 6}).mm(distinct({6, 2}));
    const auto run = [&] { return product_of(a, b); };
    change_rules([] {
      rules().rows(full_name("product"), {{Partial(), Shard(1), Shard(0)}});
    });
    expect_local(run, want, "P(sum)");
    remove_rule("product");
    // Without the row for the summed dim both have to move.
    change_rules([] {
      rules().rows(full_name("product"), {{Shard(0), Shard(0), Replicate()}});
    });
    EXPECT_TRUE(close(run(), want));
    EXPECT_NE(to_string(placements(run())), "P(sum)");
    remove_rule("product");
    change_rules([] { rules().factors(full_name("product"), "mk,kn->mn"); });
    expect_local(run, want, "P(sum)");
    remove_rule("product");
  });
}

TEST(UserRules, FactorsCutEveryLetter) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    change_rules([] {
      rules().factors(full_name("product"), "mk,kn->mn");
      rules().factors(full_name("add_product"), "mn,mk,kn->mn").bias(0);
    });
    const auto a = distinct({5, 7});
    const auto b = distinct({7, 3}).add(1);
    const auto c = distinct({3}).add(2);
    struct Row {
      const char *a, *b, *c, *out;
    };
    for (const Row& row :
         {Row{"S(0)", "R", "R", "S(0)"}, Row{"R", "S(1)", "S(0)", "S(1)"},
          Row{"S(1)", "S(0)", "P(sum)", "P(sum)"},
          Row{"S(1)", "S(0)", "R", "P(sum)"}}) {
      SCOPED_TRACE(std::string(row.a) + ", " + row.b);
      const auto x = cut(a, mesh, row.a);
      const auto y = cut(b, mesh, row.b);
      const auto z = cut(c, mesh, row.c);
      expect_local([&] { return product_of(x, y); }, a.mm(b), row.out);
      expect_local(
          [&] {
            return call<at::Tensor(
                const at::Tensor&, const at::Tensor&, const at::Tensor&)>(
                "add_product", z, x, y);
          },
          c + a.mm(b), row.out);
    }
    remove_rule("product");
    remove_rule("add_product");
  });
}

TEST(UserRules, PointwiseTakesPartialOnlyWhereToldTo) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto x = cut(distinct({5, 4}), mesh, "P(sum)");
    const auto want = distinct({5, 4}) * -2;
    change_rules([] { rules().pointwise({full_name("scale")}); });
    EXPECT_TRUE(close(scale_of(x, -2), want));
    EXPECT_NE(to_string(placements(scale_of(x, -2))), "P(sum)");
    remove_rule("scale");
    change_rules(
        [] { rules().pointwise({full_name("scale")}).also("sum,avg: P->P"); });
    expect_local([&] { return scale_of(x, -2); }, want, "P(sum)");
    expect_local(
        [&] { return scale_of(x, 5); }, distinct({5, 4}) * 5, "P(sum)");
    const auto top = cut(distinct({5, 4}), mesh, "P(max)");
    EXPECT_TRUE(close(scale_of(top, -2), want));
    remove_rule("scale");
  });
}

TEST(UserRules, FunctionsReadTheArguments) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    change_rules([] {
      rules().rows(full_name("centered"), [](const RuleCall& call, Rows& rows) {
        const int64_t ndim = call.self().ndim();
        for (int64_t d = 0; d < ndim; ++d) {
          if (d != wrap_dim(call.integer("dim"), ndim)) {
            rows.add({Shard(d)}, {Shard(d)});
          }
        }
      });
    });
    const auto value = distinct({5, 4, 3});
    const auto x = cut(value, mesh, "S(1)");
    for (int round = 0; round < 2; ++round) {
      for (const int64_t dim : {0, 2, -1, -3}) {
        expect_local(
            [&] { return centered_of(x, dim); }, value - value.mean(dim, true),
            "S(1)");
      }
      for (const int64_t dim : {1, -2}) {
        EXPECT_TRUE(close(centered_of(x, dim), value - value.mean(dim, true)));
      }
    }
    remove_rule("centered");
  });
}

TEST(UserRules, AlongReductionAndLeadingServeOwnOperatorsToo) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    change_rules([] {
      rules().along({full_name("centered")});
      rules().reduction({full_name("total")}, ReduceOp::kSum);
      rules().leading({full_name("inverse")}, 2);
    });
    const auto value = distinct({3, 4, 4});
    const auto rows = cut(value, mesh, "S(1)");
    expect_local(
        [&] { return centered_of(rows, 2); }, value - value.mean(2, true),
        "S(1)");
    EXPECT_TRUE(close(centered_of(rows, 1), value - value.mean(1, true)));
    expect_local([&] { return total_of(rows, {1}); }, value.sum(1), "P(sum)");
    expect_local([&] { return total_of(rows, {0}); }, value.sum(0), "S(0)");
    expect_local(
        [&] { return total_of(rows, {0}, true); }, value.sum(0, true), "S(1)");
    const auto eye = value + 5 * at::eye(4, f64());
    expect_local(
        [&] { return apply("inverse", cut(eye, mesh, "S(0)")); },
        at::inverse(eye), "S(0)");
    for (const char* name : {"centered", "total", "inverse"}) {
      remove_rule(name);
    }
  });
}

TEST(UserRules, RowsStandAsTheyAreWritten) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    change_rules([] {
      rules().rows(
          full_name("pick"), {{Shard(-1), Shard(1), Replicate()},
                              {Shard(0), Replicate(), Shard(0)}});
    });
    const auto table = distinct({6, 5});
    const auto index = at::tensor({5, 0, 3, 3, 1}, i64());
    const auto want = table.index_select(0, index);
    expect_local(
        [&] {
          return pick_of(cut(table, mesh, "S(1)"), cut(index, mesh, "R"));
        },
        want, "S(1)");
    expect_local(
        [&] {
          return pick_of(cut(table, mesh, "R"), cut(index, mesh, "S(0)"));
        },
        want, "S(0)");
    EXPECT_TRUE(close(
        pick_of(cut(table, mesh, "S(0)"), cut(index, mesh, "S(0)")), want));
    remove_rule("pick");
  });
}

}  // namespace
}  // namespace tessera
