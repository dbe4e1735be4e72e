// Wrong answers that another implementation of sharded tensors gave, one test
// each: views, and what reads or writes by index. Numbers are issues of
// github.com/pytorch/pytorch unless another repository is named; "measured"
// were found by running it.
#include <upstream_regressions/expect_plain.h>

namespace tessera {
namespace {

using testing::close;
using testing::cut;
using testing::distinct;
using testing::expect_plain;
using testing::i64;
using testing::leaf;
using testing::mesh_of;
using testing::same;

TEST(KnownBugs, WritesThroughSlicesArriveInTheTensor) {  // 139735
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    for (const char* text : {"S(0)", "S(1)", "R", "P(sum)", "SS(0,2)"}) {
      SCOPED_TRACE(text);
      auto t = cut(distinct({5, 4}), mesh, text);
      auto p = distinct({5, 4});
      for (at::Tensor* x : {&t, &p}) {
        x->slice(0, 1, 4).mul_(2);
        x->select(1, 2).add_(3);
        x->slice(1, 0, 4, 2).slice(0, 2, 5).neg_();
        x->t().slice(0, 0, 2).add_(1);
        x->view({4, 5}).select(0, 3).zero_();
      }
      EXPECT_TRUE(close(t, p));
    }
  });
}

TEST(KnownBugs, ANumberIsAssignedToARow) {  // x[0] = 1.0
  run_ranks(2, [&] {
    for (const char* text : {"S(0)", "S(1)", "R", "P(sum)"}) {
      auto t = cut(distinct({5, 4}), mesh_of({2}), text);
      auto p = distinct({5, 4});
      for (at::Tensor* x : {&t, &p}) {
        x->index_put_({0}, 1.0);
        x->index_put_({torch::indexing::Slice(), 2}, 7.0);
      }
      EXPECT_TRUE(close(t, p)) << text;
    }
  });
}

TEST(KnownBugs, ViewsMoveDataWhereTheShardCannotFollow) {  // 179502
  const auto value = distinct({8, 12});
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
           {16, 6}, {6, 16}, {96}, {4, 24}, {24, 4}, {2, 4, 12}, {8, 2, 6}}) {
    expect_plain(
        4, {4}, value, {"S(0)", "S(1)", "R", "P(sum)"},
        [&](const at::Tensor& t) { return t.view(shape).mul(2); });
    expect_plain(
        4, {2, 2}, value, {"S(0) S(1)", "S(1) S(0)", "S(1) S(1)", "S(0) S(0)"},
        [&](const at::Tensor& t) { return t.view(shape).mul(2); });
  }
}

TEST(KnownBugs, GatherTakesAnIndexOfAnySize) {  // measured
  const auto index = at::tensor({3, 0, 2, 1, 3, 1}, i64()).reshape({2, 3});
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto value = distinct({4, 6});
    for (const char* text : {"R", "S(0)", "S(1)", "P(sum)"}) {
      for (const char* where : {"R", "S(0)", "S(1)"}) {
        for (const int64_t dim : {0, 1}) {
          SCOPED_TRACE(std::string(text) + ", " + where);
          auto t = leaf(value, mesh, text);
          auto p = value.clone().requires_grad_();
          const auto got = t.gather(dim, cut(index, mesh, where));
          const auto want = p.gather(dim, index);
          EXPECT_TRUE(close(got, want));
          got.square().sum().backward();
          want.square().sum().backward();
          EXPECT_TRUE(close(t.grad(), p.grad()));
        }
      }
    }
  });
}

TEST(KnownBugs, ScatterTakesASourceLongerThanItsIndex) {  // measured
  const auto index = at::tensor({3, 0, 2, 1, 3, 1}, i64()).reshape({2, 3});
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    for (const char* self : {"R", "S(0)", "S(1)", "P(sum)"}) {
      for (const char* source : {"R", "S(0)", "S(1)"}) {
        for (const char* where : {"R", "S(0)", "S(1)"}) {
          for (const int64_t dim : {0, 1}) {
            SCOPED_TRACE(std::string(self) + ", " + where + ", " + source);
            const auto run = [&](const at::Tensor& t, const at::Tensor& i,
                                 const at::Tensor& s) {
              return t.scatter_add(dim, i, s) + t.scatter(dim, i, s) * 2 +
                     t.scatter_reduce(dim, i, s, "amax");
            };
            EXPECT_TRUE(close(
                run(cut(distinct({4, 6}), mesh, self), cut(index, mesh, where),
                    cut(distinct({5, 7}).add(2), mesh, source)),
                run(distinct({4, 6}), index, distinct({5, 7}).add(2))));
          }
        }
      }
    }
  });
}

TEST(KnownBugs, MasksIndexAndAreWrittenThrough) {  // 152717
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto value = distinct({5, 4});
    for (const char* text : {"S(0)", "S(1)", "R", "P(sum)"}) {
      SCOPED_TRACE(text);
      auto t = cut(value, mesh, text);
      auto p = value.clone();
      EXPECT_TRUE(close(t.index({t > 0.5}), p.index({p > 0.5})));
      t.index_put_({t > 0.5}, 3.0);
      p.index_put_({p > 0.5}, 3.0);
      EXPECT_TRUE(close(t, p));
      EXPECT_TRUE(same(t.eq(3).nonzero(), p.eq(3).nonzero()));
    }
  });
}

TEST(KnownBugs, TwoEmbeddingsOfCutTablesDoNotShareTheirMasks) {
  // 130725, 131264, 160697
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    std::vector<at::Tensor> tables, plain;
    const std::vector<std::vector<int64_t>> shapes = {{6, 4}, {6, 3}, {9, 4}};
    for (const auto& shape : shapes) {
      tables.push_back(leaf(distinct(shape), mesh, "S(0)"));
      plain.push_back(distinct(shape).requires_grad_());
    }
    const auto first = at::tensor({5, 0, 3, 3}, i64());
    const auto second = at::tensor({1, 5, 2, 0}, i64());
    const auto run = [](std::vector<at::Tensor>& t, const at::Tensor& a,
                        const at::Tensor& b) {
      // All pending before the first is read.
      const auto x = at::embedding(t[0], a);
      const auto y = at::embedding(t[1], a);
      const auto z = at::embedding(t[2], b);
      const auto again = at::embedding(t[0], b);
      return (x + z + again * 2).sum(1) + y.sum(1) + (x * x).sum(1);
    };
    const auto got = run(tables, cut(first, mesh, "R"), cut(second, mesh, "R"));
    const auto want = run(plain, first, second);
    EXPECT_TRUE(close(got, want));
    got.square().sum().backward();
    want.square().sum().backward();
    for (size_t i = 0; i < tables.size(); ++i) {
      EXPECT_TRUE(close(tables[i].grad(), plain[i].grad())) << i;
    }
  });
}

}  // namespace
}  // namespace tessera
