// Wrong answers that another implementation of sharded tensors gave, one test
// each: norms, extremes and other reductions of partial values. Numbers are
// issues of github.com/pytorch/pytorch unless another repository is named;
// "measured" were found by running it.
#include <upstream_regressions/expect_plain.h>

namespace tessera {
namespace {

using testing::close;
using testing::cut;
using testing::distinct;
using testing::expect_plain;
using testing::f32;
using testing::f64;
using testing::i64;
using testing::leaf;
using testing::mesh_of;
using testing::parts;
using testing::same;

TEST(KnownBugs, NormsAndExtremesOfSumsAreThoseOfTheWhole) {  // 165962, 159856
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    // Addends that cancel: 10 + (v - 10).
    const auto value = distinct({4, 3});
    const auto t = parts(mesh, Partial(), [&](int64_t r) {
      return r == 0 ? at::full({4, 3}, 10., f64()) : value - 10;
    });
    EXPECT_TRUE(close(t.max(), value.max()));
    EXPECT_TRUE(close(t.min(), value.min()));
    EXPECT_TRUE(close(t.amax(0), value.amax(0)));
    EXPECT_TRUE(close(t.argmax(), value.argmax()));
    EXPECT_TRUE(close(t.abs(), value.abs()));
    for (const double p : {0., 1., 2., 3.}) {
      EXPECT_TRUE(close(
          at::linalg_vector_norm(t, p, 0), at::linalg_vector_norm(value, p, 0)))
          << p;
      EXPECT_TRUE(close(t.norm(p), value.norm(p))) << p;
    }
    EXPECT_TRUE(close(t.norm(INFINITY), value.norm(INFINITY)));
    EXPECT_TRUE(close(t.std(), value.std()));
  });
}

TEST(KnownBugs, InfiniteNormsOfMaximaAreThoseOfTheWhole) {  // measured
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    // max(-7, -1) = -1: a norm of the parts would say 7.
    for (const Placement& placement :
         {Partial(ReduceOp::kMax), Partial(ReduceOp::kMin)}) {
      const auto t = parts(mesh, placement, [](int64_t r) {
        return distinct({4, 3}).sub(r == 0 ? 7 : 3);
      });
      const auto whole = full_tensor(t);
      for (const double p : {HUGE_VAL, -HUGE_VAL, 1.0, 2.0}) {
        EXPECT_TRUE(close(
            at::linalg_vector_norm(t, p), at::linalg_vector_norm(whole, p)))
            << p << " " << to_string(placement);
      }
    }
  });
}

TEST(KnownBugs, ASumOfNormsIsASumOfWholeNorms) {  // 172288
  expect_plain(
      3, {3}, distinct({5, 4}), {"S(0)", "S(1)", "P(sum)"},
      [](const at::Tensor& t) {
        return at::linalg_vector_norm(t, 2, 0).sum() + t.norm(3).sum();
      });
}

TEST(KnownBugs, ClippingGradientsAddsItsEpsilonOnce) {  // 149768
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    std::vector<at::Tensor> sharded, plain;
    for (const char* text : {"S(0)", "S(1)", "R"}) {
      const auto value = distinct({4, 4}).add(sharded.size());
      sharded.push_back(leaf(value, mesh, text));
      plain.push_back(value.clone().requires_grad_());
      sharded.back().mutable_grad() = cut(value * 3, mesh, text);
      plain.back().mutable_grad() = value * 3;
    }
    const double got = torch::nn::utils::clip_grad_norm_(sharded, 1.0);
    const double want = torch::nn::utils::clip_grad_norm_(plain, 1.0);
    EXPECT_NEAR(got, want, 1e-9);
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_TRUE(close(sharded[i].grad(), plain[i].grad()));
    }
  });
}

TEST(KnownBugs, AllAndAnyAreNoSums) {  // 165923
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    for (int64_t zeros = 0; zeros <= 6; ++zeros) {
      auto value = at::ones({6, 2}, i64());
      value.slice(0, 0, zeros).zero_();
      for (const char* text : {"S(0)", "S(1)", "R"}) {
        const auto t = cut(value, mesh, text);
        EXPECT_TRUE(same(t.all(), value.all()));
        EXPECT_TRUE(same(t.all(0), value.all(0)));
        EXPECT_TRUE(same(t.any(), value.any()));
        EXPECT_TRUE(same(t.any(0), value.any(0)));
        EXPECT_TRUE(same(t.eq(1).all(0), value.eq(1).all(0)));
      }
    }
  });
}

