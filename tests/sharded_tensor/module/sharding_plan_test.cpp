// Plans: what is checked, what is replaced, which outputs they reach.
#include <sharded_tensor/module/mlp.h>

namespace tessera {
namespace {

using namespace sharded_tensor;  // NOLINT(google-build-using-namespace)
using testing::chunks;
using testing::close;
using testing::distinct;
using testing::expect_equal_gradients;
using testing::i64;
using testing::kAll;
using testing::Mlp;
using testing::same;
using testing::sequential_mlp;
using testing::set_values;

// A collection of bags in a ModuleList, as recommenders have them.
struct BagsImpl : torch::nn::Module {
  BagsImpl(int64_t count, int64_t rows, int64_t width)
      : bags(register_module("bags", torch::nn::ModuleList())) {
    for (int64_t i = 0; i < count; ++i) {
      bags->push_back(torch::nn::EmbeddingBag(rows, width));
    }
    set_values(*this);
  }
  at::Tensor forward(const at::Tensor& ids) {
    std::vector<at::Tensor> found;
    for (const auto& bag : *bags) {
      found.push_back(bag->as<torch::nn::EmbeddingBag>()->forward(ids));
    }
    return torch::cat(found, 1);
  }
  torch::nn::ModuleList bags;
};
TORCH_MODULE(Bags);

// A class of its own for the sharded collection.
struct ShardedBagsImpl : BagsImpl {
  using BagsImpl::BagsImpl;
  std::vector<ShardingSpecPtr> specs;
};

// Cuts the first half of the bags by rows, the others by columns.
struct BagSharder : Sharder {
  Replacement shard(const std::shared_ptr<torch::nn::Module>& module) override {
    auto& from = *module->as<BagsImpl>();
    const size_t count = from.bags->size();
    auto made = std::make_shared<ShardedBagsImpl>(count, 10, 8);
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < count; ++i) {
      auto& bag = from.bags->at<torch::nn::EmbeddingBagImpl>(i);
      auto& to = made->bags->at<torch::nn::EmbeddingBagImpl>(i);
      to.weight.copy_(bag.weight);
      const auto t =
          shard_parameter(to, "weight", chunks(i < count / 2 ? 0 : 1, kAll));
      made->specs.push_back(t.sharding_spec().clone());
    }
    return made;
  }
};

struct RecommenderImpl : torch::nn::Module {
  RecommenderImpl() { register_module("table", Bags(6, 10, 8)); }
  at::Tensor forward(const at::Tensor& ids) {
    return named_children()["table"]->as<BagsImpl>()->forward(ids);
  }
};
TORCH_MODULE(Recommender);

TEST(TestCustomSharder, test_custom_sharder) {
  run_ranks(4, [] {
    Recommender local, sharded;
    auto net = shard_module(
        sharded, {.plan = {{"table", std::make_shared<BagSharder>()}}});
    auto* table = sharded->named_children()["table"]->as<ShardedBagsImpl>();
    ASSERT_NE(table, nullptr);
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_TRUE(*table->specs[i] == chunks(i < 3 ? 0 : 1, kAll));
      EXPECT_TRUE(
          is_dtensor(table->bags->at<torch::nn::EmbeddingBagImpl>(i).weight));
    }
    const at::Tensor ids = torch::arange(40, i64()).remainder(10).view({8, 5});
    const at::Tensor want = local->forward(ids);
    const at::Tensor got = net(ids);
    EXPECT_TRUE(close(got, want));
    want.pow(2).sum().backward();
    got.pow(2).sum().backward();
    expect_equal_gradients(*sharded, *local);
  });
}

TEST(TestCustomSharder, test_custom_sharder_errors) {
  run_ranks(4, [] {
    Recommender model;
    const auto sharder = std::make_shared<BagSharder>();
    EXPECT_THROWN(
        KeyError, "a Sharder cannot replace the root module (",
        shard_module(model, {.plan = {{"", sharder}}}));
    EXPECT_THROWN(
        c10::Error, "all of 'table' is left to a Sharder",
        shard_module(
            model, {.plan = {
                        {"table", sharder},
                        {"table.bags.0.weight", chunks(0, kAll)}}}));
    EXPECT_THROWN(
        c10::Error, "'table.bags' is in the plan, but all of 'table'",
        shard_module(
            model, {.plan = {{"table", sharder}, {"table.bags", sharder}}}));
    EXPECT_EQ(model->named_children()["table"]->as<ShardedBagsImpl>(), nullptr);
  });
}

