// Parameters of one program on several meshes: operators on lists run per mesh,
// and values without dims meet. Everything is compared with plain tensors.
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <torch/torch.h>

#include <tessera/tessera.h>
#include "harness/sharded_test.h"

namespace tessera {
namespace {

using testing::close;
using testing::distinct;
using testing::f64;
using testing::mesh_of;

using Tensors = std::vector<at::Tensor>;

DeviceMesh mesh_on(const std::vector<int64_t>& ranks) {
  return DeviceMesh(
      testing::device(),
      MeshShape::from_ranks(ranks, {static_cast<int64_t>(ranks.size())}));
}

// Where each parameter of a list lives.
struct Place {
  DeviceMesh mesh;
  Placements placements;
};

// A mesh with its sub-meshes, and the meshes of two stages.
std::vector<std::vector<Place>> all_places() {
  const DeviceMesh mesh = mesh_of({2, 2}, {"dp", "tp"});
  const Place whole{mesh, {Shard(0), Shard(1)}};
  const Place tp{mesh["tp"], {Shard(0)}};
  const Place dp{mesh["dp"], {Replicate()}};
  const Place first{mesh_on({0, 1}), {Shard(0)}};
  const Place second{mesh_on({2, 3}), {Shard(1)}};
  const Place third{mesh_on({3, 1, 0}), {Replicate()}};
  return {
      {whole, tp, whole, dp}, {tp, dp},       {first, second, first},
      {second, third, first}, {first, whole}, {tp, whole, second},
  };
}

at::Tensor value_of(size_t i, double scale = 1) {
  return distinct({3 + static_cast<int64_t>(i), 4}).mul(scale);
}

Tensors plain_list(size_t count, double scale = 1) {
  Tensors list;
  for (size_t i = 0; i < count; ++i) {
    list.push_back(value_of(i, scale));
  }
  return list;
}

Tensors sharded_list(const std::vector<Place>& places, double scale = 1) {
  Tensors list;
  for (size_t i = 0; i < places.size(); ++i) {
    list.push_back(distribute_tensor(
        value_of(i, scale), places[i].mesh, places[i].placements));
  }
  return list;
}

// Whole values are compared where this rank can have them.
void expect_same(const Tensors& got, const Tensors& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (spec(got[i]).has_shard()) {
      EXPECT_TRUE(close(full_tensor(got[i]), want[i])) << i;
    }
  }
}

void for_all_places(const std::function<void(const std::vector<Place>&)>& f) {
  run_ranks(4, [&] {
    const auto cases = all_places();
    for (size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE("case " + std::to_string(i));
      f(cases[i]);
    }
  });
}

TEST(SeveralMeshes, ListOperatorsRunPerMesh) {
  for_all_places([](const std::vector<Place>& places) {
    const Tensors got =
        at::_foreach_add(sharded_list(places), sharded_list(places, 2), 3);
    const Tensors want = at::_foreach_add(
        plain_list(places.size()), plain_list(places.size(), 2), 3);
    expect_same(got, want);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(spec(got[i]).mesh(), places[i].mesh) << i;
      EXPECT_EQ(placements(got[i]), places[i].placements) << i;
    }
    Tensors in_place = sharded_list(places);
    at::_foreach_mul_(in_place, 0.5);
    expect_same(in_place, plain_list(places.size(), 0.5));
  });
}

TEST(SeveralMeshes, NormsOfAListMeet) {
  for_all_places([](const std::vector<Place>& places) {
    const at::Tensor want =
        at::stack(at::_foreach_norm(plain_list(places.size()), 2)).norm();
    const Tensors norms = at::_foreach_norm(sharded_list(places), 2);
    const at::Tensor total = at::stack(norms).norm();
    if (!spec(total).has_shard()) {
      return;  // a rank that none of the meshes holds
    }
    EXPECT_NEAR(full_tensor(total).item<double>(), want.item<double>(), 1e-10);
    // A value of one mesh scales tensors of all.
    Tensors scaled = sharded_list(places);
    at::_foreach_mul_(scaled, total);
    expect_same(scaled, plain_list(places.size(), want.item<double>()));
  });
}

