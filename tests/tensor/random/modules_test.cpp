// Random numbers as programs meet them: dropout in modules, its backward,
// initialisation, attention, recurrent nets.
#include <tensor/random/random_ops.h>

namespace tessera {
namespace {

namespace nn = torch::nn;
using testing::device;
using testing::f32;
using testing::f64;
using testing::fractions;
using testing::mesh_of;
using testing::plain;
using testing::same;

const std::vector<std::pair<int, const char*>> kRuns = {
    {1, "R"}, {2, "S(0)"}, {2, "S(1)"}, {4, "S(0)"}, {4, "R"}, {3, "SS(0,2)"}};

// Runs `body(mesh, placements)` on 1, 2, 3 and 4 ranks; all results must be
// equal. Returns the result.
at::Tensor equal_on_all(
    const std::function<at::Tensor(const DeviceMesh&, const Placements&)>&
        body) {
  at::Tensor first;
  for (const auto& [ranks, placements] : kRuns) {
    at::Tensor of_rank_0;
    run_ranks(ranks, [&, ranks = ranks, placements = placements] {
      manual_seed(12);
      const at::Tensor value =
          plain(body(mesh_of({int64_t{ranks}}), parse_placements(placements)));
      if (rank() == 0) {
        of_rank_0 = value.cpu();
      }
    });
    first = first.defined() ? first : of_rank_0;
    EXPECT_TRUE(at::equal(of_rank_0, first))
        << ranks << " ranks, " << placements << ":\n"
        << of_rank_0 << "\n"
        << first;
  }
  return first;
}

TEST(RandomModules, DropoutIsEqualOnAnyNumberOfRanks) {
  const auto kept = equal_on_all([](const auto& mesh, const auto& placements) {
    nn::Dropout dropout(0.3);
    const auto x = distribute_tensor(fractions({8, 6}), mesh, placements);
    return dropout(dropout(x));
  });
  EXPECT_GT(kept.count_nonzero().item<int64_t>(), 5);
  EXPECT_LT(kept.count_nonzero().item<int64_t>(), 40);
}

TEST(RandomModules, OtherDropoutsAreEqualToo) {
  equal_on_all([](const auto& mesh, const auto& placements) {
    const auto x = distribute_tensor(fractions({4, 6, 3}), mesh, placements);
    const auto image =
        distribute_tensor(fractions({4, 6, 3, 3}), mesh, placements);
    return at::cat(
        {nn::Dropout2d(0.5)(image).flatten(),
         nn::AlphaDropout(0.5)(x).flatten(),
         nn::FeatureAlphaDropout(0.5)(x).flatten(),
         nn::RReLU()(x - 0.5).flatten()});
  });
}

TEST(RandomModules, DropoutKeepsValuesInInference) {
  const auto mesh = mesh_of({1});
  const auto x = distribute_tensor(fractions({8}), mesh, {Shard(0)});
  nn::Dropout dropout(0.3);
  dropout->eval();
  EXPECT_TRUE(same(dropout(x), x));
}

TEST(RandomModules, BackwardUsesTheMaskOfForward) {
  equal_on_all([](const auto& mesh, const auto& placements) {
    auto x = distribute_tensor(
        fractions({8, 6}, f64()).requires_grad_(), mesh, placements);
    const auto y = at::dropout(x, 0.5, true);
    const auto [z, mask] = at::native_dropout(x, 0.25, true);
    (y.sum() + z.sum()).backward();
    const auto expected =
        plain(y) / plain(x) + plain(mask).to(at::kDouble) / 0.75;
    EXPECT_TRUE(testing::close(x.grad(), expected));
    return x.grad();
  });
}

TEST(RandomModules, DropoutOfAddendsCommunicatesNothingAndIsExact) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto x = distribute_tensor(fractions({8, 4}), mesh, {Partial()});
    manual_seed(1);
    const auto [y, mask] = at::native_dropout(x, 0.5, true);
    EXPECT_EQ(placements(y), Placements{Partial()});
    EXPECT_EQ(placements(mask), Placements{Replicate()});
    manual_seed(1);
    const auto whole = distribute_tensor(fractions({8, 4}), mesh, {Shard(0)});
    EXPECT_TRUE(same(y, std::get<0>(at::native_dropout(whole, 0.5, true))));
  });
}

TEST(RandomModules, StayInTheirPlacementsAndCommunicateNothing) {
  run_ranks(4, [] {
    const auto mesh = mesh_of({2, 2});
    for (const char* text :
         {"S(0) S(1)", "S(0) R", "SS(0,2) S(1)", "S(1)[1] S(1)[0]"}) {
      const auto on = parse_placements(text);
      const auto x = distribute_tensor(fractions({8, 6}), mesh, on);
      const CommLog log;
      for (const auto& op : testing::all_random_ops()) {
        if (op.name.find("multinomial") != std::string::npos ||
            op.name == "_sample_dirichlet" || op.name == "randperm.out") {
          continue;
        }
        const int64_t before = log.count();
        const at::Tensor y = op.draw(x);
        EXPECT_EQ(placements(y), placements(x)) << op.name << " in " << text;
        // A view of a shard is taken of a gathered copy, and features of ATen's
        // noise are broadcast.
        const bool gathers =
            op.name == "a view" || op.name.find("feature") != std::string::npos;
        EXPECT_TRUE(gathers || log.count() == before) << op.name;
      }
    }
  });
}

