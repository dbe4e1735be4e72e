// What a sharded tensor says of its memory format, and what its shards have:
// both are those of the plain tensor, see Note [How shards lie in memory],
// src/tensor/state/strides.h. The reference looks at strides only.
#include <harness/sharded_test.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace tessera {
namespace {

using testing::close;
using testing::counting;
using testing::distinct;
using testing::error_of;
using testing::f32;
using testing::f64;
using testing::mesh_of;
using testing::same;

using Dims = std::vector<int64_t>;

constexpr auto kChannelsLast = at::MemoryFormat::ChannelsLast;
constexpr auto kChannelsLast3d = at::MemoryFormat::ChannelsLast3d;

// The dims, the one with the largest step first.
Dims by_step(const at::Tensor& t) {
  Dims order(static_cast<size_t>(t.dim()));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return t.stride(a) > t.stride(b);
  });
  return order;
}

// The strides that elements are reached by: dims of one index have none.
Dims steps_of(const at::Tensor& t) {
  Dims steps;
  for (int64_t d = 0; d < t.dim(); ++d) {
    steps.push_back(t.numel() > 0 && t.size(d) > 1 ? t.stride(d) : 0);
  }
  return steps;
}

int64_t ones(const at::Tensor& t) {
  return std::count(t.sizes().begin(), t.sizes().end(), 1);
}

