// Rules of a user's own operators: every form, added and removed while the
// program runs, and what a wrong text says.
#include <harness/sharded_test.h>
#include <torch/library.h>

#include <functional>

#include <tessera/rules/rule_table.h>

namespace tessera {
namespace {

using testing::close;
using testing::counting;
using testing::distinct;
using testing::error_of;
using testing::f64;
using testing::i64;
using testing::mesh_of;
using testing::same;

// Kernels read pointers, as custom kernels do: they must only ever see shards.
const at::Tensor& checked(const at::Tensor& x) {
  static_cast<void>(x.const_data_ptr());
  return x;
}

at::Tensor scale(const at::Tensor& x, double by) {
  return checked(x) * by;
}
at::Tensor& scale_in_place(at::Tensor& x, double by) {
  return checked(x), x.mul_(by);
}
at::Tensor& scale_out(const at::Tensor& x, double by, at::Tensor& out) {
  return at::mul_out(out, checked(x), at::scalar_tensor(by, x.options()));
}
std::vector<at::Tensor> scale_list(at::TensorList xs, double by) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& x : xs) {
    out.push_back(scale(x, by));
  }
  return out;
}
void scale_list_in_place(at::TensorList xs, double by) {
  for (const at::Tensor& x : xs) {
    checked(x).mul_(by);
  }
}
at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  return checked(a).mm(checked(b));
}
at::Tensor add_product(
    const at::Tensor& c, const at::Tensor& a, const at::Tensor& b) {
  return checked(c) + product(a, b);
}
at::Tensor total(const at::Tensor& x, at::IntArrayRef dim, bool keepdim) {
  return checked(x).sum(dim, keepdim);
}
at::Tensor centered(const at::Tensor& x, int64_t dim) {
  return checked(x) - x.mean(dim, true);
}
at::Tensor inverse(const at::Tensor& x) {
  return at::inverse(checked(x));
}
at::Tensor pick(const at::Tensor& table, const at::Tensor& index) {
  return checked(table).index_select(0, index);
}
at::Tensor main_diagonal(const at::Tensor& x) {
  return checked(x).diagonal().clone();
}

TORCH_LIBRARY(rule_user_test, m) {
  m.def("scale(Tensor x, float by) -> Tensor");
  m.def("scale_(Tensor(a!) x, float by) -> Tensor(a!)");
  m.def("scale.out(Tensor x, float by, *, Tensor(a!) out) -> Tensor(a!)");
  m.def("_foreach_scale(Tensor[] x, float by) -> Tensor[]");
  m.def("_foreach_scale_(Tensor(a!)[] x, float by) -> ()");
  m.def("scales(Tensor[] x, float by) -> Tensor[]");
  m.def("product(Tensor a, Tensor b) -> Tensor");
  m.def("add_product(Tensor c, Tensor a, Tensor b) -> Tensor");
  m.def("total(Tensor x, int[] dim, bool keepdim) -> Tensor");
  m.def("centered(Tensor x, int dim) -> Tensor");
  m.def("inverse(Tensor x) -> Tensor");
  m.def("pick(Tensor table, Tensor index) -> Tensor");
  m.def("main_diagonal(Tensor x) -> Tensor");
}

void implement(torch::Library& m) {
  m.impl("scale", &scale);
  m.impl("scale_", &scale_in_place);
  m.impl("scale.out", &scale_out);
  m.impl("_foreach_scale", &scale_list);
  m.impl("_foreach_scale_", &scale_list_in_place);
  m.impl("scales", &scale_list);
  m.impl("product", &product);
  m.impl("add_product", &add_product);
  m.impl("total", &total);
  m.impl("centered", &centered);
  m.impl("inverse", &inverse);
  m.impl("pick", &pick);
  m.impl("main_diagonal", &main_diagonal);
}
TORCH_LIBRARY_IMPL(rule_user_test, CPU, m) {
  implement(m);
}
TORCH_LIBRARY_IMPL(rule_user_test, CUDA, m) {
  implement(m);
}

std::string full_name(const std::string& name) {
  return "rule_user_test::" + name;
}

template <class Signature, class... Arguments>
auto call(const std::string& name, Arguments&&... arguments) {
  const size_t dot = name.find('.');
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(
          full_name(name.substr(0, dot)).c_str(),
          dot == std::string::npos ? "" : name.substr(dot + 1).c_str())
      .typed<Signature>()
      .call(std::forward<Arguments>(arguments)...);
}

at::Tensor scale_of(const at::Tensor& x, double by) {
  return call<at::Tensor(const at::Tensor&, double)>("scale", x, by);
}
at::Tensor product_of(const at::Tensor& a, const at::Tensor& b) {
  return call<at::Tensor(const at::Tensor&, const at::Tensor&)>(
      "product", a, b);
}
at::Tensor total_of(
    const at::Tensor& x, at::IntArrayRef dim, bool keepdim = false) {
  return call<at::Tensor(const at::Tensor&, at::IntArrayRef, bool)>(
      "total", x, dim, keepdim);
}
at::Tensor centered_of(const at::Tensor& x, int64_t dim) {
  return call<at::Tensor(const at::Tensor&, int64_t)>("centered", x, dim);
}
at::Tensor apply(const std::string& name, const at::Tensor& x) {
  return call<at::Tensor(const at::Tensor&)>(name, x);
}
at::Tensor pick_of(const at::Tensor& table, const at::Tensor& index) {
  return call<at::Tensor(const at::Tensor&, const at::Tensor&)>(
      "pick", table, index);
}

