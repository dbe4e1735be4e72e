// Replicas that differ are found and named on all ranks; equal ones are not.
#include "numeric_gradient.h"

#include <limits>

namespace tessera {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

double mine() {
  return static_cast<double>(rank());
}

at::Tensor on(
    const at::Tensor& local, const DeviceMesh& mesh, const char* placements,
    at::IntArrayRef shape) {
  return from_local(
      local, mesh, parse_placements(placements), {.shape = shape.vec()});
}

// Gathers a text of every rank and expects them to be equal.
void expect_same_on_all_ranks(const std::string& text) {
  at::Tensor hash = at::full(
      {1}, static_cast<int64_t>(std::hash<std::string>{}(text)), at::kLong);
  at::Tensor least = hash.clone();
  init().communicator().all_reduce(least, ReduceOp::kMin);
  init().communicator().all_reduce(hash, ReduceOp::kMax);
  EXPECT_TRUE(at::equal(hash, least)) << "rank " << rank() << ": " << text;
}

TEST(CheckReplicas, IsSilentWhereCopiesAreEqual) {
  run_ranks(4, [] {
    const auto mesh = mesh_of({2, 2});
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    for (const char* text :
         {"R R", "S(0) R", "R S(1)", "P(sum) R", "S(0) S(1)", "SS(0,2) R"}) {
      const auto t = leaf_of(distinct({5, 3}), mesh, parse_placements(text));
      loss_of(t).backward();
      tensors.emplace_back(text, t);
    }
    tensors.emplace_back("plain", distinct({2}) + mine());
    tensors.emplace_back("none", at::Tensor());
    EXPECT_EQ(error_of([&] { check_replicas(tensors); }), "");
    tensors.clear();
    EXPECT_EQ(error_of([&] { check_replicas(tensors); }), "");
  });
}

TEST(CheckReplicas, NamesTheTensorTheRanksAndTheLargestDifference) {
  run_ranks(4, [] {
    const auto mesh = mesh_of({2, 2}, {"dp", "tp"});
    const auto good = replicate(distinct({3}), mesh);
    // Rows 0 and 1 are on dp=0, row 2 on dp=1; rank 3 holds another row 2.
    auto local = mesh.local_rank(0) == 0 ? at::zeros({2, 2}, f64())
                                         : at::ones({1, 2}, f64());
    if (rank() == 3) {
      local[0][1] += 0.25;
    }
    const auto bad = on(local, mesh, "S(0) R", {3, 2});
    const std::string text = error_of([&] {
      check_replicas({{"good", good}, {"layer.weight", bad}});
    });
    EXPECT_EQ(text.find("good"), std::string::npos);
    for (const char* part :
         {"replicas on mesh(dp=2, tp=2) differ", "'layer.weight'",
          "f64[3, 2] S(0) R", "rank 3 differs", "against rank 2", "by 0.25",
          "at local index [0, 1]", "(1.25 and 1)", "in 1 of 2 elements",
          ".grad_placements = Placements{Partial()}"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
    }
    expect_same_on_all_ranks(text);
  });
}

TEST(CheckReplicas, NamesGradients) {
  run_ranks(3, [] {
    const auto mesh = mesh_of({3});
    const auto w = leaf_of(distinct({4}), mesh, {Replicate()});
    (to_local(w) * (mine() + 1)).sum().backward();
    const std::string text = error_of([&] { check_replicas({{"w", w}}); });
    for (const char* part :
         {"gradient of 'w'", "ranks 1, 2 differ", "most on rank 2",
          "against rank 0, by 2", "(3 and 1)", "in 4 of 4 elements"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
    }
    expect_same_on_all_ranks(text);
    // The value itself is equal.
    EXPECT_EQ(text.find("; 'w'"), std::string::npos);
  });
}

TEST(CheckReplicas, NamesAGradientThatOneRankLacks) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto w = leaf_of(distinct({4}), mesh, {Replicate()});
    if (rank() == 0) {
      to_local(w).sum().backward();
    }
    EXPECT_ERROR(
        "gradient of 'w' (f64[4] R @ mesh(2)): missing on rank 1",
        check_replicas({{"w", w}}));
  });
}

TEST(CheckReplicas, NamesDifferentShapes) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto w = replicate(distinct({rank() + 2}), mesh);
    EXPECT_ERROR(
        "different shapes, dtypes or placements", check_replicas({{"w", w}}));
  });
}