// A dense tensor of this value, its dims from outermost to innermost.
at::Tensor laid_out(const at::Tensor& value, const Dims& order) {
  Dims back(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  return value.permute(order).clone(at::MemoryFormat::Contiguous).permute(back);
}

// Tells whether this rank's shard lies as the tensor says it does.
::testing::AssertionResult shard_agrees(const at::Tensor& t) {
  const at::Tensor local = to_local(t.detach());
  std::string wrong;
  if (!spec(t).has_shard() || local.numel() == 0) {
    return ::testing::AssertionSuccess();
  }
  if (!local.permute(by_step(t)).is_contiguous()) {
    wrong = "is not dense in this order";
  }
  if (t.is_contiguous() && !local.is_contiguous()) {
    wrong = "is not contiguous";
  }
  if (t.dim() == 4 && t.is_contiguous(kChannelsLast) &&
      !local.is_contiguous(kChannelsLast)) {
    wrong = "is not channels_last";
  }
  if (t.dim() == 5 && t.is_contiguous(kChannelsLast3d) &&
      !local.is_contiguous(kChannelsLast3d)) {
    wrong = "is not channels_last_3d";
  }
  return wrong.empty() ? ::testing::AssertionSuccess()
                       : ::testing::AssertionFailure()
                             << "rank " << rank() << ": shard " << local.sizes()
                             << " by " << local.strides() << " of "
                             << to_string(spec(t)) << " by " << t.strides()
                             << ' ' << wrong;
}

void expect_like(const at::Tensor& t, const at::Tensor& plain) {
  EXPECT_EQ(t.strides(), plain.strides());
  EXPECT_EQ(spec(t).strides(), plain.strides().vec());
  EXPECT_EQ(t.is_contiguous(), plain.is_contiguous());
  EXPECT_EQ(t.suggest_memory_format(), plain.suggest_memory_format());
  if (plain.dim() == 4) {
    EXPECT_EQ(
        t.is_contiguous(kChannelsLast), plain.is_contiguous(kChannelsLast));
  }
  EXPECT_TRUE(shard_agrees(t));
  if (spec(t).has_shard()) {
    EXPECT_TRUE(same(t, plain));
  }
}

// The shapes, with every order of dims up to three, and images.
std::vector<at::Tensor> plain_cases() {
  std::vector<at::Tensor> all;
  for (const Dims& shape :
       {Dims{5}, Dims{5, 3}, Dims{1, 4}, Dims{4, 1}, Dims{4, 6}, Dims{5, 3, 2},
        Dims{4, 1, 2}}) {
    Dims order(shape.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    do {
      all.push_back(laid_out(counting(shape), order));
    } while (std::next_permutation(order.begin(), order.end()));
  }
  for (const Dims& shape :
       {Dims{4, 3, 2, 5}, Dims{5, 4, 3, 2}, Dims{2, 1, 4, 3}, Dims{1, 4, 3, 3},
        Dims{4, 6, 1, 1}, Dims{0, 3, 2, 2}, Dims{3, 2, 0, 2}}) {
    const at::Tensor value = counting(shape);
    all.push_back(value);
    all.push_back(
        at::empty(shape, f64().memory_format(kChannelsLast)).copy_(value));
    all.push_back(laid_out(value, {1, 3, 0, 2}));
  }
  all.push_back(at::empty({2, 3, 4, 2, 3}, f64().memory_format(kChannelsLast3d))
                    .copy_(counting({2, 3, 4, 2, 3})));
  return all;
}

// A mesh and every kind of placement of a tensor on it.
struct MeshCases {
  Dims mesh;
  std::vector<Placements> placements;
};

int ranks_of(const MeshCases& layouts) {
  return static_cast<int>(c10::multiply_integers(layouts.mesh));
}

MeshCases on_line(const at::Tensor& plain, int64_t parts) {
  MeshCases result{
      {parts}, {{Replicate()}, {Partial()}, {Partial(ReduceOp::kMax)}}};
  for (int64_t d = 0; d < plain.dim(); ++d) {
    result.placements.push_back({Shard(d)});
    result.placements.push_back({StridedShard(d, 2)});
    Dims lengths(static_cast<size_t>(parts), 0);
    lengths.back() = plain.size(d);  // all but the last are empty
    if (plain.size(d) > 1) {
      lengths[0] = 1;
      lengths.back() -= 1;
    }
    result.placements.push_back({RaggedShard(d, lengths)});
  }
  return result;
}

MeshCases on_square(const at::Tensor& plain) {
  const int64_t last = plain.dim() - 1;
  MeshCases result{
      {2, 2},
      {{Shard(0), Shard(last)},
       {Shard(last), Partial()},
       {Replicate(), Shard(last)},
       {Shard(0), Shard(0)},
       {StridedShard(last, 2), Shard(last)}}};
  if (plain.dim() > 1) {
    result.placements.push_back({Shard(1), Shard(0)});
  }
  return result;
}

// Calls f(plain, mesh, placements) on all ranks for every case.
template <class F>
void for_each_layout(const F& f) {
  for (const at::Tensor& plain : plain_cases()) {
    for (const MeshCases& layouts :
         {on_line(plain, 2), on_line(plain, 3), on_square(plain)}) {
      run_ranks(ranks_of(layouts), [&] {
        const DeviceMesh mesh = mesh_of(layouts.mesh);
        for (const Placements& placements : layouts.placements) {
          SCOPED_TRACE(
              ::testing::Message() << plain.sizes() << " by " << plain.strides()
                                   << ' ' << to_string(placements));
          f(plain, mesh, placements);
        }
      });
    }
  }
}

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

struct FormatView {
  const char* name;
  std::function<at::Tensor(const at::Tensor&)> run;
};

const std::vector<FormatView>& format_views() {
  static const std::vector<FormatView> all = {
      {"permute to NHWC",
       [](const at::Tensor& t) {
         return t.permute({0, 2, 3, 1});
       }},
      {"rows of NHWC",
       [](const at::Tensor& t) {
         return t.permute({0, 2, 3, 1}).view({t.size(0), -1});
       }},
      {"pixels of NHWC",
       [](const at::Tensor& t) {
         return t.permute({0, 2, 3, 1}).view({-1, t.size(1)});
       }},
      {"flat NHWC",
       [](const at::Tensor& t) {
         return t.permute({0, 2, 3, 1}).view({-1});
       }},
      {"flat", [](const at::Tensor& t) { return t.view({-1}); }},
      {"rows",
       [](const at::Tensor& t) {
         return t.view({t.size(0), -1});
       }},
      {"pixels",
       [](const at::Tensor& t) {
         return t.view({t.size(0), t.size(1), -1});
       }},
      {"flatten", [](const at::Tensor& t) { return t.flatten(1); }},
      {"reshape",
       [](const at::Tensor& t) {
         return t.reshape({t.size(0) * t.size(1), -1});
       }},
      {"unflatten",
       [](const at::Tensor& t) {
         return t.unflatten(3, {2, -1});
       }},
      {"transpose", [](const at::Tensor& t) { return t.transpose(1, 3); }},
      {"select", [](const at::Tensor& t) { return t.select(2, 1); }},
      {"slice", [](const at::Tensor& t) { return t.slice(1, 1, 3); }},
      {"clone of a slice",
       [](const at::Tensor& t) { return t.slice(1, 1, 3).clone(); }},
      {"contiguous",
       [](const at::Tensor& t) { return t.contiguous().view({-1}); }},
  };
  return all;
}

TEST(MemoryFormat, ViewsArePermittedAsOfPlainTensors) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    for (const at::Tensor& plain :
         {distinct({4, 6, 2, 4}),
          distinct({4, 6, 2, 4}).contiguous(kChannelsLast),
          laid_out(distinct({4, 6, 2, 4}), {3, 1, 0, 2})}) {
      for (const Placements& placements : on_line(plain, 2).placements) {
        const at::Tensor t = distribute_tensor(plain, mesh, placements);
        for (const FormatView& view : format_views()) {
          SCOPED_TRACE(
              ::testing::Message() << view.name << " of " << plain.strides()
                                   << ' ' << to_string(placements));
          const std::string refused = error_of([&] { view.run(plain); });
          if (!refused.empty()) {
            EXPECT_NE(error_of([&] { view.run(t); }), "");
            continue;
          }
          const at::Tensor want = view.run(plain);
          for (int i = 0; i < 2; ++i) {  // decided, then known
            const at::Tensor got = view.run(t);
            EXPECT_TRUE(same(got, want));
            EXPECT_EQ(got.strides(), want.strides());
          }
        }
      }
    }
  });
}

