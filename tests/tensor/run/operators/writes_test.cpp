// Operators that write: in place, into out arguments, and those that change
// shapes.
#include <harness/sharded_test.h>

namespace tessera {
namespace {

using testing::close;
using testing::counting;
using testing::distinct;
using testing::f64;
using testing::i64;
using testing::mesh_of;
using testing::same;

TEST(Operators, WriteInPlaceIntoTheSameShard) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    for (const char* text : {"R", "S(0)", "S(1)", "P(sum)", "SS(0,2)"}) {
      SCOPED_TRACE(text);
      const auto start = distinct({5, 4});
      auto t = distribute_tensor(start, mesh, parse_placements(text));
      const auto memory = to_local(t).const_data_ptr();
      auto p = start.clone();
      const auto other = distribute_tensor(distinct({4}), mesh, {Replicate()});
      t.mul_(2).add_(other).cumsum_(0).clamp_(-1, 1);
      p.mul_(2).add_(distinct({4})).cumsum_(0).clamp_(-1, 1);
      EXPECT_TRUE(close(t, p));
      EXPECT_EQ(to_string(placements(t)), text);
      EXPECT_EQ(to_local(t).const_data_ptr(), memory);
    }
  });
}

TEST(Operators, WriteIntoOutArguments) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    const auto a = distribute_tensor(distinct({5, 4}), mesh, {Shard(0)});
    const auto b = distribute_tensor(distinct({4, 3}), mesh, {Replicate()});
    auto out = zeros({5, 3}, mesh, {Shard(1)}, f64());
    at::mm_out(out, a, b);
    EXPECT_TRUE(close(out, distinct({5, 4}).mm(distinct({4, 3}))));
    EXPECT_EQ(to_string(placements(out)), "S(1)");
    auto grown = zeros({0}, mesh, {Shard(0)}, f64());
    at::mm_out(grown, a, b);
    EXPECT_TRUE(close(grown, distinct({5, 4}).mm(distinct({4, 3}))));
    auto values = zeros({5}, mesh, {Shard(0)}, f64());
    auto indices = zeros({5}, mesh, {Replicate()}, i64());
    at::max_out(values, indices, a, 1);
    EXPECT_TRUE(same(values, std::get<0>(distinct({5, 4}).max(1))));
    EXPECT_TRUE(same(indices, std::get<1>(distinct({5, 4}).max(1))));
  });
}

TEST(Operators, ChangeShapesInPlaceAndKeepTheShard) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    auto t = distribute_tensor(counting({5, 1, 4}), mesh, {Shard(0)});
    auto p = counting({5, 1, 4});
    t.squeeze_(1).t_().unsqueeze_(0).transpose_(0, 2);
    p.squeeze_(1).t_().unsqueeze_(0).transpose_(0, 2);
    EXPECT_TRUE(same(t, p));
    EXPECT_EQ(t.sizes(), p.sizes());
    EXPECT_EQ(to_string(placements(t)), "S(0)");
    auto one = distribute_tensor(counting({1, 4}), mesh, {Shard(0)});
    EXPECT_ERROR("would vanish", one.squeeze_(0));
    EXPECT_ERROR("cannot change its memory", one.as_strided_({2, 2}, {2, 1}));
    EXPECT_TRUE(same(one.resize_({1, 4}), counting({1, 4})));
  });
}

TEST(Operators, ResizeCutTensorsAndKeepTheFirstElements) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    for (const char* layout : {"R", "S(0)", "S(1)", "SS(0,2)", "P(sum)"}) {
      SCOPED_TRACE(layout);
      const auto x =
          distribute_tensor(counting({5, 4}), mesh, parse_placements(layout));
      EXPECT_TRUE(same(x.clone().resize_({2, 5, 2}), counting({2, 5, 2})));
      EXPECT_TRUE(same(x.clone().resize_({3}), counting({3})));
      const auto grown = x.clone().resize_({6, 4});
      EXPECT_EQ(grown.sizes(), at::IntArrayRef({6, 4}));
      EXPECT_TRUE(same(grown.slice(0, 0, 5), counting({5, 4})));
      auto like = x.clone();
      like.resize_as_(distribute_tensor(counting({4, 5}), mesh, {Shard(1)}));
      EXPECT_TRUE(same(like, counting({4, 5})));
    }
    auto turned =
        distribute_tensor(counting({5, 4}), mesh, {Shard(0)}).t().clone();
    EXPECT_FALSE(turned.is_contiguous());
    EXPECT_ERROR("only a contiguous", turned.resize_({3}));
  });
}

// A shard may have one row of them, and another several.
TEST(Writes, OverlappingRowsAreCopiedOnEveryRank) {
  for (const int64_t rows : {5, 7, 8}) {
    const at::Tensor whole = distinct({rows, 3});
    at::Tensor want = whole.clone();
    want.narrow(0, 0, rows - 1).copy_(whole.narrow(0, 1, rows - 1));
    run_ranks(4, [&] {
      const at::Tensor x = distribute_tensor(whole, mesh_of({4}), {Shard(0)});
      x.narrow(0, 0, rows - 1).copy_(x.narrow(0, 1, rows - 1));
      EXPECT_TRUE(close(x, want)) << rows;
    });
  }
}

}  // namespace
}  // namespace tessera
