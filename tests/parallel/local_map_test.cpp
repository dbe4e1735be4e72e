// local_map: plain functions on shards.
#include "gpt_training.h"

namespace tessera {
namespace {

using testing::close;
using testing::distinct;
using testing::mesh_of;
using Tensors = std::vector<at::Tensor>;

TEST(LocalMap, PutsTheResultsOfShardsTogether) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2}, {"dp", "tp"});
    const Placements rows{Shard(0), Replicate()};
    const Placements inner{Shard(0), Shard(1)};
    const auto f = local_map(
        [](const Tensors& t) {
          EXPECT_FALSE(is_dtensor(t[0]));
          return Tensors{t[0].matmul(t[1]), t[0].exp()};
        },
        {{Shard(0), Partial()}, inner},
        {inner, Placements{Replicate(), Shard(0)}}, mesh);
    const at::Tensor a = distinct({4, 6}).requires_grad_();
    const at::Tensor b = distinct({6, 3}).requires_grad_();
    const at::Tensor x =
        distribute_tensor(a.detach(), mesh, inner).requires_grad_();
    const at::Tensor w =
        distribute_tensor(b.detach(), mesh, {Replicate(), Shard(0)})
            .requires_grad_();
    const Tensors y = f({x, w});
    EXPECT_TRUE(close(y[0], a.matmul(b)));
    EXPECT_TRUE(close(y[1], a.exp()));
    (y[0] * y[0]).sum().backward();
    const at::Tensor want = a.matmul(b);
    (want * want).sum().backward();
    EXPECT_TRUE(close(x.grad(), a.grad()));
  });
}

// The gradient of an argument that every rank uses on its own rows is an
// addend.
TEST(LocalMap, TakesThePlacementsOfGradients) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    LocalMapOptions options;
    options.in_grad_placements = {std::nullopt, Placements{Partial()}};
    const auto f = local_map(
        [](const Tensors& t) { return Tensors{t[0] * t[1]}; }, {{Shard(0)}},
        {Placements{Shard(0)}, Placements{Replicate()}}, mesh, options);
    const at::Tensor a = distinct({4, 3});
    const at::Tensor b = distinct({3}).requires_grad_();
    const at::Tensor w =
        distribute_tensor(b.detach(), mesh, {Replicate()}).requires_grad_();
    f({distribute_tensor(a, mesh, {Shard(0)}), w})[0].sum().backward();
    (a * b).sum().backward();
    EXPECT_TRUE(close(w.grad(), b.grad()));
  });
}

TEST(LocalMap, MovesArgumentsWhereItMay) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto twice = [](const Tensors& t) { return Tensors{t[0] * 2}; };
    const at::Tensor a = distinct({4, 2});
    const auto x = distribute_tensor(a, mesh, {Shard(1)});
    const std::vector<Placements> out{{Shard(0)}};
    const std::vector<std::optional<Placements>> in{Placements{Shard(0)}};
    EXPECT_ERROR(
        "argument 0 must be in S(0); got S(1)",
        local_map(twice, out, in, mesh)({x}));
    EXPECT_TRUE(close(
        local_map(twice, out, in, mesh, {.redistribute_inputs = true})({x})[0],
        a * 2));
  });
}

TEST(LocalMap, CountsDimsFromTheEndToo) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const at::Tensor a = distinct({3, 4});
    const auto f = local_map(
        [](const Tensors& t) { return Tensors{t[0] * 2}; }, {{Shard(-1)}},
        {Placements{Shard(-1)}}, mesh);
    EXPECT_TRUE(close(f({distribute_tensor(a, mesh, {Shard(1)})})[0], a * 2));
    LocalMapOptions options;
    options.out_shapes = {{1}, {2}};
    EXPECT_ERROR(
        "an entry per argument and per result",
        local_map(
            [](const Tensors& t) { return t; }, {{Shard(0)}},
            {Placements{Shard(0)}}, mesh, options));
  });
}

TEST(LocalMap, KnowsThatUnevenPartsDoNotTellTheWhole) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto twice = [](const Tensors& t) { return Tensors{t[0] * 2}; };
    const at::Tensor a = distinct({3, 2});
    const auto x = distribute_tensor(a, mesh, {Shard(0)});
    EXPECT_ERROR(
        "set out_shapes",
        local_map(twice, {{Shard(0)}}, {Placements{Shard(0)}}, mesh)({x}));
    const auto f = local_map(
        twice, {{Shard(0)}}, {Placements{Shard(0)}}, mesh,
        {.out_shapes = {{3, 2}}});
    EXPECT_TRUE(close(f({x})[0], a * 2));
  });
}

TEST(LocalMap, RefusesArgumentsAndResultsThatDoNotMatch) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto x = distribute_tensor(distinct({4}), mesh, {Shard(0)});
    const auto same = [](const Tensors& t) { return t; };
    const auto f = local_map(same, {{Shard(0)}}, {Placements{Shard(0)}}, mesh);
    EXPECT_ERROR("an argument per in-placement; got 2 and 1", f({x, x}));
    EXPECT_ERROR("has in-placements and is plain", f({distinct({4})}));
    EXPECT_ERROR(
        "has no in-placements",
        local_map(same, {{Shard(0)}}, {std::nullopt}, mesh)({x}));
    EXPECT_ERROR(
        "a tensor per out-placement; got 0 and 1",
        local_map(
            [](const Tensors&) { return Tensors{}; }, {{Shard(0)}},
            {Placements{Shard(0)}}, mesh)({x}));
    EXPECT_ERROR(
        "must be a plain tensor",
        local_map(
            [&](const Tensors&) { return Tensors{x}; }, {{Shard(0)}},
            {Placements{Shard(0)}}, mesh)({x}));
  });
}

}  // namespace
}  // namespace tessera
