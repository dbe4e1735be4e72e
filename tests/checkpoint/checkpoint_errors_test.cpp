// Bad input is an error on every rank, and the checkpoint stays as it was.
#include <gtest/gtest.h>
#include <tessera/checkpoint/checkpoint.h>

#include <fstream>

#include <checkpoint/scratch_folder.h>
#include <harness/sharded_test.h>

namespace tessera::testing {
namespace {

using checkpoint::StateDict;

TEST(CheckpointErrors, PartialValuesAreRefused) {
  const ScratchFolder folder;
  run_ranks(2, [&] {
    const at::Tensor sums =
        from_local(at::ones({2}, f64()), mesh_of({2}), {Partial()});
    EXPECT_ERROR(
        "'g': f64[2] P(sum) @ mesh(2) holds partial values",
        checkpoint::save({{"g", sums}}, folder / "a"));
  });
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
}

TEST(CheckpointErrors, PlainTensorsThatDifferAreNoMixture) {
  const ScratchFolder folder;
  run_ranks(3, [&] {
    const at::Tensor t = at::full({4}, rank() == 2 ? 1.0 : 0.0, f64());
    EXPECT_ERROR(
        "differ between ranks: rank 0 has 't' f64[4] with hash",
        checkpoint::save({{"t", t}}, folder / "a"));
    EXPECT_ERROR(
        "rank 0 has 'step' 0, rank 1 has 'step' 1",
        checkpoint::save({{"step", rank()}}, folder / "a"));
  });
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
}

TEST(CheckpointErrors, NamesThatDoNotMatchAreListed) {
  const ScratchFolder folder;
  run_ranks(2, [&] {
    checkpoint::save({{"a", 1}, {"b", 2}}, folder / "c");
    StateDict dict{{"a", 0}, {"z", 9}};
    EXPECT_ERROR(
        "the checkpoint lacks 'z'; the dict lacks 'b'",
        checkpoint::load(dict, folder / "c"));
    EXPECT_EQ(dict.at("a").to_int(), 0) << "nothing was loaded";
    checkpoint::load(dict, folder / "c", {.strict = false});
    EXPECT_EQ(dict.at("a").to_int(), 1);
    EXPECT_EQ(dict.at("z").to_int(), 9);
  });
}

TEST(CheckpointErrors, ShapesAndKindsMustFit) {
  const ScratchFolder folder;
  run_ranks(2, [&] {
    checkpoint::save({{"w", distinct({3, 2})}, {"n", 1}}, folder / "c");
    StateDict shape{{"w", at::zeros({2, 3}, f64())}, {"n", 0}};
    EXPECT_ERROR(
        "'w' has the shape [2, 3], and the checkpoint [3, 2]",
        checkpoint::load(shape, folder / "c"));
    StateDict kind{{"w", 5}, {"n", 0}};
    EXPECT_ERROR(
        "'w' is an integer, and the checkpoint has a tensor of shape [3, 2]",
        checkpoint::load(kind, folder / "c"));
    StateDict text{{"w", at::zeros({3, 2}, f64())}, {"n", "one"}};
    EXPECT_ERROR(
        "'n' is a string, and the checkpoint has an integer",
        checkpoint::load(text, folder / "c"));
  });
}

TEST(CheckpointErrors, ANumberThatIsNoIntegerIsNotCut) {
  const ScratchFolder folder;
  run_ranks(2, [&] {
    checkpoint::save(
        {{"a", at::full({}, 2.5, f64())}, {"b", at::full({}, 3.0, f64())}},
        folder / "c");
    StateDict dict{{"a", 0}, {"b", 0}};
    EXPECT_ERROR(
        "'a' is an integer, and the checkpoint has 2.5",
        checkpoint::load(dict, folder / "c"));
    StateDict right{{"a", 0.0}, {"b", 0}};
    checkpoint::load(right, folder / "c");
    EXPECT_EQ(right.at("a").to_double(), 2.5);
    EXPECT_EQ(right.at("b").to_int(), 3);
  });
}

TEST(CheckpointErrors, AViewIntoACopyIsNotFilled) {
  const ScratchFolder folder;
  run_ranks(2, [&] {
    const at::Tensor t =
        distribute_tensor(counting({3, 4}), mesh_of({2}), {Shard(0)});
    const at::Tensor view = t.view({4, 3});
    checkpoint::save({{"v", view}}, folder / "c");
    StateDict dict{{"v", view}};
    EXPECT_ERROR(
        "'v' is a view into a copy of another tensor's shards",
        checkpoint::load(dict, folder / "c"));
  });
}

TEST(CheckpointErrors, OptionsThatDifferBetweenRanksAreNamed) {
  const ScratchFolder folder;
  run_ranks(2, [&] {
    EXPECT_ERROR(
        "path",
        checkpoint::save({{"n", 1}}, folder / ("r" + std::to_string(rank()))));
  });
}

TEST(CheckpointErrors, DamageThatOneRankMeetsIsThrownOnAll) {
  const ScratchFolder folder;
  run_ranks(2, [&] {
    checkpoint::save(
        {{"w", distribute_tensor(distinct({8, 8}), mesh_of({2}), {Shard(0)})}},
        folder / "c");
  });
  const std::string file = folder / "c/rank_00001.0.bin";
  ASSERT_TRUE(std::filesystem::exists(file));
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(17)
      .put('\x55');
  run_ranks(2, [&] {
    StateDict dict{
        {"w", distribute_tensor(
                  at::zeros({8, 8}, f64()), mesh_of({2}), {Shard(0)})}};
    EXPECT_ERROR("rank_00001.0.bin", checkpoint::load(dict, folder / "c"));
  });
  EXPECT_ERROR("rank_00001.0.bin", checkpoint::verify(folder / "c"));
}

TEST(CheckpointErrors, WhatIsNoCheckpointIsNamed) {
  const ScratchFolder folder;
  StateDict dict{{"n", 1}};
  EXPECT_ERROR("nowhere", checkpoint::load(dict, folder / "nowhere"));
  EXPECT_ERROR("checkpoint::list", checkpoint::list(folder.path()));
  EXPECT_FALSE(checkpoint::latest(folder.path()).has_value());
}

TEST(CheckpointErrors, AMeshOfAnotherWorldIsRefused) {
  const ScratchFolder folder;
  at::Tensor kept;
  run_ranks(2, [&] {
    const at::Tensor t =
        distribute_tensor(counting({4}), mesh_of({2}), {Shard(0)});
    if (rank() == 1) {
      kept = t;
    }
  });
  EXPECT_ERROR(
      "'w': f64[4] S(0) @ mesh(2) is on a mesh of another world",
      checkpoint::save({{"w", kept}}, folder / "a"));
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
}

TEST(CheckpointErrors, HaveTypesAndNumbersOnAllRanks) {
  const ScratchFolder folder;
  run_ranks(3, [&] {
    StateDict dict{{"n", rank()}};
    // The rank that is wrong is another one than the first.
    try {
      checkpoint::build_state("call", [&]() -> StateDict {
        if (rank() == 2) {
          throw checkpoint::FileError({"", "", 0}, "disk full", ENOSPC);
        }
        return dict;
      });
      ADD_FAILURE() << "rank " << rank();
    } catch (const checkpoint::FileError& error) {
      EXPECT_EQ(error.error_number(), ENOSPC);
      EXPECT_NE(
          std::string(error.what()).find("on rank 2: disk full"),
          std::string::npos);
    }
    EXPECT_THROW(
        checkpoint::load(dict, folder / "nowhere"), checkpoint::FileError);
    checkpoint::save({{"n", 1}}, folder / "a");
    EXPECT_THROW(checkpoint::save({{"n", 1}}, folder / "a"), c10::ValueError);
    EXPECT_ERROR(
        "on rank 0: checkpoint::save_step",
        checkpoint::save_step(dict, folder.path(), -1));
  });
}

}  // namespace
}  // namespace tessera::testing
