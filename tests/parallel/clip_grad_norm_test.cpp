// clip_grad_norm over gradients in all kinds of placements and meshes.
#include "gpt_training.h"

namespace tessera {
namespace {

using testing::close;
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
    EXPECT_EQ(norm.scalar_type(), at::kHalf);
    EXPECT_NEAR(norm.item<double>(), 100 * std::sqrt(120.0), 1);
    EXPECT_NEAR(
        full_tensor(parameters[0].grad())[0].item<double>(),
        1 / std::sqrt(120.0), 1e-3);
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

}  // namespace
}  // namespace tessera
