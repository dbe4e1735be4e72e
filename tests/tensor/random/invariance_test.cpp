// The guarantee: what is drawn depends on seed, operation and global shape, not
// on mesh, placements or the number of ranks.
#include <map>

#include <plan/cases.h>
#include <tensor/random/random_ops.h>

namespace tessera {
namespace {

using testing::all_random_ops;
using testing::device;
using testing::draw_all;
using testing::f32;
using testing::filling_ops;
using testing::fractions;
using testing::mesh_of;
using testing::plain;
using testing::RandomOp;
using testing::same;

constexpr uint64_t kSeed = 20;
const std::vector<std::vector<int64_t>> kShapes = {
    {}, {0}, {1}, {7}, {13}, {4, 6}, {5, 3}, {0, 4}, {3, 4, 5}, {2, 1, 3, 2}};

using Values = std::map<std::vector<int64_t>, std::vector<at::Tensor>>;

// What one rank draws.
Values draw_alone(const std::vector<RandomOp>& ops) {
  Values values;
  for (const auto& shape : kShapes) {
    const auto x =
        distribute_tensor(fractions(shape), mesh_of({1}), {Replicate()});
    values[shape] = draw_all(ops, x, kSeed);
  }
  return values;
}

void compare(
    const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& want,
    const std::vector<RandomOp>& ops, const Layout& layout) {
  for (size_t i = 0; i < ops.size(); ++i) {
    if (want[i].defined()) {
      EXPECT_TRUE(same(got[i], want[i])) << ops[i].name << " in " << layout;
    }
  }
}

// Runs the layouts of one mesh; returns how many there were.
int64_t check_mesh(
    const std::vector<int64_t>& mesh_shape, int64_t every,
    const std::vector<RandomOp>& ops, const Values& alone) {
  std::vector<Layout> layouts;
  int64_t number = 0;
  const MeshShape shape_of_mesh(mesh_shape);
  for (const auto& shape : kShapes) {
    const auto choices = shape.empty()
                             ? cases::plain_choices(shape, shape_of_mesh)
                             : cases::rich_choices(shape, shape_of_mesh);
    for (const Layout& layout : cases::layouts(shape, shape_of_mesh, choices)) {
      if (number++ % every == 0) {
        layouts.push_back(layout);
      }
    }
  }
  run_ranks(static_cast<int>(shape_of_mesh.size()), [&] {
    const auto mesh = mesh_of(mesh_shape);
    for (const Layout& layout : layouts) {
      const auto x = distribute_tensor(
          fractions(layout.shape()), mesh, layout.placements(),
          {.src_data_rank = std::nullopt});
      try {
        compare(draw_all(ops, x, kSeed), alone.at(layout.shape()), ops, layout);
      } catch (const std::exception& e) {
        TORCH_CHECK(false, layout, ": ", e.what());
      }
      if (::testing::Test::HasFailure()) {
        return;
      }
    }
  });
  return static_cast<int64_t>(layouts.size());
}

TEST(RandomInvariance, HoldsInAThousandLayoutsOfEveryOperator) {
  const auto ops = all_random_ops();
  const auto alone = draw_alone(ops);
  int64_t layouts = 0;
  layouts += check_mesh({1}, 1, ops, alone);
  layouts += check_mesh({2}, 1, ops, alone);
  layouts += check_mesh({3}, 1, ops, alone);
  layouts += check_mesh({2, 2}, 1, ops, alone);
  layouts += check_mesh({2, 3}, 1, ops, alone);
  layouts += check_mesh({2, 2, 2}, 19, ops, alone);
  EXPECT_GE(layouts, 1000);
}

TEST(RandomInvariance, HoldsForOtherPartialKinds) {
  const auto ops = filling_ops();
  const auto alone = draw_alone(ops);
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    for (const char* placements :
         {"P(avg) S(0)", "P(max) S(0)", "P(min) R", "P(product) P(product)",
          "P(sum) P(avg)"}) {
      SCOPED_TRACE(placements);
      const auto x = distribute_tensor(
          fractions({4, 6}), mesh, parse_placements(placements));
      for (size_t i = 0; i < ops.size(); ++i) {
        // Reductions other than sum have no such dtypes.
        const at::Tensor& want = alone.at({4, 6})[i];
        if (want.scalar_type() != at::kFloat) {
          continue;
        }
        manual_seed(kSeed);
        for (size_t before = 0; before < i; ++before) {
          at::rand_like(x);  // each operation counts one
        }
        EXPECT_TRUE(same(ops[i].draw(x), want)) << ops[i].name;
      }
    }
  });
}

TEST(RandomInvariance, HoldsForFactories) {
  const auto draw = [](const DeviceMesh& mesh, const Placements& placements) {
    manual_seed(3);
    const std::vector<int64_t> shape{5, 7};
    std::vector<at::Tensor> drawn = {
        rand(shape, mesh, placements, f32()),
        randn(shape, mesh, placements, f32()),
        rand(shape, mesh, placements, at::kBFloat16),
        randint(-4, 1000, shape, mesh, placements),
        randint(0, 2, shape, mesh, placements, at::kByte)};
    bool cuts_dim_1 = false;
    for (const Placement& p : placements) {
      cuts_dim_1 = cuts_dim_1 || p.is_shard(1);
    }
    drawn.push_back(randperm(
        31, mesh,
        cuts_dim_1 ? Placements(placements.size(), Replicate()) : placements));
    for (at::Tensor& t : drawn) {
      t = plain(t);
    }
    return drawn;
  };
  const auto alone = draw(mesh_of({1}), {Shard(0)});
  run_ranks(4, [&] {
    for (const char* placements :
         {"S(0) S(1)", "S(0) S(0)", "S(0)[1] S(0)[0]", "SS(0,2) R", "R S(1)",
          "P(sum) S(0)"}) {
      const auto got = draw(mesh_of({2, 2}), parse_placements(placements));
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(same(got[i], alone[i])) << placements << ", number " << i;
      }
    }
  });
  EXPECT_TRUE(at::equal(
      std::get<0>(alone[5].sort()), at::arange(31, alone[5].options())));
  EXPECT_FALSE(at::equal(alone[5], at::arange(31, alone[5].options())));
}

TEST(RandomInvariance, DoesNotReadStrides) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    manual_seed(1);
    const auto a = empty({4, 6}, mesh, {Shard(0)}, f32()).normal_();
    manual_seed(1);
    auto b = empty({6, 4}, mesh, {Shard(1)}, f32());
    b.t_();
    b.normal_();
    EXPECT_TRUE(same(a, b));
  });
}

TEST(RandomInvariance, HoldsForLargeShards) {
  const auto draw = [](const DeviceMesh& mesh, const Placements& placements) {
    manual_seed(9);
    return std::vector<at::Tensor>{
        plain(rand({1000, 301}, mesh, placements, f32())),
        plain(randn({1000, 301}, mesh, placements, f32())),
        plain(randn({1000, 301}, mesh, placements, at::kDouble)),
        plain(randint(0, 1 << 20, {1000, 301}, mesh, placements))};
  };
  const auto alone = draw(mesh_of({1}), {Replicate()});
  run_ranks(3, [&] {
    for (const Placements& placements :
         {Placements{Shard(0)}, Placements{Shard(1)}}) {
      const auto got = draw(mesh_of({3}), placements);
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(at::equal(got[i], alone[i])) << "number " << i;
      }
    }
  });
}

}  // namespace
}  // namespace tessera