TEST(KnownBugs, ReadingAPartialValueReducesIt) {
  // 144054, 152406, 166638, 167598
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const auto sum = parts(mesh, Partial(), [](int64_t r) {
      return at::full({}, static_cast<double>(r + 1), f64());
    });
    EXPECT_EQ(sum.item<double>(), 10);
    EXPECT_TRUE((sum > 9).item<bool>());
    EXPECT_TRUE(at::is_nonzero(sum));
    const auto top = parts(mesh, Partial(ReduceOp::kMax), [](int64_t r) {
      return at::full({}, static_cast<double>(r + 1), f64());
    });
    EXPECT_EQ(top.item<double>(), 4);
    const auto loss = cut(distinct({8, 2}), mesh, "S(0)").sum();
    EXPECT_NEAR(
        loss.item<double>(), distinct({8, 2}).sum().item<double>(), 1e-12);
    EXPECT_TRUE(at::equal(sum, cut(at::full({}, 10., f64()), mesh, "R")));
  });
}

TEST(KnownBugs, IndicesOfMaximaAreGlobalAndNeverCombined) {  // 168940, 173936
  const auto value = distinct({7, 5});
  for (const int64_t dim : {0, 1}) {
    expect_plain(
        3, {3}, value, {"S(0)", "S(1)", "P(sum)"}, [&](const at::Tensor& t) {
          return std::get<1>(t.max(dim)) * 10 + t.argmin(dim) +
                 std::get<1>(t.median(dim));
        });
    expect_plain(3, {3}, value, {"S(0)", "S(1)"}, [&](const at::Tensor& t) {
      return std::get<0>(t.max(dim)) + std::get<0>(t.kthvalue(2, dim));
    });
  }
  expect_plain(4, {2, 2}, value, {"S(0) S(1)", "S(0) S(0)"}, [](auto& t) {
    return t.argmax() + t.argmax(0).sum();
  });
}

TEST(KnownBugs, PowersAreNotSummedBeforeTheirBases) {  // measured
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto value = distinct({4, 3}).abs().add(0.1);
    for (const char* text : {"P(sum)", "P(avg)", "S(0)", "S(1)"}) {
      const auto t = cut(value, mesh, text);
      EXPECT_TRUE(
          close(at::linalg__powsum(t, 3, 0), at::linalg__powsum(value, 3, 0)))
          << text;
      EXPECT_TRUE(close(t.square().sum(), value.square().sum())) << text;
    }
  });
}

TEST(KnownBugs, NansumSkipsWhatIsNaNInTheSum) {  // measured
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const double nan = std::nan("");
    // inf + -inf and nan + 1 are NaN in the sum only or in one part only.
    const auto a = at::tensor({1.0, nan, INFINITY, 4.0}, f64());
    const auto b = at::tensor({2.0, 1.0, -INFINITY, nan}, f64());
    const auto t =
        parts(mesh, Partial(), [&](int64_t r) { return r == 0 ? a : b; });
    EXPECT_TRUE(same(t.nansum(), (a + b).nansum()));
    EXPECT_TRUE(same(cut(a, mesh, "S(0)").nansum(), a.nansum()));
    EXPECT_TRUE(close(t.nan_to_num(9), (a + b).nan_to_num(9)));
    EXPECT_TRUE(same(t.isnan(), (a + b).isnan()));
  });
}

TEST(KnownBugs, SumsOverTwoMeshDimsAreBitEqualOnAllRanks) {  // 171916, 174630
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    const auto part =
        distinct({64}, f32()).mul(1.0 + 0.37 * static_cast<double>(rank()));
    const auto t = from_local(part, mesh, {Partial(), Partial()});
    from_local(
        full_tensor(t), mesh, {Replicate(), Replicate()}, {.run_check = true});
  });
}

}  // namespace
}  // namespace tessera
