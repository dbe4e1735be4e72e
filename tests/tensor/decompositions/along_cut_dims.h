// What tests of operators along cut dims share: ways to cut a dim, the
// comparison with the plain operator in all of them, forward and backward, and
// what is sent.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <harness/sharded_test.h>

namespace tessera::testing {

using Tensors = std::vector<at::Tensor>;
using Op = std::function<Tensors(const Tensors&)>;

/// A mesh, and placements that cut dim `d` of a tensor.
struct Cut {
  const char* name;
  std::vector<int64_t> mesh;
  std::function<Placements(int64_t)> of;
};

inline const std::vector<Cut>& cuts() {
  static const std::vector<Cut> all = {
      {"2", {2}, [](int64_t d) { return Placements{Shard(d)}; }},
      {"3", {3}, [](int64_t d) { return Placements{Shard(d)}; }},
      {"4", {4}, [](int64_t d) { return Placements{Shard(d)}; }},
      {"2x2, twice",
       {2, 2},
       [](int64_t d) {
         return Placements{Shard(d), Shard(d)};
       }},
      {"2x2, in the other order",
       {2, 2},
       [](int64_t d) {
         return Placements{Shard(d).with_order(1), Shard(d).with_order(0)};
       }},
      {"2x2, once",
       {2, 2},
       [](int64_t d) {
         return Placements{Replicate(), Shard(d)};
       }},
      {"2x2, another dim too",
       {2, 2},
       [](int64_t d) {
         return Placements{Shard(d == 0 ? 1 : 0), Shard(d)};
       }},
      {"2x2, strided",
       {2, 2},
       [](int64_t d) {
         return Placements{StridedShard(d, 2), Shard(d)};
       }},
  };
  return all;
}

/// The same of two tensor dims, `d` and the one after it.
inline const std::vector<Cut>& grids() {
  static const std::vector<Cut> all = {
      {"2x2",
       {2, 2},
       [](int64_t d) {
         return Placements{Shard(d), Shard(d + 1)};
       }},
      {"3x2, the other way round",
       {3, 2},
       [](int64_t d) {
         return Placements{Shard(d + 1), Shard(d)};
       }},
      {"2x2x2, one dim twice",
       {2, 2, 2},
       [](int64_t d) {
         return Placements{Shard(d), Shard(d + 1), Shard(d)};
       }},
      {"2x2x2, images too",
       {2, 2, 2},
       [](int64_t d) {
         return Placements{Shard(d), Shard(0), Shard(d + 1)};
       }},
  };
  return all;
}

inline int ranks_of(const std::vector<int64_t>& mesh) {
  return static_cast<int>(c10::multiply_integers(mesh));
}

inline at::Tensor leaf(const at::Tensor& t) {
  return t.detach().clone().set_requires_grad(t.is_floating_point());
}

/// The sum of all results, each element with a weight of its own.
inline at::Tensor weighed(const Tensors& results) {
  at::Tensor sum;
  for (const at::Tensor& t : results) {
    if (!t.is_floating_point() || !t.requires_grad()) {
      continue;
    }
    at::Tensor weights = distinct(t.sizes(), t.options().device(device()));
    if (is_dtensor(t)) {
      weights = distribute_tensor(
          weights, device_mesh(t),
          Placements(placements(t).size(), Replicate()),
          {.src_data_rank = std::nullopt});
    }
    const at::Tensor part = (t * weights).sum();
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

/// Runs `op` plain and with operand i cut along dims[i] (-1: replicated), on
/// every mesh of `on`, forward and backward.
inline void expect_equal(
    const char* name, const Tensors& inputs, const std::vector<int64_t>& dims,
    const Op& op, double tolerance = 1e-10, bool backward = true,
    const std::vector<Cut>& on = cuts()) {
  for (const Cut& cut : on) {
    run_ranks(ranks_of(cut.mesh), [&] {
      const auto mesh = mesh_of(cut.mesh);
      SCOPED_TRACE(std::string(name) + " on " + cut.name);
      Tensors plain_inputs, cut_inputs;
      for (size_t i = 0; i < inputs.size(); ++i) {
        plain_inputs.push_back(leaf(inputs[i]));
        Placements p(cut.mesh.size(), Replicate());
        if (dims[i] >= 0) {
          p = cut.of(dims[i]);
          for (Placement& one : p) {
            if (one.is_shard() && one.dim() >= inputs[i].dim()) {
              one = Replicate();
            }
          }
        }
        cut_inputs.push_back(distribute_tensor(leaf(inputs[i]), mesh, p));
      }
      const Tensors want = op(plain_inputs);
      const Tensors got = op(cut_inputs);
      ASSERT_EQ(want.size(), got.size());
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_TRUE(close(got[i], want[i], tolerance)) << "result " << i;
      }
      const at::Tensor loss = weighed(want);
      if (!backward || !loss.defined()) {
        return;
      }
      loss.backward();
      weighed(got).backward();
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (plain_inputs[i].grad().defined()) {
          ASSERT_TRUE(cut_inputs[i].grad().defined());
          EXPECT_TRUE(
              close(cut_inputs[i].grad(), plain_inputs[i].grad(), tolerance))
              << "gradient " << i;
        }
      }
    });
  }
}

/// Shapes whose dim 1 is even, uneven, and leaves shards empty.
inline const std::vector<std::vector<int64_t>>& shapes() {
  static const std::vector<std::vector<int64_t>> all = {
      {3, 8}, {5, 7}, {4, 2}, {2, 5, 3}, {3, 1}};
  return all;
}

/// One result of one tensor, along dim 1.
inline void expect_equal_along(
    const char* name, const std::function<Tensors(const at::Tensor&)>& op,
    bool backward = true) {
  for (const auto& shape : shapes()) {
    expect_equal(
        name, {distinct(shape)}, {1},
        [&](const Tensors& x) { return op(x[0]); }, 1e-10, backward);
  }
}

/// What `body` sends on this rank.
template <class F>
int64_t bytes_of(F body) {
  CommLog log;
  static_cast<void>(body());
  return log.bytes();
}

inline at::Tensor cut_of(
    const at::Tensor& t, const DeviceMesh& mesh, const Placements& p) {
  return distribute_tensor(t, mesh, p, {.src_data_rank = std::nullopt});
}

inline const double kInf = std::numeric_limits<double>::infinity();
inline const double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace tessera::testing
