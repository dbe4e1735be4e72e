// What operators accept together and what they refuse: plain and sharded
// tensors, meshes, sparse results, failed calls.
#include <harness/sharded_test.h>

namespace tessera {
namespace {

using testing::close;
using testing::counting;
using testing::distinct;
using testing::error_of;
using testing::f64;
using testing::mesh_of;
using testing::same;

TEST(Operators, RefuseAMixByTheUser) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    const auto t = distribute_tensor(distinct({4, 4}), mesh, {Shard(0)});
    const auto p = distinct({4, 4});
    EXPECT_ERROR("plain and sharded tensors are mixed", t + p);
    EXPECT_ERROR("plain and sharded tensors are mixed", p.mm(t));
    EXPECT_ERROR("plain and sharded tensors are mixed", at::matmul(t, p));
    EXPECT_ERROR("plain and sharded tensors are mixed", at::cat({t, p}));
    EXPECT_ERROR(
        "aten::add.Tensor(f64[4, 4] S(0), f64[4, 4] plain, 1) on mesh(tp=2",
        t + p);
    EXPECT_ERROR("rank " + std::to_string(rank()), t + p);
    EXPECT_ERROR("distribute_optimizer()", t.clone().add_(p));
    EXPECT_EQ(error_of([&] { (t + at::scalar_tensor(2.0, f64())) * 3; }), "");
    const ImplicitReplication guard;
    EXPECT_TRUE(same(t + p, p + p));
  });
}

TEST(Operators, AcceptAtensOwnMixes) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto t =
        distribute_tensor(distinct({4, 4}), mesh, {Shard(0)}).requires_grad_();
    std::get<0>(t.max(1)).sum().backward();
    std::get<0>(t.sort(1)).sum().backward();
    std::get<0>(t.topk(2, 1)).sum().backward();
    auto p = distinct({4, 4}).requires_grad_();
    (std::get<0>(p.max(1)).sum() + p.sum() + std::get<0>(p.topk(2, 1)).sum())
        .backward();
    EXPECT_TRUE(close(t.grad(), p.grad()));
  });
}

TEST(Operators, RefuseDifferentMeshes) {
  run_ranks(4, [&] {
    const auto a =
        distribute_tensor(distinct({4}), mesh_of({4}, {"x"}), {Shard(0)});
    const auto b = distribute_tensor(
        distinct({4}), mesh_of({2, 2}, {"y", "z"}), {Shard(0), Replicate()});
    EXPECT_ERROR("mesh(x=4", a + b);
    EXPECT_ERROR("mesh(y=2, z=2", a + b);
    EXPECT_ERROR("different meshes", at::cat({a, b}));
  });
}

TEST(Operators, RefuseSparseResults) {
  run_ranks(2, [&] {
    const auto t =
        distribute_tensor(counting({4, 4}), mesh_of({2}), {Shard(0)});
    EXPECT_ERROR("strided", t.to_sparse());
  });
}

TEST(Operators, ReportAFailedRandomCallOnAllRanks) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    const auto x = ones({2, 3}, mesh, {Replicate()}, f64());
    EXPECT_NE(error_of([&] { at::multinomial(x, 7, false); }), "");
    EXPECT_TRUE(same(full_tensor(x), at::ones({2, 3}, f64())));
  });
}

}  // namespace
}  // namespace tessera