TEST(TestShardingPlan, EntriesAreAddedByPath) {
  run_ranks(4, [] {
    Mlp model(4, 8, 4);
    ShardingPlan plan;
    plan.plan["fc1.weight"] = chunks(0, kAll);
    shard_module(model, plan);
    EXPECT_TRUE(is_dtensor(model->named_parameters()["fc1.weight"]));
    Mlp other(4, 8, 4);
    plan.plan["fc2.weight"];
    EXPECT_THROWN(
        c10::TypeError, "is neither a ShardingSpec nor a Sharder",
        shard_module(other, plan));
  });
}

TEST(TestShardingPlan, TheRootModuleHasANameInErrors) {
  run_ranks(4, [] {
    Mlp model(4, 8, 4);
    const auto spec = chunks(0, kAll);
    EXPECT_THROWN(
        c10::ValueError, "got one for the root module (",
        shard_module(model, {.plan = {{"", spec}}}));
    EXPECT_THROWN(
        c10::TypeError, "the plan of the root module (",
        shard_module(model, {.plan = {{"", ShardingSpecPtr()}}}));
    EXPECT_THROWN(
        c10::TypeError, "the output plan of the root module (",
        shard_module(model, {.output_plan = {{"", ShardingSpecPtr()}}}));
    const auto differs = chunks(rank() == 0 ? 0 : 1, kAll);
    EXPECT_THROWN(
        c10::ValueError, "rank 0 has the root module (",
        shard_module(model, {.output_plan = {{"", differs}}}));
  });
}

TEST(TestShardingPlan, test_sharding_plan_errors) {
  run_ranks(4, [] {
    Mlp model(4, 8, 4);
    const auto spec = chunks(0, kAll);
    const auto sharder = std::make_shared<BagSharder>();
    EXPECT_THROWN(
        c10::TypeError, "is neither a ShardingSpec nor a Sharder",
        shard_module(model, {.plan = {{"fc1.weight", ShardingSpecPtr()}}}));
    EXPECT_THROWN(
        c10::TypeError, "MlpImpl) is no ShardingSpec",
        shard_module(
            model,
            {.plan = {{"fc1.weight", spec}}, .output_plan = {{"", sharder}}}));
    for (const char* path : {"fc3.weight", "fc1.x.weight", "fc1..weight"}) {
      EXPECT_THROWN(
          AttributeError, "has no module 'fc",
          shard_module(model, {.plan = {{"fc1.weight", spec}, {path, spec}}}));
    }
    EXPECT_THROWN(
        AttributeError, "has no parameter 'weights'",
        shard_module(
            model, {.plan = {{"fc1.weight", spec}, {"fc2.weights", spec}}}));
    EXPECT_THROWN(
        AttributeError, "has no module 'fc5'",
        shard_module(model, {.output_plan = {{"fc5", spec}}}));
    EXPECT_THROWN(
        AttributeError, "has no module 'fc5'",
        shard_module(model, {.return_local_tensor = {"fc5"}}));
    EXPECT_THROWN(
        AttributeError, "has no module 'fc5'",
        shard_module(model, {.plan = {{"fc5", sharder}}}));
    EXPECT_THROWN(
        c10::ValueError, "src_rank must be a rank of the group",
        shard_module(model, {.plan = {{"fc1.weight", spec}}}, -1));
    for (const auto& p : model->parameters()) {
      EXPECT_FALSE(is_dtensor(p));
    }
  });
}

TEST(ShardingPlan, ThatDiffersBetweenRanksThrowsOnAll) {
  run_ranks(4, [] {
    Mlp model(4, 8, 4);
    const auto spec = chunks(0, kAll);
    EXPECT_THROWN(
        c10::ValueError, "the ranks must pass the same plan",
        shard_module(
            model,
            {.plan = {{rank() == 2 ? "fc1.weight" : "fc2.weight", spec}}}));
    EXPECT_THROWN(
        c10::ValueError, "the ranks must pass the same plan",
        shard_module(
            model, {.plan = {{"fc1.weight", spec}},
                    .output_plan = {{"", chunks(rank() == 1 ? 1 : 0, kAll)}}}));
    EXPECT_THROWN(
        AttributeError, "on rank 3: shard_module",
        shard_module(
            model,
            {.plan = {{rank() == 3 ? "fc3.weight" : "fc1.weight", spec}}}));
    EXPECT_FALSE(is_dtensor(model->fc1->weight));
  });
}

