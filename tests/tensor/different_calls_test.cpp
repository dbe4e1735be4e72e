// Ranks that make different calls of equal counts: an error on all of them,
// where their data would be mixed.
#include <tessera/tessera.h>
#include "harness/sharded_test.h"

namespace tessera {
namespace {

using testing::distinct;
using testing::error_of;
using testing::mesh_of;

TEST(DifferentCalls, OfEqualCountsAreAMismatchOnEveryRank) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    const at::Tensor a = distribute_tensor(distinct({4, 3}), mesh, {Shard(0)});
    const at::Tensor b = distribute_tensor(distinct({4, 3}), mesh, {Shard(0)});
    // Rank 0 prints a tensor; the others go on.
    const std::string error = error_of(
        [&] { rank() == 0 ? full_tensor(a) : redistribute(b, {Replicate()}); });
    EXPECT_NE(
        error.find("ranks disagree on what they communicate for"),
        std::string::npos)
        << error;
    EXPECT_NE(error.find("full_tensor"), std::string::npos) << error;
    EXPECT_NE(error.find("redistribute"), std::string::npos) << error;
  });
}

TEST(DifferentCalls, OfOneOperatorAreNone) {
  run_ranks(3, [] {
    const DeviceMesh mesh = mesh_of({3});
    const at::Tensor t = distribute_tensor(distinct({2, 3}), mesh, {Shard(0)});
    EXPECT_EQ(error_of([&] { full_tensor(t + t); }), "");
    EXPECT_EQ(error_of([&] { t.sum().item(); }), "");
  });
}

}  // namespace
}  // namespace tessera
