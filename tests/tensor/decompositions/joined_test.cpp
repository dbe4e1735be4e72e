// cat and stack of tensors along the dim that is cut, and unbind of it: values,
// gradients, and exactly the rows that change their rank.
#include <tensor/decompositions/along_cut_dims.h>

namespace tessera {
namespace {

using testing::bytes_of;
using testing::cut_of;
using testing::distinct;
using testing::expect_equal;
using testing::f32;
using testing::mesh_of;
using testing::same;
using testing::Tensors;

TEST(Joined, TensorsOfAllLengthsEqualThePlainCat) {
  for (const auto& lengths : std::vector<std::vector<int64_t>>{
           {8, 3}, {1, 7, 2}, {0, 5}, {2, 2, 2}}) {
    SCOPED_TRACE(c10::str("lengths ", lengths));
    Tensors inputs;
    for (const int64_t length : lengths) {
      inputs.push_back(distinct({length, 3}) + length);
    }
    const std::vector<int64_t> all(lengths.size(), 0);
    std::vector<int64_t> first(lengths.size(), -1);
    first[0] = 0;
    const auto join = [](const Tensors& x) { return Tensors{at::cat(x, 0)}; };
    expect_equal("all cut", inputs, all, join);
    expect_equal("one cut", inputs, first, join);
    expect_equal("slices", inputs, all, [](const Tensors& x) {
      return Tensors{at::cat({x[0].narrow(0, 0, x[0].size(0) / 2), x[1]}, 0)};
    });
  }
  expect_equal(
      "columns", {distinct({3, 5}), distinct({3, 2})}, {1, 1},
      [](const Tensors& x) {
        return Tensors{at::cat({x[1], x[0]}, -1)};
      });
}

// As [] of old, which cat() takes beside tensors of any dims.
TEST(Joined, SkipsATensorWithoutElements) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const at::Tensor a = distinct({4, 5}, f32());
    for (const Placement& p : {Placement(Shard(0)), Placement(Replicate())}) {
      const at::Tensor none = cut_of(at::empty({0}, f32()), mesh, {p});
      const at::Tensor x = cut_of(a, mesh, {Shard(1)});
      EXPECT_TRUE(same(at::cat({none, x}, 1), a));
      EXPECT_TRUE(same(at::cat({x, none}, 1), a));
    }
  });
}

// 8 and 4 rows over 4: 2 and 1 on each, then 3 on each. Rows 0 1 | 2 3 | 4 5 |
// 6 7 and 8 | 9 | 10 | 11 become 0 1 2 | 3 4 5 | 6 7 8 | 9 10 11.
TEST(Joined, SendsTheRowsThatChangeTheirRank) {
  run_ranks(5, [&] {  // one is outside
    const auto mesh = mesh_of({4});
    const StrictMode strict({.communication = false, .gathers = true});
    const at::Tensor a = distinct({8, 5}, f32());
    const at::Tensor b = distinct({4, 5}, f32()) + 100;
    const at::Tensor x = cut_of(a, mesh, {Shard(0)});
    const at::Tensor y = cut_of(b, mesh, {Shard(0)});
    at::Tensor both;
    const std::vector<int64_t> moved{1, 2, 3, 2, 0};
    EXPECT_EQ(
        bytes_of([&] {
          return both = at::cat({x, y});
        }),
        moved[static_cast<size_t>(rank())] * 5 * 4);
    EXPECT_EQ(placements(both), Placements{Shard(0)});
    if (rank() < 4) {
      EXPECT_TRUE(same(both, at::cat({a, b})));
    }
    EXPECT_NE(
        explain("cat", at::TensorList({x, y})).find("rows of neighbours, "),
        std::string::npos);
  });
}

TEST(Unbind, GivesEachRowToTheRankThatHoldsIt) {
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{8, 3}, {7, 2}, {2, 5, 3}, {3, 1}}) {
    for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
      expect_equal("unbind", {distinct(shape)}, {d}, [&](const Tensors& x) {
        Tensors rows = x[0].unbind(d);
        for (at::Tensor& row : rows) {
          row = row * 2;
        }
        return rows;
      });
    }
  }
  run_ranks(5, [&] {  // one is outside
    const auto mesh = mesh_of({4});
    const StrictMode strict({.communication = false, .gathers = true});
    const at::Tensor plain = distinct({8, 16}, f32());
    at::Tensor x = cut_of(plain, mesh, {Shard(0)});
    Tensors rows;
    EXPECT_EQ(
        bytes_of([&] {
          rows = x.unbind(0);
          return 0;
        }),
        0);
    ASSERT_EQ(rows.size(), 8U);
    EXPECT_EQ(placements(rows[5]), Placements{RaggedShard(0, {0, 0, 16, 0})});
    if (rank() < 4) {
      EXPECT_TRUE(same(rows[5], plain[5]));
    }
    x.set_requires_grad(true);
    const at::Tensor sum = x.unbind(0)[5].sum();
    sum.backward();
    EXPECT_EQ(placements(x.grad()), Placements{Shard(0)});
  });
}

}  // namespace
}  // namespace tessera
