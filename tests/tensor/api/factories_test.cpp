// Sharded factories give the plain tensors, cut.
#include <harness/sharded_test.h>

namespace tessera {
namespace {

using testing::device;
using testing::error_of;
using testing::f64;
using testing::i64;
using testing::mesh_of;
using testing::same;

TEST(Factories, GiveThePlainValuesInEveryPlacement) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    for (const char* text :
         {"R", "S(0)", "S(1)", "P(sum)", "P(max)", "P(product)", "SS(0,2)"}) {
      SCOPED_TRACE(text);
      const auto p = parse_placements(text);
      EXPECT_TRUE(
          same(zeros({5, 2}, mesh, p, f64()), at::zeros({5, 2}, f64())));
      EXPECT_TRUE(same(ones({5, 2}, mesh, p, f64()), at::ones({5, 2}, f64())));
      EXPECT_TRUE(
          same(full({5, 2}, 7, mesh, p, i64()), at::full({5, 2}, 7, i64())));
      EXPECT_EQ(empty({5, 2}, mesh, p).sizes(), at::IntArrayRef({5, 2}));
      EXPECT_EQ(to_string(placements(empty({5, 2}, mesh, p))), text);
    }
    for (const char* text : {"R", "S(0)", "P(sum)"}) {
      const auto p = parse_placements(text);
      EXPECT_TRUE(
          same(arange(1, 9, 2, mesh, p, i64()), at::arange(1, 9, 2, i64())));
      EXPECT_TRUE(same(
          linspace(0, 1, 7, mesh, p, f64()), at::linspace(0, 1, 7, f64())));
      EXPECT_TRUE(same(
          logspace(0, 2, 7, 10.0, mesh, p, f64()),
          at::logspace(0, 2, 7, 10.0, f64())));
    }
  });
}

TEST(Factories, HonourOptions) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    EXPECT_TRUE(zeros({4}, mesh, {Shard(0)}, f64().requires_grad(true))
                    .requires_grad());
    EXPECT_EQ(zeros({4}, mesh, {Shard(0)}).scalar_type(), at::kFloat);
    EXPECT_EQ(
        ones({4}, mesh, {Shard(0)}, at::kBFloat16).scalar_type(),
        at::kBFloat16);
    EXPECT_EQ(randint(0, 5, {4}, mesh, {Shard(0)}).scalar_type(), at::kLong);
    EXPECT_ERROR(
        "strided",
        zeros({4}, mesh, {Shard(0)}, at::TensorOptions().layout(at::kSparse)));
    EXPECT_ERROR(
        "mesh's type",
        zeros(
            {4}, mesh, {Shard(0)},
            at::TensorOptions(device() == at::kCPU ? at::kCUDA : at::kCPU)));
    EXPECT_ERROR("dim", zeros({4}, mesh, {Shard(1)}));
    EXPECT_ERROR("placement", zeros({4}, mesh, {}));
  });
}

TEST(Factories, DrawOneTensorForAllRanks) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    for (const auto& t :
         {rand({40}, mesh, {Shard(0), Replicate()}, f64()),
          randn({40}, mesh, {Shard(0), Shard(0)}, f64()),
          randint(0, 1000, {40}, mesh, {Replicate(), Shard(0)}, f64())}) {
      const auto whole = full_tensor(t);
      from_local(whole, mesh, {Replicate(), Replicate()}, {.run_check = true});
      EXPECT_GT(std::get<0>(at::_unique(whole)).numel(), 30);
    }
  });
}

TEST(Specs, AreInternedPerRank) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto a = zeros({4}, mesh, {Shard(0)});
    const auto b = ones({4}, mesh, {Shard(-1)});
    EXPECT_EQ(&spec(a), &spec(b));
    EXPECT_NE(&spec(a), &spec(zeros({4}, mesh, {Replicate()})));
    EXPECT_EQ(spec(a).local_shape(), std::vector<int64_t>{2});
    EXPECT_EQ(
        spec(a).with_placements({Replicate()}).get(),
        &spec(zeros({4}, mesh, {Replicate()})));
    EXPECT_EQ(spec(a).with_dtype(at::kLong)->dtype(), at::kLong);
    EXPECT_EQ(spec(a).with_dtype(at::kLong)->placements()[0], Shard(0));
    const SpecPtr spread = spec(a).with_shape({6, 2}, {1, 6});
    EXPECT_EQ(spread->local_shape(), (std::vector<int64_t>{3, 2}));
    EXPECT_EQ(
        spread->contiguous({Shard(1)}, at::kFloat)->strides(),
        (std::vector<int64_t>{2, 1}));
  });
}

}  // namespace
}  // namespace tessera
