// Operators that ATen expresses by others, and that make tensors of their own
// on the way: results are sharded, and may meet other sharded tensors.
#include <ATen/ATen.h>

#include <tessera/tessera.h>
#include "harness/sharded_test.h"

namespace tessera {
namespace {

using testing::close;
using testing::distinct;
using testing::f64;
using testing::mesh_of;

struct Composite {
  const char* name;
  at::Tensor (*run)(const at::Tensor& x);
};

const Composite kComposites[] = {
    {"one_hot",
     [](const at::Tensor& x) { return at::one_hot(x.to(at::kLong), -1); }},
    {"one_hot of a known number of classes",
     [](const at::Tensor& x) { return at::one_hot(x.to(at::kLong), 40); }},
    {"pad_sequence",
     [](const at::Tensor& x) {
       return at::pad_sequence({x, x.narrow(0, 0, 2)}, true, 0.5);
     }},
    {"vander", [](const at::Tensor& x) { return at::vander(x.select(1, 0)); }},
    {"linalg_matrix_rank",
     [](const at::Tensor& x) { return at::linalg_matrix_rank(x, 1e-9); }},
    {"cov", [](const at::Tensor& x) { return at::cov(x); }},
    {"diff", [](const at::Tensor& x) { return at::diff(x); }},
    {"kron", [](const at::Tensor& x) { return at::kron(x, x); }},
    {"trapezoid", [](const at::Tensor& x) { return at::trapezoid(x); }},
    {"combinations",
     [](const at::Tensor& x) { return at::combinations(x.select(1, 0)); }},
};

TEST(Composites, ResultsAreShardedAndEqualPlainOnes) {
  const at::Tensor whole = distinct({5, 3}).abs().floor().remainder(9);
  for (const char* where : {"S(0)", "S(1)", "R"}) {
    run_ranks(2, [&] {
      const DeviceMesh mesh = mesh_of({2});
      const at::Tensor x =
          distribute_tensor(whole, mesh, parse_placements(where));
      for (const Composite& one : kComposites) {
        SCOPED_TRACE(std::string(one.name) + " of " + where);
        const at::Tensor want = one.run(whole);
        const at::Tensor got = one.run(x);
        ASSERT_TRUE(is_dtensor(got));
        EXPECT_TRUE(close(got.to(at::kDouble), want.to(at::kDouble)));
        const at::Tensor other = distribute_tensor(want, mesh, {Replicate()});
        EXPECT_TRUE(close(
            (got + other).to(at::kDouble), (want + want).to(at::kDouble)));
      }
    });
  }
}

// They read no values of the other tensor.
TEST(Composites, TakeTheFormOfATensorOfTheOtherKind) {
  run_ranks(2, [] {
    const at::Tensor whole = distinct({4, 3});
    const at::Tensor sharded =
        distribute_tensor(whole, mesh_of({2}), {Shard(0)});
    EXPECT_TRUE(whole.is_same_size(sharded));
    EXPECT_FALSE(sharded.is_same_size(whole.narrow(0, 0, 2)));
    const at::Tensor row = distinct({1, 3});
    const at::Tensor expanded = row.expand_as(sharded);
    EXPECT_FALSE(is_dtensor(expanded));
    EXPECT_TRUE(at::equal(expanded, row.expand({4, 3})));
    const at::Tensor flat = whole.reshape({12});
    EXPECT_TRUE(at::equal(flat.view_as(sharded), whole));
    EXPECT_TRUE(at::equal(flat.reshape_as(sharded), whole));
    const at::Tensor halves = whole.to(at::kFloat).type_as(sharded);
    EXPECT_FALSE(is_dtensor(halves));
    EXPECT_EQ(halves.scalar_type(), at::kDouble);
    EXPECT_TRUE(is_dtensor(sharded.type_as(halves)));
    EXPECT_TRUE(close(sharded.view_as(flat.view({4, 3})), whole));
  });
}

}  // namespace
}  // namespace tessera