// One tensor under two names.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    const at::Tensor w = distinct({4, 4});
    register_parameter("in", w);
    register_parameter("out", w);
  }
};

TEST(ShardingPlan, CutsOneTensorInOneWay) {
  run_ranks(2, [] {
    const auto rows = chunks(0, {0, 1}), columns = chunks(1, {0, 1});
    const auto tied = std::make_shared<TiedImpl>();
    EXPECT_THROWN(
        c10::ValueError, "'out' and 'in' are one tensor",
        shard_module(tied, {.plan = {{"in", rows}, {"out", columns}}}));
    EXPECT_FALSE(is_dtensor(tied->parameters()[0]));
    shard_module(tied, {.plan = {{"in", rows}, {"out", rows}}});
    EXPECT_TRUE(same(tied->named_parameters()["out"], distinct({4, 4})));
    EXPECT_TRUE(is_dtensor(tied->named_parameters()["in"]));
  });
}

// Chunks every parameter along its first dim.
struct ChunkPlanner : ShardingPlanner {
  explicit ChunkPlanner(std::vector<int64_t> on) : ranks(std::move(on)) {}
  ShardingPlan build_plan(const torch::nn::Module& module) override {
    ShardingPlan plan;
    for (const auto& p : module.named_parameters()) {
      plan.plan.emplace(p.key(), chunks(0, ranks));
    }
    return plan;
  }
  std::vector<int64_t> ranks;
};

TEST(TestShardingPlan, test_custom_sharding_planner) {
  run_ranks(4, [] {
    Mlp model(12, 29, 5);
    ChunkPlanner planner({2, 0, 3, 1});
    auto net = shard_module(model, planner.build_plan(*model));
    for (const auto& p : model->named_parameters()) {
      ASSERT_TRUE(is_dtensor(p.value())) << p.key();
      EXPECT_TRUE(
          from_dtensor(p.value()).sharding_spec() == chunks(0, planner.ranks));
    }
    EXPECT_TRUE(close(
        net(distinct({6, 12})), Mlp(12, 29, 5)->forward(distinct({6, 12}))));
  });
}

TEST(TestShardingPlan, test_shard_module_sub_process_group) {
  run_ranks(4, [] {
    if (rank() < 2) {
      return;
    }
    for (const int64_t dim : {0, 1}) {
      Mlp model(12, 17, 29);
      const auto spec = chunks(dim, {2, 3});
      const ShardingPlan plan{
          .plan = {{"fc1.weight", spec}, {"fc2.weight", spec}}};
      auto net = shard_module(model, plan, 0, ProcessGroup({2, 3}));
      EXPECT_EQ(device_mesh(model->fc1->weight).size(), 2);
      EXPECT_TRUE(close(
          net(distinct({5, 12})), Mlp(12, 17, 29)->forward(distinct({5, 12}))));
    }
  });
}

// A module that takes another's place.
struct TripleImpl : torch::nn::Module {
  at::Tensor forward(at::Tensor x) { return x * 3; }
};
TORCH_MODULE(Triple);

struct TripleSharder : Sharder {
  Replacement shard(const std::shared_ptr<torch::nn::Module>&) override {
    return Triple();
  }
};

// Hides the type of what it returns.
struct NamelessSharder : Sharder {
  Replacement shard(const std::shared_ptr<torch::nn::Module>&) override {
    return std::shared_ptr<torch::nn::Module>(std::make_shared<TripleImpl>());
  }
};
struct NullSharder : Sharder {
  Replacement shard(const std::shared_ptr<torch::nn::Module>&) override {
    return std::shared_ptr<torch::nn::Module>();
  }
};

