// Seeds, saved states, streams, generators, and what ranks compare.
#include <ATen/CPUGeneratorImpl.h>
#include <harness/sharded_test.h>

namespace tessera {
namespace {

using testing::device;
using testing::f32;
using testing::mesh_of;
using testing::plain;
using testing::same;

at::Tensor draw(const DeviceMesh& mesh) {
  return plain(rand({12}, mesh, {Shard(0)}, f32()));
}

TEST(ManualSeed, StartsTheSameNumbersAgain) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    manual_seed(5);
    const auto a = draw(mesh);
    const auto b = draw(mesh);
    EXPECT_FALSE(at::equal(a, b));
    manual_seed(5);
    EXPECT_TRUE(same(draw(mesh), a));
    EXPECT_TRUE(same(draw(mesh), b));
    manual_seed(6);
    EXPECT_FALSE(at::equal(draw(mesh), a));
  });
}

TEST(ManualSeed, KeepsNeighbouringSeedsApart) {
  // Neither plain operations nor composite ones may meet again one seed later.
  const auto mesh = mesh_of({1});
  std::vector<at::Tensor> drawn;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    manual_seed(seed);
    for (int i = 0; i < 4; ++i) {
      drawn.push_back(draw(mesh));
      drawn.push_back(plain(at::dropout(
          ones({64}, mesh, {Shard(0)}, f32()), 0.5, /*train=*/true)));
    }
  }
  for (size_t i = 0; i < drawn.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(at::equal(drawn[i], drawn[j])) << i << " and " << j;
    }
  }
}

TEST(ManualSeed, MakesTwoRunsEqual) {
  std::vector<at::Tensor> runs;
  for (int run = 0; run < 2; ++run) {
    run_ranks(3, [&] {
      const auto mesh = mesh_of({3});
      const auto value = at::cat({draw(mesh), draw(mesh)});
      if (rank() == 0) {
        runs.push_back(value);
      }
    });
  }
  EXPECT_TRUE(at::equal(runs[0], runs[1]));
}

TEST(RandomState, ContinuesWhereItWasSaved) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    manual_seed(8);
    draw(mesh);
    {
      RandomStream stream("data");
      draw(mesh);
    }
    const RandomState saved = random_state();
    EXPECT_EQ(saved.seed, 8u);
    EXPECT_EQ(saved.operations, 1u);
    EXPECT_EQ(saved.streams, (std::map<std::string, uint64_t>{{"data", 1}}));
    const auto more = [&] {
      const auto next = draw(mesh);
      RandomStream stream("data");
      return at::cat({next, draw(mesh)});
    };
    const auto expected = more();
    manual_seed(1);
    draw(mesh);
    set_random_state(saved);
    EXPECT_EQ(random_state(), saved);
    EXPECT_TRUE(same(more(), expected));
  });
}

TEST(RandomStream, HasNumbersOfItsOwn) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    manual_seed(2);
    const auto first = draw(mesh);
    const auto second = draw(mesh);
    manual_seed(2);
    at::Tensor of_a;
    at::Tensor of_b;
    {
      RandomStream a("a");
      of_a = draw(mesh);
      RandomStream b("b");
      of_b = draw(mesh);
    }
    EXPECT_FALSE(at::equal(of_a, of_b));
    EXPECT_FALSE(at::equal(of_a, first));
    EXPECT_TRUE(same(draw(mesh), first));
    {
      RandomStream again("a");  // goes on
      EXPECT_FALSE(at::equal(draw(mesh), of_a));
    }
    EXPECT_TRUE(same(draw(mesh), second));
    EXPECT_ERROR("must not be empty", RandomStream(""));
  });
}

TEST(RandomStream, DoesNotCountAmongWhatRanksCompare) {
  run_ranks(2, [] {
    const auto alone = DeviceMesh(device(), at::tensor({rank()}, at::kLong));
    if (rank() == 1) {
      RandomStream stream("only here");
      draw(alone);
      at::dropout(ones({4}, alone, {Shard(0)}, f32()), 0.5, true);
    }
    init().communicator().barrier();
    EXPECT_EQ(random_state().operations, 0u);
  });
}

