// clip_grad_norm over gradients in all kinds of placements and meshes, and over
// the stages of a pipeline.
#include <algorithm>
#include <cmath>

#include "gpt_training.h"

namespace tessera {
namespace {

using testing::close;
using testing::device;
using testing::distinct;
using testing::f64;
using testing::mesh_of;

at::Tensor with_gradient(const at::Tensor& value, const at::Tensor& gradient) {
  at::Tensor leaf = value.clone().detach().requires_grad_();
  leaf.mutable_grad() = gradient;
  return leaf;
}

at::Tensor gradient(int64_t i) {
  return distinct({5, 3 + i}).mul(static_cast<double>(i + 1));
}

std::vector<at::Tensor> plain_parameters(int64_t count) {
  std::vector<at::Tensor> all;
  for (int64_t i = 0; i < count; ++i) {
    all.push_back(with_gradient(gradient(i), gradient(i)));
  }
  return all;
}

TEST(ClipGradNorm, IsThatOfPlainTensorsInAnyPlacements) {
  const std::vector<std::string> places{"R R",       "S(0) R",    "R S(1)",
                                        "S(0) S(1)", "S(0) S(0)", "P R"};
  for (const double p : {1.0, 2.0, 3.0, static_cast<double>(INFINITY)}) {
    for (const double limit : {1e-2, 1e6}) {
      SCOPED_TRACE(std::to_string(p) + " " + std::to_string(limit));
      auto plain = plain_parameters(7);
      const double want = torch::nn::utils::clip_grad_norm_(plain, limit, p);
      run_ranks(4, [&] {
        const auto mesh = mesh_of({2, 2}, {"dp", "tp"});
        const auto line = mesh_of({4});
        std::vector<at::Tensor> parameters;
        for (int64_t i = 0; i < 5; ++i) {
          const Placements where =
              parse_placements(places[static_cast<size_t>(i)]);
          parameters.push_back(with_gradient(
              distribute_tensor(gradient(i), mesh, where),
              distribute_tensor(gradient(i), mesh, where)));
        }
        parameters.push_back(with_gradient(
            distribute_tensor(gradient(5), line, {Shard(0)}),
            distribute_tensor(gradient(5), line, {Shard(0)})));
        parameters.push_back(with_gradient(gradient(6), gradient(6)));
        parameters.push_back(gradient(0).requires_grad_());  // has none
        const at::Tensor got =
            clip_grad_norm(parameters, limit, {.norm_type = p});
        EXPECT_FALSE(is_dtensor(got));
        EXPECT_NEAR(got.item<double>(), want, 1e-10 * want);
        for (size_t i = 0; i < plain.size(); ++i) {
          EXPECT_TRUE(close(parameters[i].grad(), plain[i].grad())) << i;
        }
      });
    }
  }
}

TEST(ClipGradNorm, SumsUpAddendsFirst) {
  auto plain = plain_parameters(1);
  const double want = torch::nn::utils::clip_grad_norm_(plain, 0.5);
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const at::Tensor p = with_gradient(
        distribute_tensor(gradient(0), mesh, {Replicate()}),
        redistribute(
            distribute_tensor(gradient(0), mesh, {Shard(0)}), {Partial()}));
    EXPECT_NEAR(clip_grad_norm({p}, 0.5).item<double>(), want, 1e-10);
    EXPECT_TRUE(close(p.grad(), plain[0].grad()));
  });
}

// The rows of such a gradient lie across shards, so it shows a copy.
TEST(ClipGradNorm, ScalesGradientsThatAreViews) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const at::Tensor value = distinct({5, 4});
    const at::Tensor flat = distribute_tensor(value, mesh, {Shard(0)});
    const auto p = with_gradient(flat.view({4, 5}), flat.view({4, 5}));
    const double norm = clip_grad_norm({p}, 0.5).item<double>();
    EXPECT_NEAR(norm, value.norm().item<double>(), 1e-12);
    EXPECT_TRUE(close(p.grad(), value.view({4, 5}) * (0.5 / (norm + 1e-6))));
    EXPECT_TRUE(close(flat, value * (0.5 / (norm + 1e-6))));
  });
}

// Autograd must notice, and so must views that show copies.
TEST(ClipGradNorm, CountsAsAWrite) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const at::Tensor value = distinct({5, 4});
    const at::Tensor g = distribute_tensor(value, mesh, {Shard(0)});
    const at::Tensor across = g.view({4, 5});
    const at::Tensor plain_one = value.clone();
    const auto a = with_gradient(g, g), b = with_gradient(value, plain_one);
    const auto x = at::ones({}, f64()).requires_grad_();
    const auto spread =
        tessera::ones({}, mesh, {Replicate()}, f64()).requires_grad_();
    const at::Tensor y = (x * plain_one).sum(), z = (spread * g).sum();
    const double norm = clip_grad_norm({a, b}, 0.5).item<double>();
    EXPECT_EQ(plain_one._version(), 1);
    EXPECT_TRUE(close(across, value.view({4, 5}) * (0.5 / (norm + 1e-6))));
    EXPECT_ERROR("modified by an inplace operation", y.backward());
    EXPECT_ERROR("modified by an inplace operation", z.backward());
  });
}