TEST(DefectD5, SequentialCallsWhatASharderReturned) {
  run_ranks(4, [] {
    auto net = sequential_mlp(4, 8, 4);
    const at::Tensor x = distinct({3, 4});
    auto call = shard_module(
        net, {.plan = {
                  {"0.weight", chunks(0, kAll)},
                  {"1", std::make_shared<TripleSharder>()}}});
    auto parts = sequential_mlp(4, 8, 4);
    const at::Tensor want = parts->at<torch::nn::LinearImpl>(2).forward(
        parts->at<torch::nn::LinearImpl>(0).forward(x) * 3);
    EXPECT_TRUE(close(call(x), want));
    EXPECT_NE(net->named_children()["1"]->as<TripleImpl>(), nullptr);
    EXPECT_NE(net->ptr(1)->as<TripleImpl>(), nullptr);
    const ImplicitReplication plain_is_equal;
    EXPECT_TRUE(close(net->forward(x), want));
  });
}

TEST(DefectD5, ModuleListsAndDictsHaveIt) {
  run_ranks(2, [] {
    torch::nn::ModuleList list(
        torch::nn::Linear(2, 2), torch::nn::Linear(2, 2));
    torch::nn::ModuleDict dict;
    dict->update(
        std::vector<std::pair<std::string, std::shared_ptr<torch::nn::Module>>>{
            {"a", torch::nn::Linear(2, 2).ptr()},
            {"b", torch::nn::Linear(2, 2).ptr()}});
    auto root = std::make_shared<torch::nn::Module>();
    root->register_module("list", list);
    root->register_module("dict", dict);
    const auto sharder = std::make_shared<TripleSharder>();
    shard_module(root, {.plan = {{"list.1", sharder}, {"dict.b", sharder}}});
    EXPECT_NE((*list)[1]->as<TripleImpl>(), nullptr);
    EXPECT_NE((*list)[0]->as<torch::nn::Linear>(), nullptr);
    EXPECT_NE((*dict)["b"]->as<TripleImpl>(), nullptr);
    EXPECT_NE(list->named_children()["1"]->as<TripleImpl>(), nullptr);
    EXPECT_NE(dict->named_children()["b"]->as<TripleImpl>(), nullptr);
    EXPECT_NE(dict->named_children()["a"]->as<torch::nn::Linear>(), nullptr);
  });
}

TEST(DefectD5, ATypedMemberKeepsItsModule) {
  run_ranks(2, [] {
    Mlp model(4, 4, 4);
    auto net = shard_module(
        model, {.plan = {{"fc1", std::make_shared<TripleSharder>()}}});
    EXPECT_NE(model->named_children()["fc1"]->as<TripleImpl>(), nullptr);
    const at::Tensor x = distinct({2, 4});
    EXPECT_TRUE(same(net(x), Mlp(4, 4, 4)->forward(x)));
    EXPECT_ERROR(
        "the module at 'fc1' is another one", net.at("fc1", model->fc1));
  });
}

TEST(DefectD5, WhatCannotBeCalledIsAnErrorOnAllRanks) {
  run_ranks(2, [] {
    auto net = sequential_mlp(4, 8, 4);
    EXPECT_THROWN(
        c10::TypeError, "returned a module of unknown type",
        shard_module(
            net, {.plan = {{"1", std::make_shared<NamelessSharder>()}}}));
    EXPECT_THROWN(
        c10::ValueError, "the Sharder of '1' returned no module",
        shard_module(net, {.plan = {{"1", std::make_shared<NullSharder>()}}}));
    EXPECT_NE(net->ptr(1)->as<torch::nn::GELU>(), nullptr);
  });
}

struct PairImpl : torch::nn::Module {
  PairImpl()
      : a(register_module("a", torch::nn::Linear(4, 4))),
        ab(register_module("ab", torch::nn::Linear(4, 4))) {
    set_values(*this);
  }
  at::Tensor forward(const at::Tensor& x) { return ab(a(x)); }
  torch::nn::Linear a, ab;
};
TORCH_MODULE(Pair);

// Shards in place and returns the same module.
struct InPlaceSharder : Sharder {
  Replacement shard(const std::shared_ptr<torch::nn::Module>& module) override {
    shard_parameter(*module, "weight", chunks(1, kAll));
    return module;
  }
};

