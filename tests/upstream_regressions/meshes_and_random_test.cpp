// Wrong answers that another implementation of sharded tensors gave, one test
// each: groups, meshes, random numbers. Numbers are issues of
// github.com/pytorch/pytorch unless another repository is named; "measured"
// were found by running it.
#include <upstream_regressions/expect_plain.h>

#include <set>

namespace tessera {
namespace {

using testing::close;
using testing::counting;
using testing::cut;
using testing::distinct;
using testing::f64;
using testing::leaf;
using testing::mesh_of;

TEST(KnownBugs, EqualAsksOnlyTheRanksOfTheMesh) {  // measured: hangs
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2}, {"a", "b"})["b"];
    const auto t = cut(counting({5}), mesh, "S(0)");
    if (rank() < 2) {  // the other row of the mesh does not ask
      EXPECT_TRUE(at::equal(t, cut(counting({5}), mesh, "S(0)")));
    }
  });
}

TEST(
    KnownBugs, RandomNumbersDependOnNeitherCutNorRankCount) {  // 146190, 168058
  std::mutex mutex;
  std::vector<at::Tensor> all;
  for (const int ranks : {1, 2, 4}) {
    for (const char* text : {"S(0)", "S(1)", "R"}) {
      run_ranks(ranks, [&] {
        manual_seed(7);
        const auto mesh = mesh_of({ranks});
        auto t = zeros({6, 5}, mesh, parse_placements(text), f64());
        t.normal_();
        const auto whole =
            full_tensor(t + at::rand_like(t) + at::dropout(t, 0.5, true));
        const std::lock_guard<std::mutex> lock(mutex);
        all.push_back(whole.cpu());
      });
    }
  }
  for (const at::Tensor& t : all) {
    EXPECT_TRUE(at::equal(t, all[0]));
  }
}

TEST(KnownBugs, EachLayerDrawsNumbersOfItsOwn) {  // torchtitan 3106
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    std::set<double> seen;
    for (int layer = 0; layer < 3; ++layer) {
      auto t = zeros({4, 4}, mesh, {Shard(0)}, f64());
      torch::nn::init::normal_(t);
      const auto whole = full_tensor(t).cpu();
      for (int64_t i = 0; i < 16; ++i) {
        seen.insert(whole.view(-1)[i].item<double>());
      }
    }
    EXPECT_EQ(seen.size(), 48U);
  });
}

TEST(KnownBugs, NormsOverSeveralMeshesAreThoseOfAll) {  // 180346, 180501
  const double want = distinct({4}).norm().item<double>() * std::sqrt(2.0);
  run_ranks(4, [&] {
    std::vector<at::Tensor> parameters;
    for (const char* name : {"x", "y"}) {
      auto t = leaf(distinct({4}), mesh_of({4}, {name}), "S(0)");
      t.mutable_grad() = cut(distinct({4}), mesh_of({4}, {name}), "S(0)");
      parameters.push_back(t);
    }
    EXPECT_NEAR(
        torch::nn::utils::clip_grad_norm_(parameters, 1.0), want, 1e-12 * want);
    for (const at::Tensor& t : parameters) {
      EXPECT_TRUE(close(t.grad(), distinct({4}).div(want + 1e-6)));
    }
  });
}

}  // namespace
}  // namespace tessera