TEST(SeveralMeshes, FusedAdamW) {
  const auto step = [](Tensors parameters, const Tensors& gradients) {
    Tensors first, second, steps;
    for (const at::Tensor& p : parameters) {
      first.push_back(at::zeros_like(p));
      second.push_back(at::zeros_like(p));
      steps.push_back(at::full({}, 1.0, testing::f32()));
    }
    at::_fused_adamw_(
        parameters, gradients, first, second, {}, steps, 0.1, 0.9, 0.99, 0.01,
        1e-8, /*amsgrad=*/false, /*maximize=*/false);
    return parameters;
  };
  for_all_places([&](const std::vector<Place>& places) {
    expect_same(
        step(sharded_list(places), sharded_list(places, 0.1)),
        step(plain_list(places.size()), plain_list(places.size(), 0.1)));
  });
}

TEST(SeveralMeshes, ClipGradNormIsOneNumberOnAllRanks) {
  for_all_places([](const std::vector<Place>& places) {
    std::vector<int64_t> ranks;
    bool is_among = false;
    for (const Place& place : places) {
      is_among = is_among || place.mesh.coordinate().has_value();
    }
    if (!is_among) {
      return;
    }
    Tensors plain = plain_list(places.size());
    Tensors parameters = sharded_list(places);
    const Tensors gradients = sharded_list(places, 2);
    for (size_t i = 0; i < plain.size(); ++i) {
      plain[i].set_requires_grad(true).mutable_grad() = value_of(i, 2);
      parameters[i].set_requires_grad(true).mutable_grad() = gradients[i];
    }
    const double want = torch::nn::utils::clip_grad_norm_(plain, 0.5);
    EXPECT_NEAR(
        clip_grad_norm(parameters, 0.5).item<double>(), want, 1e-10 * want);
    Tensors got, clipped;
    for (size_t i = 0; i < plain.size(); ++i) {
      got.push_back(parameters[i].grad());
      clipped.push_back(plain[i].grad());
    }
    expect_same(got, clipped);
  });
}

TEST(SeveralMeshes, OtherTensorsDoNotMeet) {
  run_ranks(4, [] {
    const DeviceMesh mesh = mesh_of({2, 2}, {"dp", "tp"});
    const at::Tensor a =
        distribute_tensor(value_of(0), mesh, {Shard(0), Shard(1)});
    const at::Tensor b = distribute_tensor(value_of(0), mesh["tp"], {Shard(0)});
    EXPECT_ERROR("the tensors live on different meshes", a + b);
    EXPECT_ERROR("the tensors live on different meshes", at::stack({a, b}));
  });
}

// Each rank names the slice of the mesh that holds it, there and back again.
TEST(SeveralMeshes, EverySliceGetsTheTensor) {
  const at::Tensor whole = distinct({5, 4});
  const at::Tensor weight = distinct({5, 4}).cos();
  run_ranks(4, [&] {
    const DeviceMesh mesh = mesh_of({2, 2}, {"dp", "tp"});
    const std::vector<Placement> kinds{
        Replicate(), Shard(0), Shard(1), Partial()};
    for (const Placement& a : kinds) {
      for (const Placement& b : kinds) {
        for (const Placement& c : kinds) {
          for (const char* dim : {"dp", "tp"}) {
            SCOPED_TRACE(
                to_string(Placements{a, b}) + " to " + to_string(c) + " on " +
                dim);
            at::Tensor x = redistribute(
                distribute_tensor(whole, mesh, {Replicate(), Replicate()}),
                {a, b});
            x = x.detach().requires_grad_();
            const at::Tensor y = redistribute(x, mesh[dim], {c});
            EXPECT_EQ(spec(y).mesh(), mesh[dim]);
            EXPECT_EQ(placements(y), Placements{c});
            EXPECT_TRUE(close(full_tensor(y), whole));
            const at::Tensor z = redistribute(y, mesh, {Shard(0), Shard(1)});
            EXPECT_TRUE(close(full_tensor(z), whole));
            (z * distribute_tensor(weight, mesh, {Shard(0), Shard(1)}))
                .sum()
                .backward();
            EXPECT_TRUE(close(full_tensor(x.grad()), weight));
          }
        }
      }
    }
  });
}

