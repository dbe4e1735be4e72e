// Operators that need care to keep their shards: values and gradients are those
// of the plain operator, results stay cut, and only what is small is sent.
#include <harness/sharded_test.h>

#include <functional>

namespace tessera {
namespace {

using testing::close;
using testing::counting;
using testing::distinct;
using testing::f32;
using testing::f64;
using testing::mesh_of;
using testing::same;

using Tensors = std::vector<at::Tensor>;

// A mesh and the placements of a tensor of three dims on it.
struct Case {
  std::vector<int64_t> mesh;
  std::vector<int64_t> shape;
  const char* on;
};

int ranks_of(const Case& c) {
  return static_cast<int>(c10::multiply_integers(c.mesh));
}

at::Tensor place(
    const at::Tensor& t, const DeviceMesh& mesh, const std::string& on) {
  return distribute_tensor(
      t.detach().clone().set_requires_grad(t.requires_grad()), mesh,
      parse_placements(on), {.src_data_rank = std::nullopt});
}

std::string placed(const at::Tensor& t) {
  return to_string(placements(t));
}

// One row per rank, one on some only, none on some; two mesh dims.
const std::vector<Case>& one_index_cases() {
  static const std::vector<Case> all = {
      {{4}, {4, 1, 6}, "S(0)"},
      {{4}, {5, 1, 3}, "S(0)"},
      {{4}, {3, 1, 2}, "S(0)"},
      {{4}, {2, 1, 4}, "S(2)"},
      {{2}, {2, 3, 2}, "S(0)"},
      {{2, 2}, {2, 1, 2}, "S(0) S(2)"},
      {{2, 2}, {4, 1, 2}, "S(0) S(0)"},
      {{2, 2}, {3, 1, 2}, "S(0)[1] S(0)[0]"},
      {{2, 2}, {2, 1, 3}, "P(sum) S(2)"},
  };
  return all;
}

using View = std::function<at::Tensor(const at::Tensor&)>;

void expect_shown(const Case& c, const char* name, const View& view) {
  SCOPED_TRACE(std::string(name) + " of " + c.on);
  const auto mesh = mesh_of(c.mesh);
  const auto plain = counting(c.shape).requires_grad_(true);
  const auto x = place(plain, mesh, c.on);
  CommLog log;
  const auto got = view(x);
  const auto again = view(x);  // by the decision of the first
  EXPECT_EQ(log.count(), 0) << to_string(log);
  const auto want = view(plain);
  EXPECT_TRUE(same(got, want));
  EXPECT_TRUE(same(again, want));
  EXPECT_EQ(got.strides(), want.strides());
  for (size_t m = 0; m < placements(x).size(); ++m) {
    EXPECT_EQ(placements(got)[m].kind(), placements(x)[m].kind());
  }
  const auto weights = distinct(want.sizes());
  (want * weights).sum().backward();
  (got *
   place(weights, mesh, to_string(Placements(c.mesh.size(), Replicate()))))
      .sum()
      .backward();
  EXPECT_TRUE(close(x.grad(), plain.grad()));
}

TEST(Squeeze, KeepsDimsOfWhichARankHoldsOneIndex) {
  const std::vector<std::pair<const char*, View>> views = {
      {"squeeze", [](const at::Tensor& t) { return t.squeeze(); }},
      {"squeeze(0)", [](const at::Tensor& t) { return t.squeeze(0); }},
      {"squeeze(1)", [](const at::Tensor& t) { return t.squeeze(1); }},
      {"squeeze(-1)", [](const at::Tensor& t) { return t.squeeze(-1); }},
      {"squeeze({0, 1})",
       [](const at::Tensor& t) {
         return t.squeeze({0, 1});
       }},
      {"squeeze_copy", [](const at::Tensor& t) { return at::squeeze_copy(t); }},
      {"squeeze_copy(0)",
       [](const at::Tensor& t) { return at::squeeze_copy(t, 0); }},
  };
  for (const Case& c : one_index_cases()) {
    run_ranks(ranks_of(c), [&] {
      for (const auto& [name, view] : views) {
        expect_shown(c, name, view);
      }
    });
  }
}

TEST(Squeeze, ShowsTheMemoryOfTheShard) {
  run_ranks(4, [] {
    auto x = place(counting({4, 1, 6}), mesh_of({4}), "S(0)");
    auto y = x.squeeze();
    EXPECT_EQ(placed(y), "S(0)");
    y.mul_(10);
    EXPECT_TRUE(same(x, counting({4, 1, 6}) * 10));
    x.add_(1);
    EXPECT_TRUE(same(y, counting({4, 6}) * 10 + 1));
    auto copy = at::squeeze_copy(x);
    copy.zero_();
    EXPECT_TRUE(same(x, counting({4, 1, 6}) * 10 + 1));
    auto out = place(counting({4, 6}), mesh_of({4}), "S(0)");
    at::squeeze_copy_out(out, x);
    EXPECT_TRUE(same(out, counting({4, 6}) * 10 + 1));
    EXPECT_EQ(placed(out), "S(0)");
    auto turned = place(counting({6, 1, 4}), mesh_of({4}), "S(2)");
    at::permute_copy_out(turned, x, {2, 1, 0});
    EXPECT_TRUE(same(turned, testing::plain(x).permute({2, 1, 0})));
    EXPECT_EQ(placed(turned), "S(2)");
  });
}

TEST(Detach, InPlaceForgetsTheHistoryAndMovesNothing) {
  run_ranks(4, [] {
    const auto mesh = mesh_of({2, 2});
    for (const char* on : {"S(0) S(1)", "R S(0)", "P(sum) S(1)", "R R"}) {
      SCOPED_TRACE(on);
      const auto x = place(counting({5, 3}).requires_grad_(true), mesh, on);
      auto y = x * 2;
      ASSERT_TRUE(y.requires_grad());
      const std::string before = placed(y);
      CommLog log;
      const auto returned = y.detach_();
      EXPECT_EQ(log.count(), 0);
      EXPECT_TRUE(returned.is_same(y));
      EXPECT_FALSE(y.requires_grad());
      EXPECT_EQ(placed(y), before);
      EXPECT_TRUE(same(y, counting({5, 3}) * 2));
    }
    auto leaf = place(counting({4}), mesh, "S(0) R");
    EXPECT_TRUE(leaf.detach_().is_leaf());
  });
}

TEST(Copy, WritesShardsIntoAnOutTensor) {
  const std::vector<std::vector<const char*>> layouts = {
      {"S(0) S(1)", "S(0) S(1)", "S(0) S(1)"},
      {"S(0) R", "S(0) R", "S(0) R"},
      {"R S(1)", "R S(1)", "R S(1)"},
      {"P(sum) R", "P(sum) R", "P(sum) R"},
      {"R R", "P(sum) R", "P(sum) R"},
      {"P(max) S(1)", "R S(1)", "R S(1)"},
  };
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    const auto values = distinct({5, 3});
    for (const auto& on : layouts) {
      SCOPED_TRACE(on[0]);
      const auto self = place(counting({5, 3}, f32()), mesh, on[0]);
      const auto from = place(values, mesh, on[1]);
      auto out = place(counting({5, 3}, f32()) * 7, mesh, on[2]);
      CommLog log;
      at::copy_out(out, self, from);
      EXPECT_EQ(placed(out), on[2]);
      const bool casts_addends = placements(from)[0].is_partial();
      EXPECT_TRUE(casts_addends || log.count() == 0) << to_string(log);
      EXPECT_TRUE(close(out, values.to(at::kFloat), 1e-6));
    }
    // A row is spread over all rows; the result has the layout of self.
    const auto self = place(counting({5, 3}), mesh, "S(0) S(1)");
    const auto row = place(distinct({3}), mesh, "R S(0)");
    CommLog log;
    const auto spread = at::copy(self, row);
    EXPECT_EQ(log.count(), 0);
    EXPECT_EQ(placed(spread), "S(0) S(1)");
    EXPECT_TRUE(same(spread, distinct({3}).expand({5, 3})));
  });
}

