// The memory format of tensors that are made, moved, or gradients.
#include "tensor/impl/memory_format.h"

namespace tessera {
namespace {

using testing::by_step;
using testing::counting;
using testing::Dims;
using testing::distinct;
using testing::expect_like;
using testing::f64;
using testing::for_each_layout;
using testing::kChannelsLast;
using testing::laid_out;
using testing::mesh_of;
using testing::MeshCases;
using testing::on_line;
using testing::on_square;
using testing::ones;
using testing::same;
using testing::shard_agrees;
using testing::steps_of;

TEST(MemoryFormat, DistributeTensorKeepsItInShards) {
  for_each_layout([](const at::Tensor& plain, const DeviceMesh& mesh,
                     const Placements& placements) {
    for (const auto source :
         {std::optional<int64_t>(), std::optional<int64_t>(0)}) {
      const at::Tensor t =
          distribute_tensor(plain, mesh, placements, {.src_data_rank = source});
      expect_like(t, plain);
      EXPECT_EQ(full_tensor(t).strides(), plain.strides());
    }
  });
}

TEST(MemoryFormat, MakeDtensorKeepsItInShards) {
  for_each_layout([](const at::Tensor& plain, const DeviceMesh& mesh,
                     const Placements& placements) {
    at::Tensor t =
        at::empty_strided(plain.sizes(), plain.strides(), plain.options())
            .copy_(plain);
    t.mutable_grad() = t.clone();
    make_dtensor_(t, mesh, placements);
    expect_like(t, plain);
    expect_like(t.grad(), plain);
  });
}

TEST(MemoryFormat, FromLocalTakesItFromShards) {
  for_each_layout([](const at::Tensor& plain, const DeviceMesh& mesh,
                     const Placements& placements) {
    const at::Tensor cut =
        distribute_tensor(plain.contiguous(), mesh, placements);
    // What a rank of a plain program would hold.
    const at::Tensor local = laid_out(to_local(cut), by_step(plain));
    const at::Tensor t =
        from_local(local, mesh, placements, {.shape = plain.sizes().vec()});
    // The order of dims of which a rank has one index each cannot be seen.
    if (ones(local) <= ones(plain) + 1) {
      EXPECT_EQ(steps_of(t), steps_of(plain));
    }
    EXPECT_TRUE(shard_agrees(t));
    EXPECT_TRUE(same(t, plain));
    EXPECT_TRUE(to_local(t).is_alias_of(local));
  });
}

TEST(MemoryFormat, FromLocalWithoutAShapeTakesItFromEvenShards) {
  run_ranks(4, [] {
    const DeviceMesh mesh = mesh_of({2, 2});
    const at::Tensor images = distinct({2, 3, 4, 6}).contiguous(kChannelsLast);
    const at::Tensor batch = from_local(images, mesh, {Shard(0), Replicate()});
    EXPECT_EQ(batch.sizes(), at::IntArrayRef({4, 3, 4, 6}));
    EXPECT_TRUE(batch.is_contiguous(kChannelsLast));
    EXPECT_FALSE(batch.is_contiguous());
    const at::Tensor channels = from_local(images, mesh, {Shard(3), Shard(1)});
    EXPECT_EQ(channels.strides(), at::IntArrayRef({288, 1, 72, 6}));
    const at::Tensor sum = from_local(images, mesh, {Partial(), Partial()});
    EXPECT_EQ(sum.strides(), images.strides());
    const at::Tensor turned =
        from_local(distinct({3, 2}).t(), mesh, {Shard(0), Shard(1)});
    EXPECT_EQ(turned.strides(), at::IntArrayRef({1, 4}));
    const at::Tensor column =
        from_local(distinct({3, 1}).t(), mesh, {Shard(0), Replicate()});
    EXPECT_EQ(column.strides(), at::IntArrayRef({1, 2}));
  });
}

TEST(MemoryFormat, FromLocalTakesShardsThatAreNotDenseAsContiguous) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    const at::Tensor base = distinct({6, 4});
    for (const at::Tensor& local :
         {base.slice(1, 0, 3), base.t().slice(0, 0, 4, 2),
          distinct({4}).expand({2, 4}), distinct({1}).expand({3, 1})}) {
      SCOPED_TRACE(::testing::Message() << local.strides());
      const at::Tensor t = from_local(local, mesh, {Shard(0)});
      const at::Tensor whole = at::cat({local, local}).contiguous();
      EXPECT_EQ(t.strides(), whole.strides());
      EXPECT_TRUE(same(t, whole));
      EXPECT_TRUE(same(t.view({-1}), whole.view({-1})));
      EXPECT_TRUE(to_local(t).is_alias_of(local));
    }
  });
}

TEST(MemoryFormat, FromLocalWithAStrideSaysThatOne) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    const at::Tensor local = distinct({2, 3});
    const at::Tensor t = from_local(
        local, mesh, {Shard(0)}, {.shape = Dims{4, 3}, .stride = Dims{1, 4}});
    EXPECT_EQ(t.strides(), at::IntArrayRef({1, 4}));
    EXPECT_EQ(to_local(t).strides(), local.strides());
    EXPECT_TRUE(
        same(t.t().view({12}), at::cat({local, local}).t().reshape({12})));
  });
}