// Changes the table on one rank, while the others wait: it is that of the
// process.
void change_rules(const std::function<void()>& change) {
  init().communicator().barrier();
  if (rank() == 0) {
    change();
  }
  init().communicator().barrier();
}

void remove_rule(const std::string& name) {
  change_rules([&] { rules().remove(full_name(name)); });
}

at::Tensor cut(
    const at::Tensor& value, const DeviceMesh& mesh, const char* text) {
  return distribute_tensor(value, mesh, parse_placements(text));
}

// Checks value and placements of a result that no communication may make.
template <class F>
void expect_local(F body, const at::Tensor& want, const std::string& where) {
  const StrictMode strict({.communication = true, .fallbacks = true});
  at::Tensor got;
  EXPECT_EQ(error_of([&] { got = body(); }), "");
  const StrictMode gap({.communication = false});
  if (got.defined()) {
    EXPECT_TRUE(close(got, want));
    EXPECT_EQ(to_string(placements(got)), where);
  }
}

template <class F>
void expect_fallback(F body, const at::Tensor& want) {
  {
    const StrictMode strict({.communication = false, .fallbacks = true});
    EXPECT_ERROR("no sharding rule", body());
  }
  const at::Tensor got = body();
  EXPECT_TRUE(close(got, want));
  EXPECT_EQ(to_string(placements(got)), "R");
}

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

TEST(UserRules, AreFollowedByInPlaceOutAndForeachVariants) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto value = distinct({5, 4});
    const auto other = distinct({3}).add(1);
    const auto in_place = [](at::Tensor& x) {
      call<at::Tensor&(at::Tensor&, double)>("scale_", x, 3.0);
    };
    // Known as a fallback before, which keeps the tensor's own placements.
    auto early = cut(value, mesh, "S(0)");
    in_place(early);
    EXPECT_TRUE(close(early, value * 3));
    change_rules([] { rules().pointwise({full_name("scale")}); });
    auto x = cut(value, mesh, "S(0)");
    const auto memory = to_local(x).const_data_ptr();
    expect_local(
        [&] {
          in_place(x);
          return x;
        },
        value * 3, "S(0)");
    EXPECT_EQ(to_local(x).const_data_ptr(), memory);
    auto out = zeros({5, 4}, mesh, {Shard(0)}, f64());
    expect_local(
        [&] {
          call<at::Tensor&(const at::Tensor&, double, at::Tensor&)>(
              "scale.out", x, 2.0, out);
          return out;
        },
        value * 6, "S(0)");
    const std::vector<at::Tensor> list{
        cut(value, mesh, "S(1)"), cut(other, mesh, "S(0)")};
    for (const size_t i : {0U, 1U}) {
      expect_local(
          [&] {
            return call<std::vector<at::Tensor>(at::TensorList, double)>(
                "_foreach_scale", list, 4.0)[i];
          },
          (i == 0 ? value : other) * 4, i == 0 ? "S(1)" : "S(0)");
    }
    expect_local(
        [&] {
          call<void(at::TensorList, double)>("_foreach_scale_", list, 5.0);
          return list[1];
        },
        other * 5, "S(0)");
    remove_rule("scale");
    // A list of another name has a rule of its own.
    change_rules([] { rules().pointwise({full_name("scales")}); });
    const std::vector<at::Tensor> more{
        cut(value, mesh, "S(1)"), cut(other, mesh, "S(0)")};
    expect_local(
        [&] {
          return call<std::vector<at::Tensor>(at::TensorList, double)>(
              "scales", more, 4.0)[0];
        },
        value * 4, "S(1)");
    remove_rule("scales");
  });
}

TEST(UserRules, ServeAllOverloadsByOneStar) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    change_rules([] { rules().pointwise({full_name("scale.*")}); });
    const auto x = cut(distinct({5, 4}), mesh, "S(1)");
    expect_local([&] { return scale_of(x, 2); }, distinct({5, 4}) * 2, "S(1)");
    change_rules([] {
      rules().rows(full_name("scale"), {{Shard(0), Shard(0)}});
    });
    EXPECT_TRUE(close(scale_of(x, 2), distinct({5, 4}) * 2));
    EXPECT_NE(to_string(placements(scale_of(x, 2))), "S(1)") << "its own rule";
    remove_rule("scale");
    remove_rule("scale.*");
  });
}

TEST(UserRules, AreListedAndRemovedByName) {
  const auto listed = [](const std::string& name) {
    for (const RuleInfo& info : rules().list()) {
      if (info.name == full_name(name)) {
        return info.form + " " + info.text;
      }
    }
    return std::string();
  };
  EXPECT_EQ(listed("product"), "");
  rules().factors(full_name("product"), "mk,kn->mn");
  EXPECT_EQ(listed("product"), "factors mk,kn->mn");
  rules().remove(full_name("product"));
  rules().remove(full_name("product"));
  EXPECT_EQ(listed("product"), "");
}

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
