// What a sharded tensor says of its memory format, and what its shards have:
// both are those of the plain tensor, see Note [How shards lie in memory],
// src/tensor/state/strides.h. The reference looks at strides only.
#pragma once

#include <harness/sharded_test.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace tessera::testing {

using Dims = std::vector<int64_t>;

constexpr auto kChannelsLast = at::MemoryFormat::ChannelsLast;
constexpr auto kChannelsLast3d = at::MemoryFormat::ChannelsLast3d;

/// The dims, the one with the largest step first.
inline Dims by_step(const at::Tensor& t) {
  Dims order(static_cast<size_t>(t.dim()));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return t.stride(a) > t.stride(b);
  });
  return order;
}

/// The strides that elements are reached by: dims of one index have none.
inline Dims steps_of(const at::Tensor& t) {
  Dims steps;
  for (int64_t d = 0; d < t.dim(); ++d) {
    steps.push_back(t.numel() > 0 && t.size(d) > 1 ? t.stride(d) : 0);
  }
  return steps;
}

inline int64_t ones(const at::Tensor& t) {
  return std::count(t.sizes().begin(), t.sizes().end(), 1);
}

/// A dense tensor of this value, its dims from outermost to innermost.
inline at::Tensor laid_out(const at::Tensor& value, const Dims& order) {
  Dims back(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  return value.permute(order).clone(at::MemoryFormat::Contiguous).permute(back);
}

/// Tells whether this rank's shard lies as the tensor says it does.
inline ::testing::AssertionResult shard_agrees(const at::Tensor& t) {
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

inline void expect_like(const at::Tensor& t, const at::Tensor& plain) {
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

/// The shapes, with every order of dims up to three, and images.
inline std::vector<at::Tensor> plain_cases() {
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

/// A mesh and every kind of placement of a tensor on it.
struct MeshCases {
  Dims mesh;
  std::vector<Placements> placements;
};

inline int ranks_of(const MeshCases& layouts) {
  return static_cast<int>(c10::multiply_integers(layouts.mesh));
}

inline MeshCases on_line(const at::Tensor& plain, int64_t parts) {
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

inline MeshCases on_square(const at::Tensor& plain) {
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

/// Calls f(plain, mesh, placements) on all ranks for every case.
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

}  // namespace tessera::testing