Tensors list_on(const DeviceMesh& mesh, const char* on, const Tensors& plain) {
  Tensors list;
  for (const at::Tensor& t : plain) {
    Placements p = parse_placements(on);
    for (Placement& one : p) {
      one = one.is_shard() && one.dim() >= t.dim() ? Replicate() : one;
    }
    list.push_back(place(t, mesh, to_string(p)));
  }
  return list;
}

// Even, uneven, smaller than the mesh, without dims.
Tensors plain_list() {
  return {
      distinct({4, 6}), distinct({5, 3}).mul(-2).sub(1), distinct({2, 1}),
      distinct({7}), distinct({}).sub(9)};
}

const std::vector<std::pair<std::vector<int64_t>, const char*>>& list_cases() {
  static const std::vector<std::pair<std::vector<int64_t>, const char*>> all = {
      {{4}, "S(0)"},         {{3}, "S(1)"},           {{2, 2}, "S(0) S(1)"},
      {{2, 2}, "S(0) S(0)"}, {{2, 2}, "S(0) P(sum)"}, {{2, 2}, "S(0) P(max)"},
  };
  return all;
}

TEST(ForeachMax, OfShardsIsACandidateForTheMaximum) {
  for (const auto& [sizes, on] : list_cases()) {
    run_ranks(static_cast<int>(c10::multiply_integers(sizes)), [&, on = on] {
      SCOPED_TRACE(on);
      const auto mesh = mesh_of(sizes);
      const Tensors plain = plain_list();
      const Tensors list = list_on(mesh, on, plain);
      CommLog log;
      const Tensors got = at::_foreach_max(list);
      const bool sums = std::string(on).find("sum") != std::string::npos;
      EXPECT_TRUE(sums || log.count() == 0) << to_string(log);
      const Tensors want = at::_foreach_max(plain);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(same(got[i], want[i])) << i;
        EXPECT_EQ(
            placements(got[i])[0], placements(list[i])[0].is_shard()
                                       ? Partial(ReduceOp::kMax)
                                       : Replicate());
      }
    });
  }
}

