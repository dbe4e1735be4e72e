// Which implementation a call finds, and what the general ways return.
#include <sharded_tensor/ops/ops_placements.h>

namespace tessera::testing {
namespace {

using namespace sharded_tensor;  // NOLINT

Handler returns(double number) {
  return [number](const std::vector<Value>&, const ProcessGroup&) {
    return std::vector<Value>{c10::IValue(number)};
  };
}

// Registrations stay: a name that no test has used.
std::string new_name() {
  static int count = 0;
  return "my::op" + std::to_string(++count);
}

double number_of(const std::vector<Value>& results) {
  return std::get<c10::IValue>(results.at(0)).toDouble();
}

class NamedChunks : public ChunkShardingSpec {
 public:
  using ChunkShardingSpec::ChunkShardingSpec;
  ShardingSpecPtr clone() const override {
    return std::make_shared<NamedChunks>(*this);
  }
  std::string name() const override { return "NamedChunks"; }
};

class OwnChunks : public NamedChunks {
 public:
  using NamedChunks::NamedChunks;
  ShardingSpecPtr clone() const override {
    return std::make_shared<OwnChunks>(*this);
  }
};

TEST(TestShardedTensorCustomOps, test_custom_op) {
  custom_sharded_op(
      "aten::asin",
      [](const std::vector<Value>& arguments, const ProcessGroup& group) {
        const auto& t = std::get<ShardedTensor>(arguments[0]);
        EXPECT_EQ(group, t.process_group());
        return std::vector<Value>{mul(t, 10.0)};
      });
  run_ranks(4, [] {
    const at::Tensor whole = counting({6, 6});
    const auto t = cut(whole, chunks(0, {0, 1, 2, 3}));
    EXPECT_TRUE(shards_are(dispatch_one("aten::asin", {t}), whole * 10));
    EXPECT_TRUE(shards_are(dispatch_one("asin", {t}), whole * 10));
    EXPECT_TRUE(has_custom_op(t.sharding_spec(), "aten::asin"));
    EXPECT_FALSE(has_custom_op(t.sharding_spec(), "aten::acos"));
  });
}

TEST(TestShardedTensorCustomOps, test_custom_op_override) {
  custom_sharding_spec_op<NamedChunks>(
      "aten::linear",
      [](const std::vector<Value>& arguments, const ProcessGroup&) {
        return std::vector<Value>{
            mul(std::get<ShardedTensor>(arguments[1]), 2.0)};
      });
  run_ranks(4, [] {
    const at::Tensor whole = distinct({6, 6});
    const auto weight = cut(whole, NamedChunks(0, places({0, 1, 2, 3})));
    EXPECT_TRUE(shards_are(linear(distinct({2, 6}), weight), whole * 2));
    // Other specs keep the library's.
    const auto other = cut(whole, chunks(0, {0, 1, 2, 3}));
    EXPECT_EQ(
        linear(distinct({2, 6}), other).sizes(), (std::vector<int64_t>{2, 6}));
  });
}

TEST(TestShardedTensorCustomOps, test_custom_op_errors) {
  EXPECT_THROWN(
      c10::TypeError, "must be a function of (arguments, group)",
      custom_sharded_op("aten::cosh", {}));
  EXPECT_THROWN(
      c10::TypeError, "must be a function of (arguments, group)",
      custom_sharding_spec_op<ChunkShardingSpec>("aten::cosh", {}));
}

TEST(Dispatch, ASecondRegistrationReplacesTheFirst) {
  custom_sharded_op("my::twice_registered", returns(1));
  custom_sharded_op("my::twice_registered", returns(2));
  run_ranks(2, [] {
    const auto t = zeros(chunks(0, {0, 1}), {4});
    EXPECT_EQ(number_of(dispatch("my::twice_registered", {t})), 2);
  });
}

TEST(Dispatch, TheUsersForAllComesBeforeTheUsersForASpec) {
  const std::string op = new_name();
  custom_sharding_spec_op<ChunkShardingSpec>(op, returns(1));
  run_ranks(2, [&] {
    const auto t = zeros(chunks(0, {0, 1}), {4});
    EXPECT_EQ(number_of(dispatch(op, {t})), 1);
  });
  custom_sharded_op(op, returns(2));
  run_ranks(2, [&] {
    const auto t = zeros(chunks(0, {0, 1}), {4});
    EXPECT_EQ(number_of(dispatch(op, {t})), 2);
  });
}

TEST(Dispatch, AHandlerOfANameServesItsOverloads) {
  custom_sharded_op("my::overloaded", returns(1));
  custom_sharded_op("my::overloaded.special", returns(2));
  run_ranks(2, [] {
    const auto t = zeros(chunks(0, {0, 1}), {4});
    EXPECT_EQ(number_of(dispatch("my::overloaded.any", {t})), 1);
    EXPECT_EQ(number_of(dispatch("my::overloaded.special", {t})), 2);
  });
}

TEST(DefectD14, ASpecsOwnTypeComesFirstThenTheBaseRegisteredLast) {
  const std::string op = new_name();
  custom_sharding_spec_op<NamedChunks>(op, returns(1));
  custom_sharding_spec_op<ChunkShardingSpec>(op, returns(2));
  run_ranks(2, [&] {
    const auto places_of_all = places({0, 1});
    const auto t = zeros(NamedChunks(0, places_of_all), {4});
    EXPECT_EQ(number_of(dispatch(op, {t})), 1);
    const auto derived = zeros(OwnChunks(0, places_of_all), {4});
    EXPECT_EQ(number_of(dispatch(op, {derived})), 2);
    const auto listed = zeros(
        EnumerableShardingSpec({box_of({0}, {2}, 0), box_of({2}, {2}, 1)}),
        {4});
    EXPECT_FALSE(has_custom_op(listed.sharding_spec(), op));
  });
  custom_sharding_spec_op<OwnChunks>(op, returns(3));
  run_ranks(2, [&] {
    const auto derived = zeros(OwnChunks(0, places({0, 1})), {4});
    EXPECT_EQ(number_of(dispatch(op, {derived})), 3);
  });
}

TEST(Dispatch, ValidatesItsArguments) {
  run_ranks(4, [] {
    const auto t = zeros(chunks(0, {0, 1}), {4});
    EXPECT_THROWN(c10::ValueError, "no arguments", dispatch("aten::add", {}));
    EXPECT_THROWN(
        c10::TypeError, "none of the 2 arguments is a sharded tensor",
        dispatch("aten::add", {at::ones({4}), 1.0}));
    EXPECT_THROWN(
        c10::TypeError, "none of the 0 arguments is a sharded tensor",
        find_sharded_tensor({}));
    ShardedTensorOptions options;
    options.process_group = ProcessGroup({0, 1});
    const auto other = zeros(chunks(0, {0, 1}), {4}, options);
    EXPECT_THROWN(
        c10::Error, "must have the same group; got group {0, 1, 2, 3}",
        add(t, other));
    EXPECT_THROWN(
        c10::ValueError, "no operator or function is named 'aten::nothing'",
        dispatch("aten::nothing", {t}));
    EXPECT_THROWN(
        c10::TypeError, "does not take", dispatch("aten::relu", {t, 1.0, 2.0}));
    EXPECT_THROWN(
        c10::TypeError, "the result must be one sharded tensor",
        dispatch_one("aten::sum", {t}));
    EXPECT_THROWN(
        c10::TypeError, "argument 1 must be a sharded tensor",
        dispatch("aten::equal", {t, at::ones({4})}));
    EXPECT_THROWN(
        c10::TypeError, "argument 1 must be an integer",
        dispatch("aten::transpose", {t, 0.5, 0}));
  });
}

TEST(Dispatch, FindsTheFirstShardedTensor) {
  run_ranks(2, [] {
    const auto a = zeros(chunks(0, {0, 1}), {4});
    const auto b = zeros(chunks(0, {0, 1}), {4});
    EXPECT_EQ(find_sharded_tensor({1.0, b, a}).hash(), b.hash());
  });
}

TEST(Dispatch, RunsAnyOperatorOnAMesh) {
  run_ranks(4, [] {
    for (const Cut& how : mesh_cuts()) {
      SCOPED_TRACE(how.name);
      const at::Tensor whole = leaf(distinct({6, 6}));
      const auto t = cut(whole, *how.spec);
      const auto sorted = dispatch("aten::cumsum", {t, 0});
      const auto& result = std::get<ShardedTensor>(sorted.at(0));
      EXPECT_TRUE(shards_are_close(result, whole.cumsum(0)));
      EXPECT_EQ(result.sharding_spec(), t.sharding_spec());
      backward_of_sum(result, distinct({6, 6}));
      (whole.cumsum(0) * distinct({6, 6})).sum().backward();
      EXPECT_TRUE(gradients_are(t, whole.grad()));
    }
  });
}

TEST(Dispatch, OtherShapesArePlainOnAllRanksOfTheGroup) {
  run_ranks(4, [] {
    for (const Cut& how : mesh_cuts()) {
      SCOPED_TRACE(how.name);
      const at::Tensor whole = distinct({6, 6});
      const auto results = dispatch("aten::max", {cut(whole, *how.spec), 1});
      ASSERT_EQ(results.size(), 2);
      const auto [values, places] = whole.max(1);
      EXPECT_TRUE(same(std::get<c10::IValue>(results[0]).toTensor(), values));
      EXPECT_TRUE(same(std::get<c10::IValue>(results[1]).toTensor(), places));
      const auto parts = dispatch("aten::unbind", {cut(whole, *how.spec)});
      const auto list = std::get<c10::IValue>(parts.at(0)).toTensorVector();
      EXPECT_TRUE(same(list.at(5), whole[5]));
    }
  });
}

TEST(Dispatch, InPlaceFormsReturnTheTensorItself) {
  run_ranks(4, [] {
    for (const Cut& how : mesh_cuts()) {
      SCOPED_TRACE(how.name);
      const at::Tensor whole = distinct({6, 6});
      const auto t = cut(whole, *how.spec);
      const auto triangle = dispatch_one("aten::tril_", {t});
      EXPECT_EQ(triangle.hash(), t.hash());
      EXPECT_TRUE(shards_are(t, whole.tril()));
      const auto source = cut(whole, *how.spec);
      requires_grad_(source);
      const auto written = clone(source);
      dispatch("aten::tril_", {written});
      EXPECT_TRUE(written.requires_grad());
      backward_of_sum(written, distinct({6, 6}));
      EXPECT_TRUE(gradients_are(source, distinct({6, 6}).tril()));
      EXPECT_THROWN(
          c10::Error, "a leaf that requires a gradient",
          dispatch("aten::tril_", {source}));
    }
    const auto t = cut(distinct({6, 2}), chunks(0, {0, 1, 2, 3}));
    EXPECT_THROWN(
        c10::ValueError, "cannot change its shape in place",
        dispatch("aten::t_", {t}));
  });
}

TEST(Dispatch, WrittenArgumentsMustBeSharded) {
  run_ranks(2, [] {
    const auto t = cut(distinct({4, 2}), chunks(0, {0, 1}));
    EXPECT_THROWN(
        c10::TypeError, "writes argument 0, which must be a sharded tensor",
        dispatch("aten::add_", {at::ones({4, 2}), t}));
  });
}

TEST(Dispatch, WorksOnTensorsThatCameFromPlacements) {
  run_ranks(4, [] {
    const at::Tensor whole = distinct({6, 6});
    const at::Tensor tensor =
        distribute_tensor(leaf(whole), mesh_of({4}), {tessera::Shard(0)});
    const auto t = from_dtensor(tensor);
    const auto results = dispatch("aten::cumsum", {mul(t, 2.0), 0});
    const auto& result = std::get<ShardedTensor>(results.at(0));
    EXPECT_TRUE(shards_are_close(result, (whole * 2).cumsum(0)));
    backward_of_sum(result, distinct({6, 6}));
    const at::Tensor plain_leaf = leaf(whole);
    ((plain_leaf * 2).cumsum(0) * distinct({6, 6})).sum().backward();
    EXPECT_TRUE(close(tensor.grad(), plain_leaf.grad()));
    const at::NoGradGuard no_grad;
    dispatch("aten::tril_", {t});
    EXPECT_TRUE(same(tensor, whole.tril()));
  });
}

TEST(DefectD22, OperatorsOnOtherTilingsSayWhatToDo) {
  run_ranks(4, [] {
    const auto t = cut(distinct({6, 6}), pinwheel());
    EXPECT_THROWN(
        c10::NotImplementedError, "only elementwise operators run",
        dispatch("aten::sum", {t}));
    EXPECT_THROWN(
        c10::NotImplementedError, "reshard() to one box per rank",
        softmax(t, 0));
    const auto other = cut(distinct({6, 6}), chunks(0, {0, 1, 2, 3}));
    EXPECT_THROWN(
        c10::NotImplementedError, "the shards must be cut alike",
        add(t, other));
    EXPECT_THROWN(
        c10::NotImplementedError, "reshard() to one box per rank on a grid",
        linear(distinct({2, 6}), t));
  });
}

TEST(Dispatch, MeshesOfOtherRanksOrOrdersAreAnError) {
  run_ranks(4, [] {
    const auto t = cut(distinct({6, 6}), chunks(0, {0, 1, 2, 3}));
    const auto other = cut(distinct({6, 6}), chunks(0, {3, 2, 1, 0}));
    EXPECT_THROWN(
        c10::ValueError, "must be on one mesh, its ranks in one order",
        add(t, other));
    EXPECT_THROWN(
        c10::ValueError, "reshard() one of them first",
        dispatch("aten::mm", {t, cut(distinct({6, 6}), chunks(0, {0, 1}))}));
  });
}

}  // namespace
}  // namespace tessera::testing
