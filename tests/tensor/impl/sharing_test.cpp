// Tensors that share memory: aliases, views and shards; who sees a write, whose
// shape changes, and what autograd notices.
#include <harness/sharded_test.h>

namespace tessera {
namespace {

using testing::close;
using testing::counting;
using testing::distinct;
using testing::error_of;
using testing::f64;
using testing::i64;
using testing::mesh_of;
using testing::same;

constexpr const char* kLayouts[] = {"R",      "S(0)",    "S(1)",
                                    "P(sum)", "SS(0,2)", "P(avg)"};
constexpr const char* kModified = "modified by an inplace operation";

TEST(Sharing, ViewsMayLiveLongerOnOneRankThanOnAnother) {
  run_ranks(2, [&] {
    auto x = distribute_tensor(counting({4, 4}), mesh_of({2}), {Shard(0)});
    auto p = counting({4, 4});
    std::vector<at::Tensor> kept;
    for (int64_t i = 0; i < 3; ++i) {
      const auto row = x.select(0, i);
      if (rank() == 0) {
        kept.push_back(row);
      }
    }
    EXPECT_TRUE(same(x.sum(), p.sum()));
    x.cumsum_(0), p.cumsum_(0);
    auto v = x.t();
    EXPECT_TRUE(same(v, p.t()));
    x.add_(1), p.add_(1);
    EXPECT_TRUE(same(v.sum(), p.sum()));
    v.mul_(2), p.mul_(2);
    EXPECT_TRUE(same(x.mm(x), p.mm(p)));
    for (const auto& row : kept) {
      EXPECT_EQ(row.sizes(), at::IntArrayRef({4}));
    }
  });
}

TEST(Sharing, OfOneLocalTensorIsSeenByTheViewsOfAllItsTensors) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto local = counting({2, 4}).add(rank() * 8);
    auto a = from_local(local, mesh, {Shard(0)});
    auto b = from_local(local, mesh, {Shard(0)});
    auto v = a.t();
    b.add_(1);
    EXPECT_TRUE(same(v, counting({4, 4}).add(1).t()));
    const auto row = b.select(0, 0);
    a.mul_(2);
    EXPECT_TRUE(same(row, counting({4, 4}).add(1).mul(2).select(0, 0)));
    v.zero_();
    EXPECT_TRUE(same(row + 1, at::ones({4}, f64())));
  });
}

TEST(Sharing, LeavesTheShapeOfAliasesAlone) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto x = distribute_tensor(counting({4, 4}), mesh, {Replicate()});
    const auto alias = x.detach();
    x.resize_({2, 8});
    EXPECT_TRUE(same(x, counting({2, 8})));
    EXPECT_TRUE(same(alias + 1, counting({4, 4}) + 1));
    x.as_strided_({2, 2}, {4, 1}, 1);
    EXPECT_TRUE(same(x, counting({4, 4}).as_strided({2, 2}, {4, 1}, 1)));
    auto out = zeros({0}, mesh, {Replicate()}, f64());
    const auto empty_alias = out.detach();
    at::mm_out(out, alias, alias);
    EXPECT_TRUE(same(out, counting({4, 4}).mm(counting({4, 4}))));
    EXPECT_TRUE(same(empty_alias + 1, counting({0})));
  });
}

TEST(Sharing, OfSetDataKeepsTheViewsOfTheOldData) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto p = counting({4, 2});
    auto a = distribute_tensor(p, mesh, {Shard(0)});
    const auto old_view = a.t();
    auto b = distribute_tensor(p + 10, mesh, {Shard(1)});
    a.set_data(b);
    a.add_(1);
    EXPECT_TRUE(same(b, p + 11));
    EXPECT_TRUE(same(old_view, p.t()));
    const auto new_view = a.t();
    b.add_(1);
    EXPECT_TRUE(same(new_view, (p + 12).t()));
  });
}