// No copy is made that a plain view would not need.
TEST(MemoryFormat, ViewsOfChannelsLastShardsShowTheirMemory) {
  run_ranks(2, [] {
    const at::Tensor plain = distinct({4, 6, 2, 4}).contiguous(kChannelsLast);
    const at::Tensor t = distribute_tensor(plain, mesh_of({2}), {Shard(0)});
    const at::Tensor rows = t.permute({0, 2, 3, 1}).view({4, 48});
    EXPECT_TRUE(to_local(rows).is_alias_of(to_local(t)));
    rows.mul_(2);
    EXPECT_TRUE(same(t, plain * 2));
  });
}

struct Step {
  const char* name;
  std::function<at::Tensor(const at::Tensor& x)> run;
};

// A tensor on the mesh of `like`, replicated; plain beside plain ones.
at::Tensor beside(const at::Tensor& like, const at::Tensor& value) {
  return is_dtensor(like)
             ? distribute_tensor(
                   value, device_mesh(like),
                   Placements(placements(like).size(), Replicate()))
             : value;
}

// Operators that LibTorch runs on images as they lie.
const std::vector<Step>& steps() {
  static const std::vector<Step> all = {
      {"conv2d",
       [](const at::Tensor& x) {
         return at::conv2d(x, beside(x, distinct({4, 4, 3, 3}, f32())));
       }},
      {"conv2d with bias and padding",
       [](const at::Tensor& x) {
         return at::conv2d(
             x, beside(x, distinct({2, 4, 3, 3}, f32())),
             beside(x, distinct({2}, f32())), 1, 1);
       }},
      {"conv2d with a channels_last weight",
       [](const at::Tensor& x) {
         return at::conv2d(
             x,
             beside(
                 x, distinct({4, 4, 3, 3}, f32()).contiguous(kChannelsLast)));
       }},
      {"batch_norm, training",
       [](const at::Tensor& x) {
         return at::batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false);
       }},
      {"batch_norm, evaluating",
       [](const at::Tensor& x) {
         return at::batch_norm(
             x, {}, {}, beside(x, distinct({4}, f32())),
             beside(x, distinct({4}, f32()).abs() + 1), false, 0.1, 1e-5,
             false);
       }},
      {"group_norm", [](const at::Tensor& x) { return at::group_norm(x, 2); }},
      {"relu", [](const at::Tensor& x) { return x.relu(); }},
      {"max_pool2d", [](const at::Tensor& x) { return at::max_pool2d(x, 2); }},
      {"avg_pool2d", [](const at::Tensor& x) { return at::avg_pool2d(x, 2); }},
      {"adaptive_avg_pool2d",
       [](const at::Tensor& x) {
         return at::adaptive_avg_pool2d(x, {2, 2});
       }},
      {"upsample_nearest2d",
       [](const at::Tensor& x) {
         return at::upsample_nearest2d(x, at::IntArrayRef({8, 12}));
       }},
      {"add", [](const at::Tensor& x) { return x + x * 2; }},
      {"add of formats",
       [](const at::Tensor& x) { return x + x.contiguous(); }},
      {"add of formats, turned",
       [](const at::Tensor& x) { return x.contiguous() + x; }},
      {"add of broadcast channels",
       [](const at::Tensor& x) {
         return beside(x, distinct({4, 1, 1}, f32())) + x;
       }},
      {"add of a broadcast image",
       [](const at::Tensor& x) {
         return beside(x, distinct({1, 4, 5, 6}, f32())) * x;
       }},
      {"where",
       [](const at::Tensor& x) { return at::where(x > 0, x.contiguous(), x); }},
      {"masked_fill",
       [](const at::Tensor& x) { return x.masked_fill(x > 0, 1); }},
      {"clone of a slice",
       [](const at::Tensor& x) { return x.slice(2, 1, 3).clone(); }},
      {"exp of a slice",
       [](const at::Tensor& x) { return x.slice(3, 1, 5, 2).exp(); }},
      {"exp of a permutation",
       [](const at::Tensor& x) {
         return x.permute({3, 1, 0, 2}).exp();
       }},
      {"cat",
       [](const at::Tensor& x) {
         return at::cat({x, x * 2}, 1);
       }},
      {"cat of formats",
       [](const at::Tensor& x) {
         return at::cat({x, x.contiguous()}, 1);
       }},
      {"pad",
       [](const at::Tensor& x) {
         return at::constant_pad_nd(x, {1, 2});
       }},
      {"flip", [](const at::Tensor& x) { return x.flip(1); }},
      {"roll", [](const at::Tensor& x) { return x.roll(1, 1); }},
      {"softmax", [](const at::Tensor& x) { return x.softmax(1); }},
      {"sum", [](const at::Tensor& x) { return x.sum(1, true); }},
      {"to double", [](const at::Tensor& x) { return x.to(at::kDouble); }},
      {"to channels_last",
       [](const at::Tensor& x) { return x.to(kChannelsLast); }},
      {"contiguous", [](const at::Tensor& x) { return x.contiguous(); }},
      {"channels_last",
       [](const at::Tensor& x) { return x.contiguous(kChannelsLast); }},
      {"zeros_like", [](const at::Tensor& x) { return at::zeros_like(x); }},
      {"zeros_like in a format",
       [](const at::Tensor& x) {
         return at::zeros_like(x, {}, kChannelsLast);
       }},
      {"empty_like",
       [](const at::Tensor& x) { return at::empty_like(x).fill_(3); }},
      {"new_empty_strided",
       [](const at::Tensor& x) {
         return x.new_empty_strided(x.sizes(), x.strides()).fill_(3);
       }},
      {"new_zeros", [](const at::Tensor& x) { return x.new_zeros(x.sizes()); }},
      {"dropout",
       [](const at::Tensor& x) { return at::dropout(x, 0.5, false); }},
  };
  return all;
}