TEST(RandomStamp, FindsARankThatDrewMore) {
  std::string text;
  try {
    run_ranks(2, [] {
      const auto alone = DeviceMesh(device(), at::tensor({rank()}, at::kLong));
      for (int64_t i = 0; i < 3 * rank(); ++i) {
        draw(alone);
      }
      init().communicator().barrier();
    });
  } catch (const std::exception& e) {
    text = e.what();
  }
  for (const char* part :
       {"number of random operations", "0 and 3", "RandomStream", "barrier"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
}

TEST(RandomStamp, FindsARankWithAnotherSeed) {
  std::string text;
  try {
    run_ranks(2, [] {
      manual_seed(static_cast<uint64_t>(10 + rank()));
      init().communicator().barrier();
    });
  } catch (const std::exception& e) {
    text = e.what();
  }
  for (const char* part : {"random seed", "10 and 11", "manual_seed"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
}

TEST(RandomStamp, LetsMessagesPassBetweenDraws) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto comm = init().communicator();
    const at::Tensor t = at::ones({1});
    if (rank() == 0) {
      comm.send(t, 1);
    }
    rand({4}, mesh, {Shard(0)}, f32());
    if (rank() == 1) {
      comm.recv(t, 0);
    }
  });
}

TEST(RandomStamp, GoesIntoSplitGroups) {
  std::string text;
  try {
    run_ranks(2, [] {
      const auto group = init().communicator().split(0);
      if (rank() == 0) {
        draw(DeviceMesh(device(), at::tensor({int64_t{0}}, at::kLong)));
      }
      group.barrier();
    });
  } catch (const std::exception& e) {
    text = e.what();
  }
  EXPECT_NE(text.find("1 and 0"), std::string::npos) << text;
}

TEST(RanksOutsideTheMesh, CountWhatOthersDraw) {
  const auto work = [](const DeviceMesh& mesh) {
    manual_seed(4);
    const auto x = rand({6, 4}, mesh, {Shard(0)}, f32());
    at::dropout(x, 0.5, true);
    at::feature_dropout(x, 0.5, true);
    at::alpha_dropout(x, 0.5, true);
    at::rrelu(x, 0.1, 0.3, true);
    at::bernoulli(x);
    at::normal(x, 1.0);
    at::poisson(x);
    at::_standard_gamma(x);
    at::multinomial(x, 2);
    x.clone().random_(7);
    randperm(9, mesh, {Shard(0)});
  };
  work(mesh_of({1}));
  const uint64_t alone = random_state().operations;
  at::Tensor wanted = draw(mesh_of({1}));
  run_ranks(3, [&] {
    work(mesh_of({2}));
    EXPECT_EQ(random_state().operations, alone) << "rank " << rank();
    EXPECT_TRUE(same(draw(mesh_of({3})), wanted));
  });
}

TEST(Generators, GiveSeedAndCounter) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto with = [&](std::optional<at::Generator> generator) {
      auto t = zeros({20}, mesh, {Shard(0)}, f32());
      return plain(t.normal_(0, 1, std::move(generator)));
    };
    auto one = at::detail::createCPUGenerator(7);
    const auto a = with(one);
    const auto b = with(one);
    EXPECT_FALSE(at::equal(a, b));
    auto other = at::detail::createCPUGenerator(7);
    EXPECT_TRUE(same(with(other), a));
    EXPECT_TRUE(same(with(other), b));
    one.set_current_seed(7);  // the seed that it has: the count goes on
    const auto third = with(one);
    EXPECT_FALSE(at::equal(third, a));
    EXPECT_TRUE(same(with(other), third));
    EXPECT_TRUE(at::equal(  // it does not advance
        at::rand({4}, one, at::kDouble),
        at::rand({4}, at::detail::createCPUGenerator(7), at::kDouble)));
    one.set_current_seed(9);
    const auto c = with(one);
    EXPECT_FALSE(at::equal(c, a));
    one.set_current_seed(7);
    EXPECT_TRUE(same(with(one), a));
    EXPECT_EQ(random_state().operations, 0u);  // the rank's own did not move
    EXPECT_FALSE(at::equal(with(std::nullopt), a));
  });
}