TEST(RandomModules, InitFunctionsAreEqualOnAnyNumberOfRanks) {
  namespace init_ = nn::init;
  const std::vector<std::function<void(at::Tensor)>> functions = {
      [](at::Tensor t) { init_::uniform_(std::move(t), -1, 2); },
      [](at::Tensor t) { init_::normal_(std::move(t), 1, 2); },
      [](at::Tensor t) { init_::xavier_uniform_(std::move(t)); },
      [](at::Tensor t) { init_::xavier_normal_(std::move(t)); },
      [](at::Tensor t) { init_::kaiming_uniform_(std::move(t)); },
      [](at::Tensor t) { init_::kaiming_normal_(std::move(t)); },
      [](at::Tensor t) {
        const ReplicatedRandom equal;
        init_::orthogonal_(std::move(t));
      },
      [](at::Tensor t) {
        const ReplicatedRandom equal;
        init_::sparse_(std::move(t), 0.4);
      }};
  for (size_t i = 0; i < functions.size(); ++i) {
    SCOPED_TRACE(i);
    const auto w = equal_on_all([&](const auto& mesh, const auto& placements) {
      const auto t = zeros({8, 6}, mesh, placements, f32());
      functions[i](t);
      EXPECT_EQ(
          tessera::placements(t),
          spec(zeros({8, 6}, mesh, placements)).placements());
      return t;
    });
    EXPECT_GT(w.std().item<double>(), 0.005);
    if (i == 6) {
      EXPECT_TRUE(at::allclose(w.t().mm(w), at::eye(6), 1e-5, 1e-5));
    }
  }
}

TEST(RandomModules, PlainModulesAreMadeEqualOnAllRanks) {
  const auto make = [] {
    manual_seed(6);
    const ReplicatedRandom equal;
    nn::Linear linear(5, 3);
    nn::Embedding embedding(4, 3);
    const auto order = torch::randperm(9).to(at::kFloat);
    const auto drop = torch::nn::functional::dropout(torch::ones({20}));
    return at::cat(
        {linear->weight.detach().flatten(), linear->bias.detach(),
         embedding->weight.detach().flatten(), order, drop, torch::randn({3}),
         torch::randint(0, 100, {4}).to(at::kFloat)});
  };
  const auto alone = make();
  EXPECT_TRUE(same(make(), alone));
  run_ranks(3, [&] { EXPECT_TRUE(same(make(), alone)); });
}

TEST(RandomModules, PlainTensorsAreLeftAloneOtherwise) {
  torch::manual_seed(1);
  const auto before = torch::rand({5});
  torch::manual_seed(1);
  {
    const ReplicatedRandom equal;
    EXPECT_FALSE(at::equal(torch::rand({5}), before));
  }
  EXPECT_TRUE(at::equal(torch::rand({5}), before));
  const auto state = random_state();
  torch::rand({5});
  EXPECT_EQ(random_state(), state);
}

TEST(RandomModules, GradientsOfPlainTensorsSurvive) {
  const ReplicatedRandom equal;
  auto x = torch::ones({50}, at::TensorOptions(at::kFloat).requires_grad(true));
  const auto y = torch::dropout(x, 0.5, true);
  const auto [z, mask] = at::native_dropout(x, 0.5, true);
  (y.sum() + z.sum()).backward();
  EXPECT_TRUE(at::equal(x.grad(), (y + 2 * mask).detach()));
}

TEST(RandomModules, AttentionDropoutIsEqualOnAnyNumberOfRanks) {
  const auto attend = [](double dropout) {
    return [=](const DeviceMesh& mesh, const Placements& placements) {
      const auto x =
          distribute_tensor(fractions({4, 2, 6, 8}), mesh, placements);
      return at::scaled_dot_product_attention(x, x, x, {}, dropout);
    };
  };
  const auto with = equal_on_all(attend(0.5));
  const auto without = equal_on_all(attend(0));
  EXPECT_FALSE(at::allclose(with, without));
}

TEST(RandomModules, RecurrentDropoutIsEqualOnAnyNumberOfRanks) {
  for (const double dropout : {0.0, 0.5}) {
    if (dropout > 0 && testing::device() != at::kCPU) {
      continue;  // cuDNN draws by itself, and is refused
    }
    equal_on_all([&](const DeviceMesh& mesh, const Placements& placements) {
      nn::LSTM lstm(nn::LSTMOptions(6, 5).num_layers(2).dropout(dropout));
      for (auto& p : lstm->parameters()) {
        const torch::NoGradGuard no_grad;
        p.copy_(fractions(p.sizes()));
      }
      lstm->to(testing::device());
      distribute_module(lstm, mesh);
      const auto x = distribute_tensor(fractions({4, 3, 6}), mesh, placements);
      const ImplicitReplication first_states;  // which the module makes
      return std::get<0>(lstm(x)).detach();
    });
  }
}

}  // namespace
}  // namespace tessera