void expect_steps(
    const at::Tensor& plain, const DeviceMesh& mesh,
    const Placements& placements) {
  const at::Tensor x = distribute_tensor(plain, mesh, placements);
  ASSERT_TRUE(shard_agrees(x));
  for (const Step& step : steps()) {
    SCOPED_TRACE(
        ::testing::Message() << step.name << " of " << plain.strides() << ' '
                             << to_string(placements));
    const at::Tensor want = step.run(plain);
    for (int i = 0; i < 2; ++i) {  // decided, then known
      const at::Tensor got = step.run(x);
      EXPECT_EQ(got.strides(), want.strides());
      EXPECT_EQ(got.suggest_memory_format(), want.suggest_memory_format());
      EXPECT_TRUE(shard_agrees(got));
      EXPECT_TRUE(close(got, want, 1e-5));
    }
  }
}

TEST(MemoryFormat, OperatorsKeepItAsOfPlainTensors) {
  for (const int64_t batch : {4, 5}) {
    const at::Tensor value = distinct({batch, 4, 5, 6}, f32());
    for (const at::Tensor& plain : {value, value.contiguous(kChannelsLast)}) {
      run_ranks(2, [&] {
        for (const char* layout : {"R", "S(0)", "S(1)", "S(2)", "P(sum)"}) {
          expect_steps(plain, mesh_of({2}), parse_placements(layout));
        }
      });
      run_ranks(4, [&] {
        for (const char* layout : {"S(0) R", "S(0) S(1)", "S(0) S(0)"}) {
          expect_steps(plain, mesh_of({2, 2}), parse_placements(layout));
        }
      });
    }
  }
}