// Ranks that lie differently mean the same elements all the same.
TEST(MemoryFormat, OfRanksMayDiffer) {
  run_ranks(3, [] {
    const DeviceMesh mesh = mesh_of({3});
    const at::Tensor whole = counting({5, 4});
    const at::Tensor mine =
        whole.narrow(0, std::min<int64_t>(2 * rank(), 4), rank() < 2 ? 2 : 1);
    const at::Tensor t = from_local(
        rank() == 1 ? laid_out(mine, {1, 0}) : mine.clone(), mesh, {Shard(0)},
        {.shape = Dims{5, 4}});
    EXPECT_TRUE(same(t, whole));
    for (const Placements& to :
         {Placements{Shard(1)}, {StridedShard(0, 2)}, {Partial()}}) {
      EXPECT_TRUE(same(redistribute(t, to), whole));
    }
    EXPECT_TRUE(same(t.sum(0), whole.sum(0)));
    EXPECT_TRUE(same(t.reshape({20}), whole.reshape({20})));
  });
}

TEST(MemoryFormat, RedistributionsKeepIt) {
  for_each_layout([](const at::Tensor& plain, const DeviceMesh& mesh,
                     const Placements& placements) {
    const at::Tensor t = distribute_tensor(plain, mesh, placements);
    const MeshCases layouts =
        mesh.ndim() == 2 ? on_square(plain) : on_line(plain, mesh.size());
    for (const Placements& to : layouts.placements) {
      SCOPED_TRACE(to_string(to));
      expect_like(redistribute(t, to), plain);
      expect_like(redistribute(t, to, {.async = true}), plain);
    }
  });
}

TEST(MemoryFormat, RedistributionsToAnotherMeshKeepIt) {
  run_ranks(4, [] {
    const at::Tensor plain = distinct({5, 3, 4, 2}).contiguous(kChannelsLast);
    const DeviceMesh line = mesh_of({4});
    const DeviceMesh square = mesh_of({2, 2});
    const at::Tensor t = distribute_tensor(plain, line, {Shard(0)});
    const at::Tensor moved = redistribute(t, square, {Shard(1), Shard(3)});
    expect_like(moved, plain);
    expect_like(redistribute(moved, line, {Replicate()}), plain);
  });
}

TEST(MemoryFormat, RedistributionsOfSlicesAreDense) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    const at::Tensor plain = distinct({4, 6, 4, 3}).contiguous(kChannelsLast);
    const at::Tensor t = distribute_tensor(plain, mesh, {Shard(0)});
    const at::Tensor part = t.slice(1, 1, 4);
    expect_like(redistribute(part, {Shard(2)}), plain.slice(1, 1, 4).clone());
    expect_like(
        redistribute(part, {Replicate()}), plain.slice(1, 1, 4).clone());
  });
}

TEST(MemoryFormat, ARankOutsideTheMeshSaysTheSame) {
  run_ranks(3, [] {
    const at::Tensor plain = distinct({5, 3, 4, 2}).contiguous(kChannelsLast);
    const DeviceMesh mesh = mesh_of({2});
    const at::Tensor t = distribute_tensor(plain, mesh, {Shard(0)});
    expect_like(t, plain);
    expect_like(redistribute(t, {Shard(1)}), plain);
    EXPECT_EQ(t.relu().strides(), plain.strides());
  });
}

// Gradients come back in the format of what they are gradients of.
TEST(MemoryFormat, GradientsHaveThatOfTheirTensor) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    const at::Tensor weights = distinct({4, 3, 2, 5});
    for (const at::Tensor& value :
         {distinct({4, 3, 2, 5}),
          distinct({4, 3, 2, 5}).contiguous(kChannelsLast)}) {
      const at::Tensor plain = value.clone().requires_grad_();
      (plain * plain * weights).sum().backward();
      for (const Placement& placement :
           {Placement(Replicate()), Placement(Shard(0)), Placement(Shard(1))}) {
        const at::Tensor t =
            distribute_tensor(value, mesh, {placement}).requires_grad_();
        const at::Tensor w = distribute_tensor(weights, mesh, {Replicate()});
        const at::Tensor moved = redistribute(t, {Shard(3)});
        (t * moved * w).sum().backward();
        expect_like(t.grad(), plain.grad());
        t.mutable_grad().reset();
        const at::Tensor local = to_local(t);
        const at::Tensor own = to_local(redistribute(w, {placement}));
        from_local(local * local * own, mesh, {placement}).sum().backward();
        expect_like(t.grad(), plain.grad());
      }
    }
  });
}

TEST(MemoryFormat, EmptyTakesOne) {
  run_ranks(3, [] {
    const DeviceMesh mesh = mesh_of({3});
    for (const char* layout : {"R", "S(0)", "S(1)", "S(3)"}) {
      const at::Tensor t = tessera::empty(
                               {4, 5, 2, 3}, mesh, parse_placements(layout),
                               f64().memory_format(kChannelsLast))
                               .fill_(7);
      expect_like(
          t, at::full({4, 5, 2, 3}, 7, f64()).contiguous(kChannelsLast));
    }
    EXPECT_ERROR(
        "4 dims",
        tessera::empty(
            {4, 5}, mesh, {Shard(0)}, f64().memory_format(kChannelsLast)));
    EXPECT_TRUE(
        tessera::randn(
            {4, 5, 2, 3}, mesh, {Shard(0)}, f64().memory_format(kChannelsLast))
            .is_contiguous());
  });
}

}  // namespace
}  // namespace tessera
