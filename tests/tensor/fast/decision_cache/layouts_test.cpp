// What is kept about a call never answers for operands in another layout.
#include <harness/sharded_test.h>

namespace tessera {
namespace {

using testing::close;
using testing::distinct;
using testing::mesh_of;

TEST(DecisionCache, KnowsLayoutsApart) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    const auto value = distinct({4, 6});
    const auto want = value.mm(distinct({6, 4})).softmax(1);
    std::vector<at::Tensor> all;
    for (const char* text :
         {"S(0) R", "R S(0)", "S(0) S(0)", "S(0)[1] S(0)[0]", "S(0) S(1)",
          "S(1) S(0)", "SS(0,2) R", "P(sum) R", "R P(sum)", "P(max) S(0)",
          "P(avg) S(0)", "R R"}) {
      all.push_back(distribute_tensor(value, mesh, parse_placements(text)));
    }
    // The same layout with other strides.
    all.push_back(distribute_tensor(
        value.t().contiguous().t(), mesh, parse_placements("S(0) R")));
    const auto w =
        distribute_tensor(distinct({6, 4}), mesh, {Replicate(), Replicate()});
    for (int round = 0; round < 3; ++round) {
      for (const at::Tensor& t : all) {
        EXPECT_TRUE(close(t.mm(w).softmax(1), want));
        EXPECT_TRUE(close(t.exp(), value.exp()));
        EXPECT_EQ(t.exp().strides(), t.strides()) << to_string(spec(t));
      }
    }
  });
}

}  // namespace
}  // namespace tessera