TEST(Sharing, OfDataDoesNotCountAsAWrite) {
  run_ranks(2, [&] {
    for (const char* layout : kLayouts) {
      SCOPED_TRACE(layout);
      auto t = distribute_tensor(
                   distinct({4, 6}), mesh_of({2}), parse_placements(layout))
                   .requires_grad_();
      const auto view = t.detach().t();
      const auto version = t._version();
      t.data().add_(1);
      t.variable_data().mul_(2);
      EXPECT_EQ(t._version(), version);
      EXPECT_TRUE(close(view, distinct({4, 6}).add(1).mul(2).t()));
    }
  });
}

TEST(SavedTensors, NoticeWritesToWhatSharesTheirMemory) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto local = counting({2});
    auto x = from_local(local, mesh, {Shard(0)});
    const auto plain_weight = distinct({2}).requires_grad_();
    const auto weight =
        distribute_tensor(distinct({4}), mesh, {Shard(0)}).requires_grad_();
    auto y = plain_weight * to_local(x);
    x.add_(1);
    EXPECT_ERROR(kModified, y.sum().backward());
    for (int kind = 0; kind < 3; ++kind) {
      SCOPED_TRACE(kind);
      auto z = weight * x;
      auto written = kind == 0   ? to_local(x)
                     : kind == 1 ? redistribute(x, {Shard(0)})
                                 : local;
      written.add_(1);
      EXPECT_ERROR(kModified, z.sum().backward());
    }
  });
}

TEST(Sharing, EndsWithTheLastTensor) {
  run_ranks(2, [&] {
    for (const bool in_place : {false, true}) {
      auto local = counting({2, 4});
      const auto storage = local.storage().getWeakStorageImpl();
      {
        auto t = from_local(local, mesh_of({2}), {Shard(0)}).requires_grad_();
        auto y = (t * 1).t();
        if (in_place) {
          y.add_(1);
        }
        y.mm(t).sum().backward();
        t.register_hook([](const at::Tensor& g) { return g; });
        (t * t).sum().backward();
      }
      local = at::Tensor();
      EXPECT_TRUE(storage.expired()) << in_place;
    }
  });
}

TEST(Sharing, ViewsOutliveTheirBaseAndTensorsTheirRanks) {
  std::vector<at::Tensor> kept(2), views(2);
  run_ranks(2, [&] {
    auto t = distribute_tensor(counting({4}), mesh_of({2}), {Shard(0)});
    const auto r = static_cast<size_t>(rank());
    kept[r] = t;
    at::Tensor view = t.clone().view({2, 2}).slice(0, 1, 2);
    view.add_(1);
    EXPECT_TRUE(same(view, counting({4}).view({2, 2}).slice(0, 1, 2) + 1));
    views[r] = view;
  });
  run_ranks(2, [&] {
    const auto t = distribute_tensor(counting({4}), mesh_of({2}), {Shard(0)});
    EXPECT_TRUE(same(t.sum(), counting({4}).sum()));
    EXPECT_ERROR("different meshes", t + kept[static_cast<size_t>(rank())]);
  });
  EXPECT_TRUE(same(to_local(kept[1] + 1), counting({4}).slice(0, 2, 4) + 1));
  EXPECT_TRUE(
      same(to_local(views[1]).view({2}), counting({4}).slice(0, 2, 4) + 1));
  EXPECT_NE(error_of([&] { full_tensor(kept[0].sum()); }), "");
}

TEST(Sharing, AsStridedReadsAroundAView) {
  run_ranks(2, [&] {
    const auto p = counting({4, 4});
    const auto expected = p.select(0, 1).as_strided({2, 2}, {4, 1});
    const auto strided = [&](const Placement& placement) {
      return distribute_tensor(p, mesh_of({2}), {placement})
          .select(0, 1)
          .as_strided({2, 2}, {4, 1});
    };
    EXPECT_TRUE(same(strided(Replicate()), expected));
    EXPECT_TRUE(same(strided(Shard(0)), expected)) << "of a whole copy";
    EXPECT_TRUE(same(strided(Shard(1)), expected)) << "of a shard";
  });
}