// Two tensor-parallel stages of a pipeline, as one program on all ranks.
struct StageImpl : torch::nn::Module {
  StageImpl() {
    up = register_module("up", torch::nn::Linear(6, 8));
    down = register_module("down", torch::nn::Linear(8, 6));
    to(at::kDouble);
    const at::NoGradGuard no_grad;
    for (at::Tensor& p : parameters()) {
      p.copy_(distinct(p.sizes().vec()).div(100));
    }
  }
  at::Tensor forward(const at::Tensor& x) { return down(torch::relu(up(x))); }
  torch::nn::Linear up = nullptr, down = nullptr;
};
TORCH_MODULE(Stage);

Tensors all_parameters(const std::vector<Stage>& stages) {
  Tensors all;
  for (const Stage& stage : stages) {
    for (const at::Tensor& p : stage->parameters()) {
      all.push_back(p);
    }
  }
  return all;
}

TEST(SeveralMeshes, APipelineOfTwoTensorParallelStagesTrainsAsPlain) {
  const at::Tensor data = distinct({5, 6}).div(10);
  std::vector<Stage> plain{Stage(), Stage()};
  torch::optim::AdamW plain_optimizer(
      all_parameters(plain), torch::optim::AdamWOptions(0.01));
  std::vector<double> losses, norms;
  for (int i = 0; i < 3; ++i) {
    plain_optimizer.zero_grad();
    const at::Tensor loss =
        plain[1]->forward(plain[0]->forward(data)).pow(2).mean();
    loss.backward();
    norms.push_back(
        torch::nn::utils::clip_grad_norm_(all_parameters(plain), 0.1));
    plain_optimizer.step();
    losses.push_back(loss.item<double>());
  }
  run_ranks(4, [&] {
    const std::vector<DeviceMesh> meshes{mesh_on({0, 1}), mesh_on({2, 3})};
    std::vector<Stage> stages{Stage(), Stage()};
    for (size_t s = 0; s < 2; ++s) {
      parallelize_module(
          *stages[s], meshes[s],
          {{"up", ColwiseParallel()}, {"down", RowwiseParallel()}});
    }
    torch::optim::AdamW optimizer(
        all_parameters(stages), torch::optim::AdamWOptions(0.01));
    for (size_t i = 0; i < losses.size(); ++i) {
      optimizer.zero_grad();
      const at::Tensor x = distribute_tensor(data, meshes[0], {Replicate()});
      const at::Tensor between =
          redistribute(stages[0]->forward(x), meshes[1], {Replicate()});
      const at::Tensor loss = stages[1]->forward(between).pow(2).mean();
      loss.backward();
      EXPECT_NEAR(
          clip_grad_norm(all_parameters(stages), 0.1).item<double>(), norms[i],
          1e-12);
      optimizer.step();
      if (spec(loss).has_shard()) {
        EXPECT_NEAR(full_tensor(loss).item<double>(), losses[i], 1e-12);
      }
    }
    const Tensors got = all_parameters(stages);
    const Tensors want = all_parameters(plain);
    for (size_t i = 0; i < got.size(); ++i) {
      if (spec(got[i]).has_shard()) {
        EXPECT_TRUE(at::allclose(full_tensor(got[i]), want[i], 1e-12, 1e-12))
            << i;
      }
    }
  });
}

}  // namespace
}  // namespace tessera
