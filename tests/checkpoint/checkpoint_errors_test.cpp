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

TEST(CheckpointErrors, WhatSharesMemoryIsNotFilled) {
  const ScratchFolder folder;
  run_ranks(2, [&] {
    const at::Tensor rows =
        distribute_tensor(counting({4, 3}), mesh_of({2}), {Shard(0)});
    checkpoint::save({{"p", counting({3})}, {"s", rows}}, folder / "c");
    StateDict wide{{"p", at::zeros({1}, f64()).expand({3})}, {"s", rows}};
    EXPECT_ERROR(
        "'p': several elements of the tensor are one place in memory",
        checkpoint::load(wide, folder / "c"));
    StateDict shards{
        {"p", counting({3})},
        {"s", from_local(
                  at::zeros({1, 3}, f64()).expand({2, 3}), mesh_of({2}),
                  {Shard(0)})}};
    EXPECT_ERROR(
        "'s': several elements of the tensor are one place in memory",
        checkpoint::load(shards, folder / "c"));
    // A step over memory shares none.
    StateDict strided{
        {"p", at::zeros({6}, f64()).slice(0, 0, 6, 2)}, {"s", rows}};
    checkpoint::load(strided, folder / "c");
    EXPECT_TRUE(same(strided.at("p").to_tensor(), counting({3})));
  });
}

TEST(CheckpointErrors, WhatHasNoValuesIsNeitherSavedNorLoaded) {
  const ScratchFolder folder;
  run_ranks(2, [&] {
    const std::string want = "'w': the tensor is on the device meta";
    const at::Tensor meta = at::empty({3}, f64().device(at::kMeta));
    checkpoint::save({{"w", counting({3})}}, folder / "c");
    EXPECT_ERROR(want, checkpoint::save({{"w", meta}}, folder / "d"));
    StateDict dict{{"w", meta}};
    EXPECT_ERROR(want, checkpoint::load(dict, folder / "c"));
  });
}

TEST(CheckpointErrors, GlobsThatMatchNothingAreNamed) {
  const ScratchFolder folder;
  run_ranks(2, [&] {
    checkpoint::save({{"model", StateDict{{"w", 1}}}}, folder / "c");
    StateDict dict{{"model", StateDict{{"w", 0}}}};
    EXPECT_ERROR(
        "no name matches what `only` asks for, 'modle.*'; the checkpoint has "
        "'model.w'",
        checkpoint::load(dict, folder / "c", {.only = {"modle.*"}}));
    checkpoint::load(
        dict, folder / "c", {.strict = false, .only = {"modle.*"}});
    EXPECT_EQ(dict.at("model").to_dict().at("w").to_int(), 0);
  });
}

TEST(CheckpointErrors, NamesThatNoFormatTakesAreRefusedBeforeTheyAreWritten) {
  const ScratchFolder folder;
  run_ranks(2, [&] {
    for (const checkpoint::Format format :
         {checkpoint::Format::kTessera, checkpoint::Format::kDcp,
          checkpoint::Format::kSafetensors}) {
      const auto refused = [&](const std::string& name) {
        EXPECT_THROW(
            checkpoint::save(
                {{name, counting({3})}}, folder / "c", {.format = format}),
            c10::ValueError)
            << name.size();
      };
      refused("");
      refused(std::string(4097, 'n'));
      refused("\xff");
    }
    EXPECT_ERROR(
        "no tensor of safetensors is called '__metadata__'",
        checkpoint::save(
            {{"__metadata__", counting({3})}}, folder / "c",
            {.format = checkpoint::Format::kSafetensors}));
    EXPECT_FALSE(std::filesystem::exists(folder / "c"));
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
