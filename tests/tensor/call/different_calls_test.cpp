// Ranks that make different calls of equal counts: an error on all of them,
// where their data would be mixed.
#include <functional>

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

// Ranks with different shards that none of them said the shape of: each takes
// the others to hold what it does, and the first operator that communicates
// finds out.
TEST(DifferentCalls, OfFromLocalWithoutAShapeNameIt) {
  const char* hint =
      "from_local() without .shape takes all shards to be as large as its own";
  const std::vector<std::function<void(const at::Tensor&)>> calls = {
      [](const at::Tensor& t) { full_tensor(t); },
      [](const at::Tensor& t) { redistribute(t, {Shard(1)}); },
      [](const at::Tensor& t) { t.cumsum(0); },
      [](const at::Tensor& t) { t.sum(0).relu(); },
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    run_ranks(2, [&] {
      const DeviceMesh mesh = mesh_of({2});
      // Along dim 1 too, so that even sums differ.
      const at::Tensor local =
          rank() == 0 ? distinct({3, 4}) : distinct({2, 5});
      const std::string error =
          error_of([&] { calls[i](from_local(local, mesh, {Shard(0)})); });
      EXPECT_NE(error.find("ranks disagree on "), std::string::npos) << error;
      EXPECT_NE(error.find(hint), std::string::npos) << i << ": " << error;
      EXPECT_NE(error.find("pass .shape"), std::string::npos) << error;
    });
  }
}

TEST(DifferentCalls, OfUnevenShardsSayWhichOperatorFoundOut) {
  run_ranks(3, [] {
    const at::Tensor local = distinct({rank() == 2 ? 1 : 2, 3});
    const at::Tensor t = from_local(local, mesh_of({3}), {Shard(0)});
    const std::string error = error_of([&] { full_tensor(t * 2); });
    EXPECT_NE(
        error.find(
            "ranks disagree on the counts (in full_tensor; from_local()"),
        std::string::npos)
        << error;
  });
}

TEST(DifferentCalls, DoNotNameFromLocalWhereItCannotBeTheCause) {
  const auto error_with = [](const FromLocalOptions& options) {
    const DeviceMesh mesh = mesh_of({2});
    from_local(distinct({2, 3}), mesh, {Shard(0)}, options);
    from_local(distinct({2, 3}), mesh, {Replicate()});
    from_local(distinct({rank() + 1, 3}), mesh, {RaggedShard(0, {1, 2})});
    const at::Tensor a = tessera::ones({rank() + 2, 3}, mesh, {Shard(1)});
    return error_of([&] { full_tensor(a); });
  };
  run_ranks(2, [&] {
    const std::string error = error_with({.shape = std::vector<int64_t>{4, 3}});
    EXPECT_NE(error.find("ranks disagree on "), std::string::npos) << error;
    EXPECT_EQ(error.find("from_local"), std::string::npos) << error;
  });
  run_ranks(2, [&] {
    // A collective of the program itself has counts of its own.
    from_local(distinct({2, 3}), mesh_of({2}), {Shard(0)});
    const at::Tensor data = distinct({rank() + 1});
    const std::string error =
        error_of([&] { init().communicator().all_reduce(data); });
    EXPECT_NE(error.find("ranks disagree on "), std::string::npos) << error;
    EXPECT_EQ(error.find("from_local"), std::string::npos) << error;
  });
}

}  // namespace
}  // namespace tessera
