// What a dict may hold, how it comes back, and how checkpoints follow each
// other.
#include <gtest/gtest.h>
#include <tessera/checkpoint/checkpoint.h>

#include <checkpoint/scratch_folder.h>
#include <harness/sharded_test.h>
#include <tessera/sharded_tensor/create.h>
#include <tessera/tensor/random.h>

namespace tessera::testing {
namespace {

using checkpoint::Bytes;
using checkpoint::StateDict;
using checkpoint::StateValue;

TEST(SaveAndLoad, ValuesOfEveryKindComeBack) {
  for (const auto format :
       {checkpoint::Format::kTessera, checkpoint::Format::kDcp}) {
    const ScratchFolder folder;
    run_ranks(3, [&] {
      checkpoint::save(
          {{"step", 100},
           {"loss", 0.1},
           {"done", false},
           {"name", "adam \"w\"\n"},
           {"raw", Bytes{std::string("\0\xff", 2)}},
           {"none", StateValue()},
           {"nested", StateDict{{"list", StateValue::List{1, "a", 2.5}}}}},
          folder / "a", {.format = format});
      StateDict dict{
          {"step", 0},
          {"loss", 0.0},
          {"done", true},
          {"name", ""},
          {"raw", Bytes{}},
          {"none", StateValue()},
          {"nested", StateDict{{"list", StateValue::List{}}}}};
      checkpoint::load(dict, folder / "a");
      EXPECT_EQ(dict.at("step").to_int(), 100);
      EXPECT_EQ(dict.at("loss").to_double(), 0.1);
      EXPECT_FALSE(dict.at("done").to_bool());
      EXPECT_EQ(dict.at("name").to_string(), "adam \"w\"\n");
      EXPECT_EQ(dict.at("raw").to_bytes(), std::string("\0\xff", 2));
      const auto& list = dict.at("nested").to_dict().at("list").to_list();
      ASSERT_EQ(list.size(), 3U);
      EXPECT_EQ(list[1].to_string(), "a");
      EXPECT_EQ(list[2].to_double(), 2.5);
    });
  }
}

TEST(SaveAndLoad, EveryDtypeIsBitExact) {
  const ScratchFolder folder;
  const std::vector<c10::ScalarType> dtypes = {
      at::kBool,          at::kByte,   at::kChar,         at::kShort,
      at::kInt,           at::kLong,   at::kHalf,         at::kBFloat16,
      at::kFloat,         at::kDouble, at::kComplexFloat, at::kComplexDouble,
      at::kFloat8_e4m3fn, at::kUInt16};
  run_ranks(2, [&] {
    const DeviceMesh mesh = mesh_of({2});
    StateDict saved, loaded;
    for (const c10::ScalarType dtype : dtypes) {
      const std::string name = dtype_name(dtype);
      const at::Tensor bytes = at::arange(
          5 * 3 * static_cast<int64_t>(c10::elementSize(dtype)),
          at::TensorOptions(at::kByte));
      const at::Tensor value =
          dtype == at::kBool ? bytes.remainder(2).to(at::kBool).view({5, 3})
                             : bytes.view(dtype).view({5, 3});
      saved.set(
          name, distribute_tensor(value, mesh, {Shard(0)}, {std::nullopt}));
      loaded.set(
          name, distribute_tensor(
                    at::empty_like(value), mesh, {Shard(1)}, {std::nullopt}));
    }
    checkpoint::save(saved, folder / "a");
    checkpoint::load(loaded, folder / "a");
    for (const auto& [name, value] : saved) {
      const at::Tensor want = full_tensor(value.to_tensor());
      const at::Tensor got = full_tensor(loaded.at(name).to_tensor());
      EXPECT_TRUE(at::equal(
          got.contiguous().view(at::kByte), want.contiguous().view(at::kByte)))
          << name;
    }
  });
}

TEST(SaveAndLoad, LazyConjugatesHaveTheirValue) {
  const ScratchFolder folder;
  run_ranks(2, [&] {
    const at::Tensor value = at::complex(distinct({3}), counting({3}));
    checkpoint::save({{"z", value.conj()}}, folder / "a");
    const at::Tensor memory = at::zeros_like(value);
    StateDict dict{{"z", memory.conj()}};
    checkpoint::load(dict, folder / "a");
    EXPECT_TRUE(
        at::equal(memory.conj().resolve_conj(), value.conj().resolve_conj()));
  });
}

TEST(SaveAndLoad, TensorsOfASubMeshAreSavedByItsRanks) {
  const ScratchFolder folder;
  run_ranks(4, [&] {
    const DeviceMesh pair(device(), at::tensor(std::vector<int64_t>{1, 3}));
    const at::Tensor value = distinct({6, 4});
    StateDict dict{{"w", distribute_tensor(value, pair, {Shard(0)})}};
    checkpoint::save(dict, folder / "a");
    StateDict all{
        {"w", distribute_tensor(
                  at::zeros({6, 4}, f64()), mesh_of({4}), {Shard(1)})}};
    checkpoint::load(all, folder / "a");
    EXPECT_TRUE(same(all.at("w").to_tensor(), value));
  });
}

TEST(SaveAndLoad, ShardedTensorsOfTheOlderFamilyToo) {
  const ScratchFolder folder;
  namespace st = sharded_tensor;
  run_ranks(2, [&] {
    const st::ChunkShardingSpec rows(0, {"rank:0/cpu", "rank:1/cpu"});
    const st::ShardedTensor saved =
        st::rand(rows, {5, 4}, {.dtype = at::kDouble});
    checkpoint::save({{"table", saved}}, folder / "a");
    const st::ChunkShardingSpec columns(1, {"rank:1/cpu", "rank:0/cpu"});
    const st::ShardedTensor loaded =
        st::zeros(columns, {5, 4}, {.dtype = at::kDouble});
    StateDict dict{{"table", loaded}};
    checkpoint::load(dict, folder / "a");
    const at::Tensor a = at::empty({5, 4}, at::kDouble);
    const at::Tensor b = at::empty({5, 4}, at::kDouble);
    saved.gather(0, rank() == 0 ? a : at::Tensor());
    loaded.gather(0, rank() == 0 ? b : at::Tensor());
    EXPECT_TRUE(rank() != 0 || at::equal(a, b));
  });
}

TEST(SaveAndLoad, LoadsSomeNamesAndConvertsOnRequest) {
  const ScratchFolder folder;
  run_ranks(2, [&] {
    const DeviceMesh mesh = mesh_of({2});
    const at::Tensor value = counting({4, 3});
    checkpoint::save(
        {{"model",
          StateDict{{"w", distribute_tensor(value, mesh, {Shard(0)})}}},
         {"step", 3}},
        folder / "a");
    const at::Tensor half =
        distribute_tensor(at::zeros({4, 3}, f32()), mesh, {Shard(1)});
    StateDict dict{{"model", StateDict{{"w", half}}}, {"step", 7}};
    EXPECT_ERROR(
        "is f32, and the checkpoint has f64",
        checkpoint::load(dict, folder / "a"));
    checkpoint::load(
        dict, folder / "a", {.convert_dtype = true, .only = {"model.*"}});
    EXPECT_TRUE(same(half, value.to(at::kFloat)));
    EXPECT_EQ(dict.at("step").to_int(), 7) << "it was not asked for";
  });
}

TEST(SaveAndLoad, RandomNumbersGoOnWhereTheyWere) {
  const ScratchFolder folder;
  run_ranks(2, [&] {
    const DeviceMesh mesh = mesh_of({2});
    manual_seed(uint64_t{1} << 63);
    tessera::randn({4}, mesh, {Shard(0)});
    { const RandomStream stream("data"); }
    checkpoint::save(
        {{"random", checkpoint::random_state_dict()}}, folder / "a");
    const at::Tensor next = tessera::randn({4}, mesh, {Shard(0)});
    manual_seed(5);
    StateDict dict{{"random", checkpoint::random_state_dict()}};
    checkpoint::load(dict, folder / "a");
    EXPECT_TRUE(same(tessera::randn({4}, mesh, {Shard(0)}), next));
  });
}

TEST(SaveAndLoad, ACheckpointIsReplacedOnRequestOnly) {
  const ScratchFolder folder;
  run_ranks(2, [&] {
    checkpoint::save({{"step", 1}}, folder / "a");
    EXPECT_ERROR("overwrite", checkpoint::save({{"step", 2}}, folder / "a"));
    StateDict dict{{"step", 0}};
    checkpoint::load(dict, folder / "a");
    EXPECT_EQ(dict.at("step").to_int(), 1);
    checkpoint::save({{"step", 2}}, folder / "a", {.overwrite = true});
    checkpoint::load(dict, folder / "a");
    EXPECT_EQ(dict.at("step").to_int(), 2);
  });
}

TEST(SaveAndLoad, StepsAreKeptAndTheLatestIsFound) {
  const ScratchFolder folder;
  run_ranks(2, [&] {
    for (int64_t step = 10; step <= 40; step += 10) {
      checkpoint::save_step({{"step", step}}, folder.path(), step, 2);
    }
    const auto path = checkpoint::latest(folder.path());
    ASSERT_TRUE(path.has_value());
    StateDict dict{{"step", 0}};
    checkpoint::load(dict, *path);
    EXPECT_EQ(dict.at("step").to_int(), 40);
  });
  EXPECT_FALSE(std::filesystem::exists(folder / "step_000000000020"));
  EXPECT_TRUE(std::filesystem::exists(folder / "step_000000000030"));
}

}  // namespace
}  // namespace tessera::testing