TEST(DefectD24, ASharderOwnsAPathNotItsLetters) {
  run_ranks(4, [] {
    Pair model;
    auto net = shard_module(
        model, {.plan = {
                    {"a", std::make_shared<InPlaceSharder>()},
                    {"ab.weight", chunks(0, kAll)}}});
    EXPECT_EQ(placements(model->a->weight), Placements{tessera::Shard(1)});
    EXPECT_EQ(placements(model->ab->weight), Placements{tessera::Shard(0)});
    const at::Tensor x = distinct({3, 4});
    EXPECT_TRUE(close(net(x), Pair()->forward(x)));
    EXPECT_THROWN(
        c10::Error, "all of 'a' is left to a Sharder",
        shard_module(
            Pair(), {.plan = {
                         {"a", std::make_shared<InPlaceSharder>()},
                         {"a.weight", chunks(0, kAll)}}}));
  });
}

TEST(OutputPlan, ReachesTheChildrenOfASequential) {
  run_ranks(4, [] {
    const auto there = chunks(0, {3, 1, 0, 2});
    auto net = sequential_mlp(4, 8, 6), plain = sequential_mlp(4, 8, 6);
    auto call = shard_module(
        net, {.plan =
                  {{"0.weight", chunks(0, kAll)},
                   {"0.bias", chunks(0, kAll)},
                   {"2.weight", there},
                   {"2.bias", there}},
              .output_plan = {{"0", chunks(1, {3, 1, 0, 2})}, {"", there}},
              .return_local_tensor = {""}});
    at::Tensor x = distinct({8, 4}).requires_grad_();
    at::Tensor x2 = distinct({8, 4}).requires_grad_();
    const at::Tensor y = call(x);
    const at::Tensor want = plain->forward(x2);
    const int64_t place = std::vector<int64_t>{2, 1, 3, 0}[size_t(rank())];
    EXPECT_TRUE(close(y, want.narrow(0, 2 * place, 2)));
    y.pow(2).sum().backward();
    want.pow(2).sum().backward();
    expect_equal_gradients(*net, *plain);
    EXPECT_FALSE(is_dtensor(x.grad()));
    EXPECT_TRUE(close(x.grad(), x2.grad()));
  });
}

TEST(OutputPlan, ThatForwardWouldIgnoreIsAnError) {
  run_ranks(4, [] {
    Mlp model(4, 8, 4);
    auto net = shard_module(
        model, {.plan = {{"fc1.weight", chunks(0, kAll)}},
                .output_plan = {{"fc1", chunks(1, kAll)}},
                .return_local_tensor = {"fc1"}});
    const at::Tensor x = distinct({3, 4});
    EXPECT_THROWN(
        c10::NotImplementedError, "call it as net.at(\"fc1\", module)", net(x));
    auto fc1 = net.at("fc1", model->fc1);
    const at::Tensor want = Mlp(4, 8, 4)->fc1(x);
    EXPECT_TRUE(close(fc1(x), want.narrow(1, 2 * rank(), 2)));
    // Whoever has the call object knows.
    EXPECT_TRUE(close(net(x), Mlp(4, 8, 4)->forward(x)));
    EXPECT_ERROR("has no module 'fc7'", net.at("fc7", model->fc1));
    EXPECT_ERROR(
        "the module at 'fc2' is another one than was passed",
        net.at("fc2", model->fc1));
    EXPECT_ERROR(": the root module (", net.at("", model->fc1));
  });
}

TEST(OutputPlan, OfModulesBelowModulesMovesWithThem) {
  run_ranks(4, [] {
    auto inner = sequential_mlp(4, 8, 4);
    auto root = std::make_shared<torch::nn::Module>();
    root->register_module("net", inner);
    auto call = shard_module(
        root, {.plan = {{"net.0.weight", chunks(0, kAll)}},
               .output_plan = {{"net.2", chunks(0, kAll)}}});
    const at::Tensor y = call.at("net", inner)(distinct({8, 4}));
    EXPECT_EQ(placements(y), Placements{tessera::Shard(0)});
    EXPECT_TRUE(close(y, sequential_mlp(4, 8, 4)->forward(distinct({8, 4}))));
  });
}

}  // namespace
}  // namespace tessera
