// Where the results of operators lie and what they hold: shards that stay
// local, random numbers, partial values, ranks outside the mesh.
#include <harness/sharded_test.h>

namespace tessera {
namespace {

using testing::close;
using testing::counting;
using testing::distinct;
using testing::f64;
using testing::mesh_of;

TEST(Operators, StayLocalWhereLayoutsAreEqual) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    const auto a = distribute_tensor(distinct({5, 4}), mesh, {Shard(0)});
    const auto b = distribute_tensor(distinct({5, 4}), mesh, {Shard(0)});
    for (const at::Tensor& t :
         {a + b, a * 2, a.exp(), at::where(a > b, a, b), a.clone(),
          at::zeros_like(a), a.to(at::kFloat), a.detach(), a.new_zeros({5, 4}),
          a.new_empty_strided({5, 4}, {4, 1}).fill_(1)}) {
      EXPECT_EQ(to_string(placements(t)), "S(0)");
      EXPECT_EQ(to_local(t).size(0), rank() == 2 ? 1 : 2);
    }
    EXPECT_EQ(to_string(placements(a.new_zeros({2}))), "R");
    EXPECT_EQ(a.to(at::kFloat).scalar_type(), at::kFloat);
  });
}

TEST(Operators, DrawTheSameRandomNumbersOnAllRanks) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const auto x = zeros({64}, mesh, {Shard(0)}, f64());
    const auto whole = full_tensor(at::rand_like(x));
    const auto check =
        from_local(whole, mesh, {Replicate()}, {.run_check = true});
    EXPECT_GT(whole.std().item<double>(), 0.1);
    auto y = zeros({64}, mesh, {Shard(0)}, f64());
    y.normal_();
    const auto drawn = full_tensor(y);
    from_local(drawn, mesh, {Replicate()}, {.run_check = true});
    EXPECT_GT(drawn.std().item<double>(), 0.5);
    const auto kept =
        at::dropout(ones({400}, mesh, {Shard(0)}, f64()), 0.5, true);
    EXPECT_NEAR(full_tensor(kept).mean().item<double>(), 1.0, 0.3);
    from_local(full_tensor(kept), mesh, {Replicate()}, {.run_check = true});
  });
}

TEST(Operators, ReadValuesOfPartialTensorsReduced) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    const auto p = from_local(at::ones({}, f64()), mesh, {Partial()});
    EXPECT_EQ(p.item<double>(), 3.0);
    EXPECT_TRUE(at::equal(
        distribute_tensor(counting({5}), mesh, {Shard(0)}),
        distribute_tensor(counting({5}), mesh, {Replicate()})));
    EXPECT_FALSE(at::equal(
        distribute_tensor(counting({5}), mesh, {Shard(0)}),
        distribute_tensor(counting({5}) + 1, mesh, {Replicate()})));
  });
}

TEST(Operators, GiveEmptyResultsOutsideTheMesh) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({2});
    auto a =
        distribute_tensor(distinct({5, 4}), mesh, {Shard(0)}).requires_grad_();
    const auto b = distribute_tensor(distinct({4, 3}), mesh, {Replicate()});
    auto y = a.mm(b).relu().sum(0);
    auto z = a * 2;
    EXPECT_EQ(y.sizes(), at::IntArrayRef({3}));
    EXPECT_EQ(to_string(placements(z)), "S(0)");
    y.sum().backward();
    EXPECT_EQ(a.grad().sizes(), a.sizes());
    if (rank() == 2) {
      EXPECT_ERROR("outside the mesh", y.sum().item());
    } else {
      auto p = distinct({5, 4}).requires_grad_();
      p.mm(distinct({4, 3})).relu().sum().backward();
      EXPECT_TRUE(close(a.grad(), p.grad()));
    }
  });
}

}  // namespace
}  // namespace tessera