TEST(Generators, MayBeSharedByRanks) {
  const auto shared = at::detail::createCPUGenerator(7);
  const auto draw_twice = [&](const DeviceMesh& mesh) {
    auto t = zeros({20}, mesh, {Shard(0)}, f32());
    auto u = zeros({20}, mesh, {Shard(0)}, f32());
    t.uniform_(0, 1, shared);
    u.uniform_(0, 1, shared);
    return at::cat({plain(t), plain(u)});
  };
  const auto alone = draw_twice(mesh_of({1}));
  run_ranks(3, [&] { EXPECT_TRUE(same(draw_twice(mesh_of({3})), alone)); });
}

TEST(RandomState, IsLeftAloneByExplain) {
  run_ranks(2, [] {
    const auto x = rand({6, 4}, mesh_of({2}), {Shard(0)}, f32());
    const RandomState before = random_state();
    for (const std::string& told :
         {explain("aten::dropout", x, 0.5, true),
          explain("aten::feature_dropout", x, 0.5, true),
          explain("aten::bernoulli", x), explain("aten::multinomial", x, 2)}) {
      EXPECT_NE(told.find("a kernel of its own"), std::string::npos) << told;
    }
    EXPECT_EQ(random_state(), before);
    const CommLog log;
    at::multinomial(x, 2);
    EXPECT_EQ(log.count(), 1);
    EXPECT_NE(
        explain("aten::multinomial", x.t(), 2).find("S(1) -> R"),
        std::string::npos);
  });
}

TEST(RandomErrors, NameTheCallAndTheRule) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    auto t = zeros({4}, mesh, {Shard(0)}, f32());
    EXPECT_ERROR("p must be from 0 to 1; got 7", t.bernoulli_(7));
    EXPECT_ERROR("on mesh(2), rank", t.bernoulli_(7));
    EXPECT_ERROR("must not be negative; got -1", t.normal_(0, -1));
    EXPECT_ERROR("go upwards", t.uniform_(2, 1));
    EXPECT_ERROR("must not be empty; got [5, 5)", t.random_(5, 5));
    EXPECT_ERROR("rate must be positive", t.exponential_(0));
    EXPECT_ERROR("p must be between 0 and 1", t.geometric_(1));
    EXPECT_ERROR("sigma must be positive", t.cauchy_(0, 0));
    EXPECT_ERROR("not be negative", t.log_normal_(0, 0));
    auto i = zeros({4}, mesh, {Shard(0)}, at::kChar);
    EXPECT_ERROR("must be floating point; got i8", i.normal_());
    EXPECT_ERROR("must fit the dtype i8", i.random_(0, 1000));
    EXPECT_ERROR("at most 4 samples; got 7", at::multinomial(t + 1, 7, false));
    EXPECT_ERROR("positive sum", at::multinomial(t, 1));
    EXPECT_ERROR("finite and not negative", at::multinomial(t - 1, 1));
    EXPECT_ERROR("num_samples must be positive", at::multinomial(t + 1, 0));
    EXPECT_ERROR("1 or 2 dims", at::multinomial(t.view({2, 2, 1}), 1));
    EXPECT_ERROR("range must go upwards", at::rrelu_with_noise(t, t, 0.5, 0.1));
    EXPECT_ERROR(
        "must be floating point", rand({4}, mesh, {Shard(0)}, at::kInt));
    EXPECT_ERROR("must not be empty", randint(3, 3, {4}, mesh, {Shard(0)}));
    EXPECT_ERROR("n must not be negative", randperm(-1, mesh, {Shard(0)}));
    EXPECT_ERROR(
        "has none; draw in f32",
        empty({4}, mesh, {Shard(0)}, at::kFloat8_e5m2).uniform_());
    EXPECT_TRUE(same(t, at::zeros({4}, f32())));
  });
}

}  // namespace
}  // namespace tessera