TEST(Operators, ReadAndWriteOneTensorInOneCall) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    using at::indexing::Slice;
    for (const char* layout : kLayouts) {
      SCOPED_TRACE(layout);
      auto p = counting({4, 4});
      auto t = distribute_tensor(p, mesh, parse_placements(layout));
      // ATen refuses to write what it reads; shards that had to move are read
      // from a copy.
      const bool moves = parse_placements(layout)[0].is_shard();
      if (!moves) {
        EXPECT_ERROR("single memory location", t.add_(t.t()));
      } else {
        p.add_(p.t().clone()), t.add_(t.t());
      }
      p.mul_(p), t.mul_(t);
      at::add_out(p, p, p), at::add_out(t, t, t);
      p.select(0, 0).add_(p.select(0, 1)), t.select(0, 0).add_(t.select(0, 1));
      p.slice(1, 0, 2).copy_(p.slice(1, 2, 4));
      t.slice(1, 0, 2).copy_(t.slice(1, 2, 4));
      p.diagonal().zero_(), t.diagonal().zero_();
      EXPECT_TRUE(same(t, p));
      p.index_put_({p > 100}, at::scalar_tensor(1.0, f64()));
      t.index_put_({t > 100}, at::scalar_tensor(1.0, f64()));
      const auto index = at::tensor({0, 2}, i64());
      const auto rows = distribute_tensor(index, mesh, {Shard(0)});
      p.index_put_({Slice(), index}, p.index({Slice(), index}) * 5);
      t.index_put_({Slice(), rows}, t.index({Slice(), rows}) * 5);
      EXPECT_TRUE(same(t, p));
      EXPECT_EQ(to_string(placements(t)), layout);
    }
  });
}

TEST(Operators, LeaveTensorsUnchangedWhenTheyFail) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    for (const char* layout : kLayouts) {
      SCOPED_TRACE(layout);
      auto t =
          distribute_tensor(distinct({4, 4}), mesh, parse_placements(layout));
      auto v = t.t();
      const auto version = t._version();
      const auto bad = distribute_tensor(distinct({3}), mesh, {Replicate()});
      EXPECT_NE(error_of([&] { t.add_(bad); }), "");
      EXPECT_NE(error_of([&] { v.add_(bad); }), "");
      EXPECT_NE(error_of([&] { t.mm(bad); }), "");
      EXPECT_NE(error_of([&] { t.select(0, 7); }), "");
      EXPECT_NE(error_of([&] { t.cumsum_(5); }), "");
      EXPECT_NE(error_of([&] { t.bernoulli_(7); }), "");
      EXPECT_NE(error_of([&] { t.copy_(distinct({7})); }), "");
      EXPECT_ERROR("dim must be in", t.transpose_(0, 5));
      EXPECT_ERROR("dim must be in", t.unsqueeze_(9));
      EXPECT_EQ(t._version(), version);
      EXPECT_TRUE(same(t, distinct({4, 4})));
      EXPECT_TRUE(same(v + 1, distinct({4, 4}).t() + 1));
    }
    auto cube = distribute_tensor(distinct({2, 3, 4}), mesh, {Shard(0)});
    EXPECT_ERROR("at most 2 dims", cube.t_());
    EXPECT_TRUE(same(cube, distinct({2, 3, 4})));
  });
}

TEST(Sharing, ShowsElementsOfAViewInAnotherOrder) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    for (const char* layout : {"R", "S(0)", "SS(0,2)", "P(sum)"}) {
      SCOPED_TRACE(layout);
      auto x =
          distribute_tensor(counting({12}), mesh, parse_placements(layout));
      auto p = counting({12});
      const auto overlapping = [](const at::Tensor& t) {
        return t.unsqueeze(0).as_strided({1, 4, 6}, {12, 2, 1});
      };
      EXPECT_TRUE(same(overlapping(x), overlapping(p)));
      x.requires_grad_();
      p.requires_grad_();
      full_tensor(overlapping(x)).mul(counting({4, 6})).sum().backward();
      overlapping(p).mul(counting({4, 6})).sum().backward();
      EXPECT_TRUE(same(x.grad(), p.grad()));
      EXPECT_ERROR(
          "out of bounds",
          x.detach().unsqueeze(0).as_strided({1, 4, 7}, {12, 2, 1}));
    }
  });
}

}  // namespace
}  // namespace tessera