TEST(ForeachMax, TakesIntegersAndBools) {
  run_ranks(4, [] {
    const auto mesh = mesh_of({4});
    const Tensors plain = {
        counting({3}, testing::i64()) - 5, counting({2}).gt(5),
        counting({6}, testing::f32()).to(at::kBFloat16)};
    const Tensors got = at::_foreach_max(list_on(mesh, "S(0)", plain));
    const Tensors want = at::_foreach_max(plain);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(same(got[i], want[i])) << i;
    }
    EXPECT_ERROR(
        "maximum of an empty tensor",
        at::_foreach_max(
            list_on(mesh, "S(0)", {counting({0}), counting({4})})));
  });
}

// Not in all versions of LibTorch.
Tensors foreach_powsum(const Tensors& list, const at::Scalar& order) {
  const auto op = c10::Dispatcher::singleton().findSchema(
      {"aten::_foreach_powsum", "Scalar"});
  torch::jit::Stack stack{c10::List<at::Tensor>(list), order, c10::IValue()};
  op->callBoxed(&stack);
  return stack.back().toTensorVector();
}

TEST(ForeachPowsum, OfShardsIsAnAddend) {
  if (!c10::Dispatcher::singleton().findSchema(
          {"aten::_foreach_powsum", "Scalar"})) {
    GTEST_SKIP() << "this LibTorch has no _foreach_powsum";
  }
  for (const auto& [sizes, on] : list_cases()) {
    run_ranks(static_cast<int>(c10::multiply_integers(sizes)), [&, on = on] {
      SCOPED_TRACE(on);
      const auto mesh = mesh_of(sizes);
      const Tensors plain = plain_list();
      const Tensors list = list_on(mesh, on, plain);
      for (const double order : {1.0, 2.0, 3.5}) {
        const Tensors got = foreach_powsum(list, order);
        const Tensors want = foreach_powsum(plain, order);
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < got.size(); ++i) {
          EXPECT_TRUE(close(got[i], want[i])) << i << ", order " << order;
          EXPECT_EQ(
              placements(got[i])[0],
              placements(list[i])[0].is_shard() ? Partial() : Replicate());
        }
      }
    });
  }
}

// Runs the check of mixed precision on a list, `bad` in one element of it.
void expect_unscaled(const DeviceMesh& mesh, const char* on, double bad) {
  SCOPED_TRACE(c10::str(on, " with ", bad));
  Tensors plain;
  for (const at::Tensor& t : plain_list()) {
    plain.push_back(t.to(at::kFloat));
  }
  plain[1].view(-1)[14] = bad;
  const Tensors list = list_on(mesh, on, plain);
  auto inverse = at::full({1}, 0.25, f32());
  auto found = at::zeros({1}, f32());
  const std::string whole =
      to_string(Placements(placements(list[0]).size(), Replicate()));
  auto got = place(found, mesh, whole);
  CommLog log;
  at::_amp_foreach_non_finite_check_and_unscale_(
      list, got, place(inverse, mesh, whole));
  const int64_t bytes = log.bytes();
  at::_amp_foreach_non_finite_check_and_unscale_(plain, found, inverse);
  EXPECT_TRUE(same(got, found));
  EXPECT_EQ(placed(got), whole);
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(close(list[i], plain[i], 1e-6)) << i;
  }
  const bool sums = std::string(on).find('P') != std::string::npos;
  EXPECT_TRUE(sums || bytes <= 4 * 2 * 4) << to_string(log);
}

TEST(Unscale, OfShardsTellsAllRanksOfOneInfinity) {
  for (const auto& [sizes, on] : list_cases()) {
    run_ranks(static_cast<int>(c10::multiply_integers(sizes)), [&, on = on] {
      for (const double bad :
           {1.0, std::numeric_limits<double>::infinity(),
            std::numeric_limits<double>::quiet_NaN()}) {
        expect_unscaled(mesh_of(sizes), on, bad);
      }
    });
  }
}

TEST(Unscale, KeepsWhatWasFoundBeforeAndIsForetold) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const Tensors list = {place(counting({3, 2}, f32()), mesh, "S(0)")};
    auto found = place(at::ones({1}, f32()), mesh, "R");
    const auto inverse = place(at::ones({1}, f32()), mesh, "R");
    const std::string told = explain(
        "aten::_amp_foreach_non_finite_check_and_unscale_", list, found,
        inverse);
    EXPECT_NE(told.find("all_reduce 0: P(max) -> R"), told.npos) << told;
    at::_amp_foreach_non_finite_check_and_unscale_(list, found, inverse);
    EXPECT_TRUE(same(found, at::ones({1}, f32())));
    EXPECT_TRUE(same(list[0], counting({3, 2}, f32())));
  });
}

}  // namespace
}  // namespace tessera