TEST(MemoryFormat, AConvolutionalNetStaysChannelsLast) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    const auto net = [](const at::Tensor& x, const at::Tensor& w) {
      return at::max_pool2d(at::relu(at::conv2d(x, w, {}, 1, 1)), 2);
    };
    const at::Tensor images =
        distinct({5, 3, 8, 8}, f32()).contiguous(kChannelsLast);
    const at::Tensor filters =
        distinct({4, 3, 3, 3}, f32()).contiguous(kChannelsLast);
    const at::Tensor plain_x = images.clone().requires_grad_();
    const at::Tensor plain_w = filters.clone().requires_grad_();
    const at::Tensor want = net(plain_x, plain_w);
    want.sum().backward();
    ASSERT_TRUE(want.is_contiguous(kChannelsLast));
    for (const char* layout : {"S(0)", "R"}) {
      SCOPED_TRACE(layout);
      const at::Tensor x =
          distribute_tensor(images, mesh, parse_placements(layout))
              .requires_grad_();
      const at::Tensor w =
          distribute_tensor(filters, mesh, {Replicate()}).requires_grad_();
      EXPECT_TRUE(to_local(x).is_contiguous(kChannelsLast));
      EXPECT_TRUE(to_local(w).is_contiguous(kChannelsLast));
      const at::Tensor y = net(x, w);
      EXPECT_TRUE(y.is_contiguous(kChannelsLast));
      EXPECT_TRUE(to_local(y).is_contiguous(kChannelsLast));
      EXPECT_TRUE(close(y, want, 1e-5));
      y.sum().backward();
      for (const auto& [got, expected] :
           {std::pair(x, plain_x), std::pair(w, plain_w)}) {
        EXPECT_EQ(got.grad().strides(), expected.grad().strides());
        EXPECT_TRUE(shard_agrees(got.grad()));
        EXPECT_TRUE(close(got.grad(), expected.grad(), 1e-4));
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
