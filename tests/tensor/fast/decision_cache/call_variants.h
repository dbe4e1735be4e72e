// Calls of one operator that differ in one argument, made after one another in
// every order: what is kept about one must not answer for another.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <harness/sharded_test.h>

namespace tessera::testing {

using Tensors = std::vector<at::Tensor>;
using Scalars = std::vector<at::Scalar>;
using Ints = std::vector<int64_t>;

/// The operands of every variant; all of them cut alike, as far as dims go.
struct Data {
  at::Tensor x;       // [4, 6]
  at::Tensor y;       // [4, 6]
  at::Tensor row;     // [6]
  at::Tensor row2;    // [6]
  at::Tensor n;       // i64[4, 6]
  at::Tensor index;   // i64[4, 6], below 4
  at::Tensor rows;    // i64[3], below 4
  at::Tensor image;   // [2, 4, 6, 6]
  at::Tensor kernel;  // [4, 4, 3, 3]
  at::Tensor cube;    // [2, 4, 6]
  at::Tensor square;  // [6, 6]
};

inline Data plain_data() {
  return {
      distinct({4, 6}),
      distinct({4, 6}).add(0.5),
      distinct({6}).add(1),
      distinct({6}).sub(1),
      at::arange(24, i64()).reshape({4, 6}).sub(7),
      at::arange(24, i64()).reshape({4, 6}).mul(7).remainder(4),
      at::tensor({3, 0, 2}, i64()),
      distinct({2, 4, 6, 6}),
      distinct({4, 4, 3, 3}),
      distinct({2, 4, 6}),
      distinct({6, 6}),
  };
}

inline at::Tensor cut_as(
    const at::Tensor& t, const DeviceMesh& mesh, const Placement& placement) {
  const bool fits = !(placement.is_shard() && placement.dim() >= t.dim()) &&
                    !(placement.is_partial() && !t.is_floating_point());
  return distribute_tensor(t, mesh, {fits ? placement : Replicate()});
}

inline Data cut_data(const DeviceMesh& mesh, const Placement& placement) {
  const Data p = plain_data();
  const auto cut = [&](const at::Tensor& t) {
    return cut_as(t, mesh, placement);
  };
  return {
      cut(p.x),
      cut(p.y),
      cut(p.row),
      cut(p.row2),
      cut(p.n),
      cut(p.index),
      cut_as(p.rows, mesh, Replicate()),
      cut(p.image),
      cut(p.kernel),
      cut(p.cube),
      cut(p.square)};
}

/// A call with arguments of its own.
using Variant = std::function<Tensors(const Data&)>;
struct Group {
  const char* name;
  std::vector<Variant> variants;
};

inline void expect_variant(
    const Group& group, size_t i, const Data& cut, const Data& plain) {
  const Tensors got = group.variants[i](cut);
  const Tensors want = group.variants[i](plain);
  ASSERT_EQ(got.size(), want.size());
  for (size_t k = 0; k < got.size(); ++k) {
    const double tolerance = want[k].scalar_type() == at::kFloat ? 1e-5 : 1e-9;
    ASSERT_TRUE(close(got[k], want[k], tolerance))
        << group.name << ", variant " << i;
    ASSERT_EQ(got[k].strides(), want[k].strides())
        << group.name << ", variant " << i << ", " << to_string(spec(got[k]));
  }
}

/// Every variant after every other one, and after itself.
inline void expect_no_wrong_answer(const std::vector<Group>& groups) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const Data plain = plain_data();
    for (const Placement& placement :
         {Shard(0), Shard(1), Partial(), Replicate()}) {
      const Data cut = cut_data(mesh, placement);
      for (const Group& group : groups) {
        SCOPED_TRACE(std::string(group.name) + " " + to_string(placement));
        for (size_t i = 0; i < group.variants.size(); ++i) {
          for (size_t j = 0; j <= i; ++j) {
            expect_variant(group, i, cut, plain);
            expect_variant(group, j, cut, plain);
          }
        }
      }
    }
  });
}

}  // namespace tessera::testing

/// Variants that return one tensor, two, a list.
#define ONE(...)                                                         \
  [](const ::tessera::testing::Data& d) -> ::tessera::testing::Tensors { \
    return {__VA_ARGS__};                                                \
  }
#define TWO(...)                                                         \
  [](const ::tessera::testing::Data& d) -> ::tessera::testing::Tensors { \
    const auto both = __VA_ARGS__;                                       \
    return {std::get<0>(both), std::get<1>(both)};                       \
  }
#define MANY(...)                                                        \
  [](const ::tessera::testing::Data& d) -> ::tessera::testing::Tensors { \
    return __VA_ARGS__;                                                  \
  }