TEST(ClipGradNorm, ReducesOnceForAllGradientsOfAKind) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    std::vector<at::Tensor> parameters;
    for (int64_t i = 0; i < 6; ++i) {
      const Placements where{i % 2 == 0 ? Shard(0) : Replicate()};
      parameters.push_back(with_gradient(
          distribute_tensor(gradient(i), mesh, where),
          distribute_tensor(gradient(i), mesh, where)));
    }
    const CommLog log;
    clip_grad_norm(parameters, 1.0);
    EXPECT_EQ(log.count(), 1) << log;
  });
}

TEST(ClipGradNorm, RefusesWhatIsNotFinite) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    at::Tensor bad = gradient(0);
    bad[0][0] = INFINITY;  // on one rank only
    const at::Tensor p = with_gradient(
        distribute_tensor(gradient(0), mesh, {Shard(0)}),
        distribute_tensor(bad, mesh, {Shard(0)}));
    EXPECT_ERROR(
        "is not finite",
        clip_grad_norm({p}, 1.0, {.error_if_nonfinite = true}));
    EXPECT_TRUE(testing::same(p.grad(), bad));
    EXPECT_ERROR(
        "must be above zero", clip_grad_norm({p}, 1.0, {.norm_type = 0}));
  });
}

TEST(ClipGradNorm, OfHalvesDoesNotOverflow) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    std::vector<at::Tensor> parameters;
    for (int64_t i = 0; i < 40; ++i) {
      const auto value = distribute_tensor(
          at::full({3}, 100.0, f64().dtype(at::kHalf)), mesh, {Shard(0)});
      parameters.push_back(with_gradient(value, value.clone()));
    }
    const at::Tensor norm = clip_grad_norm(parameters, 1.0);
    EXPECT_EQ(norm.scalar_type(), at::kFloat);
    EXPECT_NEAR(norm.item<double>(), 100 * std::sqrt(120.0), 1e-3);
    EXPECT_NEAR(
        full_tensor(parameters[0].grad())[0].item<double>(),
        1 / std::sqrt(120.0), 1e-3);
  });
}

// No norm of one gradient fits its own dtype.
TEST(ClipGradNorm, OfAHalfThatIsLargeIsNotInfinite) {
  run_ranks(2, [&] {
    const auto value = distribute_tensor(
        at::full({512, 512}, 400.0, f64().dtype(at::kHalf)), mesh_of({2}),
        {Shard(0)});
    const auto p = with_gradient(value, value.clone());
    EXPECT_NEAR(clip_grad_norm({p}, 512).item<double>(), 400 * 512.0, 1);
    EXPECT_NEAR(full_tensor(p.grad())[0][0].item<double>(), 1, 1e-3);
  });
}

TEST(ClipGradNorm, IsRefusedOutsideOfAMesh) {
  run_ranks(2, [&] {
    const auto all = init_device_mesh(testing::device(), {2}, {});
    const DeviceMesh first(testing::device(), at::tensor({0}, at::kLong));
    const auto p = with_gradient(
        distribute_tensor(gradient(0), first, {Shard(0)}),
        distribute_tensor(gradient(0), first, {Shard(0)}));
    if (rank() == 1) {
      EXPECT_ERROR("this rank is outside of", clip_grad_norm({p}, 1.0));
    } else {
      EXPECT_GT(clip_grad_norm({p}, 1.0).item<double>(), 0);
    }
  });
}

TEST(ClipGradNorm, OfNothingIsZero) {
  EXPECT_EQ(clip_grad_norm({}, 1.0).item<double>(), 0);
}

// Gradients of a pipeline of two stages with two ranks each: the first stage
// has them on two meshes, the second on one.
constexpr int64_t kMeshOf[] = {0, 0, 1, 2, 2};
constexpr int64_t kTensors = 5;

at::Tensor stage_gradient(int64_t i) {
  return distinct({4, 3 + i}).add(0.1 * static_cast<double>(i));
}

std::vector<DeviceMesh> meshes_of_stage(const DeviceMesh& all) {
  const bool first = all.local_rank("pp") == 0;
  const auto mesh = [&](std::vector<int64_t> ranks) {
    return DeviceMesh(device(), at::tensor(ranks, at::kLong), {"tp"});
  };
  return first ? std::vector{mesh({0, 1}), mesh({1, 0})}
               : std::vector{mesh({2, 3})};
}