TEST(CheckReplicas, TakesEqualNansAndZerosOfBothSignsForEqual) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double inf = std::numeric_limits<double>::infinity();
    const auto value = at::zeros({4}, f64());
    value[0] = nan;
    value[1] = inf;
    value[2] = rank() == 0 ? 0.0 : -0.0;
    const auto t = on(value, mesh, "R", {4});
    EXPECT_EQ(error_of([&] { check_replicas({{"t", t}}); }), "");
    value[3] = rank() == 0 ? nan : 1.0;
    EXPECT_ERROR("by inf at local index [3]", check_replicas({{"t", t}}));
  });
}

TEST(CheckReplicas, AllowsATolerance) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto t = on(at::ones({3}, f64()) + 1e-6 * mine(), mesh, "R", {3});
    EXPECT_ERROR("rank 1 differs", check_replicas({{"t", t}}));
    EXPECT_EQ(
        error_of([&] {
          check_replicas({{"t", t}}, {.tolerance = 1e-5});
        }),
        "");
    EXPECT_ERROR(
        "rank 1 differs", check_replicas({{"t", t}}, {.tolerance = 1e-7}));
  });
}

TEST(CheckReplicas, ServesEveryDtypeAndEmptyShards) {
  run_ranks(3, [] {
    const auto mesh = mesh_of({3});
    for (const auto dtype :
         {at::kBool, at::kByte, at::kLong, at::kHalf, at::kBFloat16, at::kFloat,
          at::kComplexDouble}) {
      const auto same_data = at::ones({5}, at::TensorOptions(dtype));
      const auto other = rank() == 2 ? at::zeros_like(same_data) : same_data;
      EXPECT_EQ(
          error_of([&] {
            check_replicas({{"t", on(same_data, mesh, "R", {5})}});
          }),
          "");
      EXPECT_ERROR(
          "rank 2 differs", check_replicas({{"t", on(other, mesh, "R", {5})}}));
    }
    const auto empty = on(at::empty({0, 2}, f64()), mesh, "R", {0, 2});
    EXPECT_EQ(error_of([&] { check_replicas({{"t", empty}}); }), "");
  });
}

TEST(CheckReplicas, ShowsTheFirstOfMany) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    for (int i = 0; i < 20; ++i) {
      tensors.emplace_back(
          std::string(1, static_cast<char>('a' + i)),
          on(distinct({2}) + mine() * i, mesh, "R", {2}));
    }
    EXPECT_ERROR("and 11 more", check_replicas(tensors));
  });
}

TEST(CheckReplicas, PassesOverRanksOutsideTheMesh) {
  run_ranks(3, [] {
    const auto mesh = mesh_of({2});
    const auto t = from_local(distinct({2}) + mine(), mesh, {Replicate()});
    const std::string text = error_of([&] { check_replicas({{"t", t}}); });
    EXPECT_EQ(text.empty(), rank() == 2);
  });
}

TEST(CheckReplicas, ServesSeveralMeshes) {
  run_ranks(4, [] {
    const auto mesh = mesh_of({2, 2}, {"a", "b"});
    const auto one = replicate(distinct({2}), mesh);
    const auto two =
        from_local(distinct({2}) + mine(), mesh["b"], {Replicate()});
    const std::string text = error_of([&] {
      check_replicas({{"one", one}, {"two", two}});
    });
    EXPECT_NE(text.find("'two'"), std::string::npos) << text;
  });
}

TEST(CheckReplicas, ServesModules) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    torch::nn::Sequential net(
        torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4));
    net->to(device());
    distribute_parameters(*net, mesh);
    EXPECT_EQ(error_of([&] { check_replicas(*net); }), "");
    EXPECT_EQ(net->parameters()[0].name(), "0.weight");
    {
      c10::NoGradGuard no_grad;
      to_local(net->named_buffers()["1.running_mean"]).add_(mine());
    }
    EXPECT_ERROR("'1.running_mean'", check_replicas(*net));
  });
}

// The planted fault: a replicated weight whose copies are used differently.
at::Tensor different_use(const at::Tensor& w) {
  return (to_local(w) * (mine() + 1)).sum();
}

