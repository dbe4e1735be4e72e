#include <sharded_tensor/module/mlp.h>
#include <tessera/sharded_tensor/state_dict.h>

namespace tessera {
namespace {

using namespace sharded_tensor;  // NOLINT(google-build-using-namespace)
using testing::chunks;
using testing::distinct;
using testing::kAll;
using testing::same;
using testing::shards_are;

struct TableImpl : torch::nn::Module, ShardedTensorHolder {
  TableImpl() {
    register_sharded_tensor("first", first);
    register_sharded_tensor("second", second);
  }
  std::optional<ShardedTensor> first, second;
};
TORCH_MODULE(Table);

struct TablesImpl : torch::nn::Module, ShardedTensorHolder {
  TablesImpl()
      : inner(register_module("inner", Table())),
        fc(register_module("fc", torch::nn::Linear(2, 2))) {
    register_sharded_tensor("own", own);
  }
  Table inner;
  torch::nn::Linear fc;
  std::optional<ShardedTensor> own;
};
TORCH_MODULE(Tables);

void expect_equal(const ShardedTensor& got, const ShardedTensor& want) {
  EXPECT_EQ(got.metadata(), want.metadata());
  ASSERT_EQ(got.local_shards().size(), want.local_shards().size());
  for (size_t i = 0; i < got.local_shards().size(); ++i) {
    EXPECT_TRUE(
        same(got.local_shards()[i].tensor, want.local_shards()[i].tensor));
  }
}

TEST(TestShardedTensorChunked, test_state_dict) {
  run_ranks(4, [] {
    Tables saved, loaded;
    saved->own = shard_tensor(distinct({9, 3}), chunks(0, kAll));
    saved->inner->first = shard_tensor(distinct({4, 8}), chunks(1, kAll));
    const auto dict = state_dict(*saved);
    ASSERT_EQ(dict.size(), 2U);
    EXPECT_EQ(dict.at("own").hash(), saved->own->hash());
    const auto read = restore_state_dict(save_state_dict(dict));
    EXPECT_TRUE(load_state_dict(*loaded, read).empty());
    ASSERT_TRUE(loaded->own && loaded->inner->first);
    EXPECT_FALSE(loaded->inner->second);
    expect_equal(*loaded->own, *saved->own);
    expect_equal(*loaded->inner->first, *saved->inner->first);
    EXPECT_NE(loaded->own->hash(), saved->own->hash());
    EXPECT_TRUE(shards_are(*loaded->own, distinct({9, 3})));
  });
}

TEST(TestShardedTensorChunked, test_state_dict_new_group) {
  run_ranks(4, [] {
    if (rank() < 2) {
      return;
    }
    const ProcessGroup group({2, 3});
    Tables saved, loaded;
    saved->inner->first =
        shard_tensor(distinct({10, 3}), chunks(0, {2, 3, 2, 3}), 1, group);
    EXPECT_EQ(saved->inner->first->local_shards().size(), 2U);
    const std::string bytes = save_state_dict(state_dict(*saved));
    EXPECT_ERROR("the tensor was saved with", restore_state_dict(bytes));
    const WithProcessGroup in_group(group);
    load_state_dict(*loaded, restore_state_dict(bytes));
    ASSERT_TRUE(loaded->inner->first);
    EXPECT_EQ(loaded->inner->first->process_group(), group);
    expect_equal(*loaded->inner->first, *saved->inner->first);
  });
}

TEST(TestShardedTensorChunked, test_state_dict_no_sharded_tensors) {
  run_ranks(4, [] {
    torch::nn::Linear plain(2, 3);
    EXPECT_TRUE(state_dict(*plain).empty());
    const auto before = plain->weight.clone();
    EXPECT_TRUE(load_state_dict(*plain, {}).empty());
    EXPECT_TRUE(same(plain->weight, before));
    Tables none;
    EXPECT_TRUE(state_dict(*none).empty());
    EXPECT_TRUE(restore_state_dict(save_state_dict(state_dict(*none))).empty());
  });
}

TEST(StateDict, JoinsAPrefixWithOneDotAndNamesWhatNobodyHas) {
  run_ranks(2, [] {
    Tables tables;
    const auto t = shard_tensor(distinct({4}), chunks(0, {0, 1}));
    tables->own = t;
    tables->inner->second = t;
    const auto dict = state_dict(*tables, "model");
    EXPECT_TRUE(dict.contains("model.own"));
    EXPECT_TRUE(dict.contains("model.inner.second"));
    Tables other;
    EXPECT_EQ(
        load_state_dict(*other, dict),
        (std::vector<std::string>{"model.inner.second", "model.own"}));
    EXPECT_FALSE(other->own);
    EXPECT_TRUE(load_state_dict(*other, dict, "model").empty());
    EXPECT_EQ(other->own->hash(), t.hash());
  });
}

struct FixedImpl : torch::nn::Module, ShardedTensorHolder {
  FixedImpl() : t(zeros(chunks(0, {0, 1}), {4})) {
    register_sharded_tensor("t", t);
  }
  void add(const std::string& name) { register_sharded_tensor(name, t); }
  ShardedTensor t;
};

TEST(ShardedTensorHolder, RegistersAMemberOnceUnderAName) {
  run_ranks(2, [] {
    FixedImpl fixed;  // no shared_ptr is needed
    EXPECT_EQ(state_dict(fixed).at("t").hash(), fixed.t.hash());
    EXPECT_THROWN(KeyError, "'t' is registered already", fixed.add("t"));
    EXPECT_THROWN(KeyError, "'a.b' is no name", fixed.add("a.b"));
    EXPECT_THROWN(KeyError, "'' is no name", fixed.add(""));
    // A copy knows nothing of the other's members.
    FixedImpl copy = fixed;
    EXPECT_TRUE(copy.sharded_tensors().empty());
    copy = fixed;
    EXPECT_TRUE(copy.sharded_tensors().empty());
    const auto other = ones(chunks(0, {0, 1}), {4});
    load_state_dict(fixed, {{"t", other}});
    EXPECT_EQ(fixed.t.hash(), other.hash());
    EXPECT_NE(copy.t.hash(), other.hash());
  });
}

TEST(StateDict, RefusesDamagedBytes) {
  run_ranks(2, [] {
    Tables tables;
    tables->own = shard_tensor(distinct({4}), chunks(0, {0, 1}));
    const std::string bytes = save_state_dict(state_dict(*tables));
    for (size_t i = 0; i < bytes.size(); i += 7) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ 0x20);
      EXPECT_THROW(restore_state_dict(damaged), c10::Error);
    }
    EXPECT_THROW(
        restore_state_dict(bytes.substr(0, bytes.size() - 9)), c10::Error);
    EXPECT_THROW(restore_state_dict(save(*tables->own)), c10::Error);
  });
}

}  // namespace
}  // namespace tessera