std::vector<at::Tensor> parameters_of_stage(const DeviceMesh& all) {
  const auto meshes = meshes_of_stage(all);
  const int64_t first = all.local_rank("pp") == 0 ? 0 : 2;
  std::vector<at::Tensor> mine;
  for (int64_t i = 0; i < kTensors; ++i) {
    const int64_t m = kMeshOf[i] - first;
    if (m < 0 || m >= static_cast<int64_t>(meshes.size())) {
      continue;
    }
    const auto cut = distribute_tensor(
        stage_gradient(i), meshes[static_cast<size_t>(m)], {Shard(0)},
        {.src_data_rank = std::nullopt});
    mine.push_back(at::zeros_like(cut).requires_grad_());
    mine.back().mutable_grad() = cut;
  }
  return mine;
}

double merged(double p, double a, double b) {
  return std::isinf(p) ? std::max(a, b) : a + b;
}

// The sum of powers of what one rank of a mesh has there.
double power_on_rank(double p, int64_t mesh, int64_t rank) {
  std::vector<at::Tensor> norms;
  for (int64_t i = 0; i < kTensors; ++i) {
    if (kMeshOf[i] == mesh) {
      const auto shard = stage_gradient(i).narrow(0, 2 * rank, 2);
      norms.push_back(at::linalg_vector_norm(shard, p));
    }
  }
  const auto all = at::stack(norms);
  return (std::isinf(p) ? all.max() : all.pow(p).sum()).item<double>();
}

// What the documents promise, to the bit: powers are added up in the order of
// the ranks of a mesh, of meshes, of stages.
double expected_norm(double p) {
  double meshes[3];
  for (int64_t m = 0; m < 3; ++m) {
    meshes[m] = merged(p, power_on_rank(p, m, 0), power_on_rank(p, m, 1));
  }
  const double power = merged(p, merged(p, meshes[0], meshes[1]), meshes[2]);
  return std::isinf(p)
             ? power
             : at::scalar_tensor(power, f64()).pow(1 / p).item<double>();
}

TEST(ClipOverStages, IsOneNumberOnEveryRankAndRepeatsBitForBit) {
  for (const double p : {1.0, 2.0, static_cast<double>(INFINITY)}) {
    SCOPED_TRACE(p);
    std::vector<at::Tensor> whole;
    for (int64_t i = 0; i < kTensors; ++i) {
      whole.push_back(at::zeros_like(stage_gradient(i)).requires_grad_());
      whole.back().mutable_grad() = stage_gradient(i);
    }
    const double want = torch::nn::utils::clip_grad_norm_(whole, 0.5, p);
    for (int again = 0; again < 3; ++again) {
      run_ranks(4, [&] {
        const auto all = mesh_of({2, 2}, {"pp", "tp"});
        const auto mine = parameters_of_stage(all);
        const double got =
            clip_grad_norm(
                mine, 0.5, {.norm_type = p, .stages = all.communicator("pp")})
                .item<double>();
        EXPECT_NEAR(got, want, 1e-12 * want);
        EXPECT_EQ(got, expected_norm(p));
        const size_t first = all.local_rank("pp") == 0 ? 0 : 3;
        for (size_t i = 0; i < mine.size(); ++i) {
          EXPECT_TRUE(close(mine[i].grad(), whole[first + i].grad(), 1e-12));
        }
      });
    }
  }
}

TEST(ClipOverStages, AnInfiniteNormChangesNothingOnAnyStage) {
  run_ranks(2, [] {
    const auto all = mesh_of({2}, {"pp"});
    const auto p = at::zeros({3}, f64()).requires_grad_();
    p.mutable_grad() = at::ones({3}, f64());
    if (rank() == 1) {
      p.mutable_grad()[1] = NAN;
    }
    const auto before = p.grad().clone();
    EXPECT_ERROR(
        "not finite",
        clip_grad_norm(
            {p}, 0.1,
            {.error_if_nonfinite = true, .stages = all.communicator("pp")}));
    EXPECT_TRUE(at::equal(p.grad()[0], before[0]));
    EXPECT_ERROR(
        "the communicator is undefined",
        clip_grad_norm({p}, 0.1, {.stages = Communicator()}));
    const std::vector<at::Tensor> nothing;  // a stage without gradients
    EXPECT_EQ(
        clip_grad_norm(
            rank() == 0 ? std::vector<at::Tensor>{p} : nothing, 10,
            {.stages = all.communicator("pp")})
            .item<double>(),
        std::sqrt(3.0));
  });
}

}  // namespace
}  // namespace tessera