TEST(GradientCheck, FindsTheToLocalThatPartsTheCopies) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto w = leaf_of(distinct({4}), mesh, {Replicate()});
    name_tensor(w, "head.weight");
    const GradientCheck check;
    const std::string text = error_of([&] { different_use(w).backward(); });
    for (const char* part :
         {"the gradient of to_local() of 'head.weight' (f64[4] R @ mesh(2))",
          "arrived as R", "rank 1 differs", "by 1 at local index [0]",
          ".grad_placements = Placements{Partial()}"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
    }
    expect_same_on_all_ranks(text);
    EXPECT_FALSE(w.grad().defined());
    // What the advice says is silent, and right.
    to_local(w, {.grad_placements = Placements{Partial()}})
        .mul(mine() + 1)
        .sum()
        .backward();
    EXPECT_TRUE(same(w.grad(), at::full({4}, 3.0, f64())));
  });
}

TEST(GradientCheck, FindsCopiesThatAHookParts) {
  run_ranks(4, [] {
    const auto mesh = mesh_of({2, 2});
    const auto w = leaf_of(distinct({5, 2}), mesh, {Shard(0), Replicate()});
    name_tensor(w, "w");
    w.register_hook(
        [](const at::Tensor& g) { return rank() == 3 ? g * 2 : g; });
    EXPECT_EQ(error_of([&] { loss_of(w).backward(); }), "");
    const GradientCheck check;
    const std::string text = error_of([&] { loss_of(w).backward(); });
    EXPECT_NE(
        text.find("the gradient of 'w' (f64[5, 2] S(0) R"), std::string::npos)
        << text;
    EXPECT_NE(text.find("rank 3 differs"), std::string::npos) << text;
    expect_same_on_all_ranks(text);
  });
}

// All ranks compare as often, whoever has hooks.
TEST(GradientCheck, AllowsHooksOnSomeRanksOnly) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto w = leaf_of(distinct({4}), mesh, {Shard(0)});
    if (mine() == 0) {
      w.register_hook([](const at::Tensor& g) { return g; });
    }
    const GradientCheck check;
    const auto copy = redistribute(w, {Replicate()});
    copy.mul(2).sum().backward();
    EXPECT_TRUE(same(w.grad(), at::full({4}, 2.0, f64())));
  });
}

// Cutting would hide it: each rank takes a piece of its own copy.
TEST(GradientCheck, ComparesBeforeAGradientIsCut) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto w = leaf_of(distinct({4}), mesh, {Shard(0)});
    const GradientCheck check;
    const auto copy = redistribute(w, {Replicate()});
    const std::string text = error_of([&] { different_use(copy).backward(); });
    EXPECT_NE(text.find("f64[4] R @ mesh(2) made by"), std::string::npos)
        << text;
    expect_same_on_all_ranks(text);
  });
}

TEST(GradientCheck, IsSilentOnRightPrograms) {
  for (const GradientCase& c :
       {GradientCase{{3}, {5, 2}}, GradientCase{{2, 2}, {3, 2}}}) {
    run_ranks(c.ranks(), [&] {
      const auto mesh = mesh_of(c.mesh);
      const GradientCheck check;
      for (const Placements& from : placements_with_default(c)) {
        for (const Placements& to : all_placements(c)) {
          SCOPED_TRACE(to_string(from) + " -> " + to_string(to));
          const auto w = leaf_of(distinct(c.shape), mesh, from);
          const auto used =
              from_local(to_local(w).mul(2), mesh, from, {.shape = c.shape});
          EXPECT_EQ(
              error_of([&] { loss_of(redistribute(used, to)).backward(); }),
              "");
        }
      }
    });
  }
}

TEST(GradientCheck, EndsWithItsScopeAndKeepsTheOuterTolerance) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto w = leaf_of(distinct({4}), mesh, {Replicate()});
    {
      const GradientCheck outer({.tolerance = 2.0});
      EXPECT_EQ(error_of([&] { different_use(w).backward(); }), "");
      {
        const GradientCheck inner;
        EXPECT_ERROR("differ between ranks", different_use(w).backward());
      }
      EXPECT_EQ(error_of([&] { different_use(w).backward(); }), "");
    }
    if (std::getenv("TESSERA_CHECK_GRADIENTS") == nullptr) {
      EXPECT_EQ(error_of([&] { different_use(w).backward(); }), "");
    }
  });
}

TEST(GradientCheckEnvironment, SwitchesItOnForTheProgram) {
  if (std::getenv("TESSERA_CHECK_GRADIENTS") == nullptr) {
    GTEST_SKIP() << "run by the test gradient_check_environment";
  }
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto w = leaf_of(distinct({4}), mesh, {Replicate()});
    EXPECT_ERROR("differ between ranks", different_use(w).backward());
    EXPECT_EQ(error_of([&] { loss_of(w).backward(); }), "");
  });
}

}  // namespace
}  // namespace tessera
