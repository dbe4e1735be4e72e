// Batch norms of cut inputs: values, running statistics and gradients are those
// of the plain operator, wherever the statistics lie.
#include <harness/sharded_test.h>

#include <functional>
#include <optional>

namespace tessera {
namespace {

using testing::close;
using testing::distinct;
using testing::f32;
using testing::f64;
using testing::mesh_of;

using Tensors = std::vector<at::Tensor>;

at::Tensor cut_of(
    const at::Tensor& t, const DeviceMesh& mesh, const std::string& on) {
  return distribute_tensor(
      t.detach().clone().set_requires_grad(t.requires_grad()), mesh,
      parse_placements(on), {.src_data_rank = std::nullopt});
}

// input, weight, bias, running mean and variance.
struct Data {
  at::Tensor input, weight, bias, mean, variance;
};

Data data_of(const std::vector<int64_t>& shape) {
  const int64_t channels = shape[1];
  return {
      distinct(shape).requires_grad_(true),
      distinct({channels}).add(2).requires_grad_(true),
      distinct({channels}).mul(3).requires_grad_(true),
      distinct({channels}).mul(0.5), distinct({channels}).abs().add(1)};
}

struct Layout5 {
  std::vector<int64_t> mesh;
  const char* input;
  const char* parameters;
  const char* statistics;
};

Data cut_data(const Data& plain, const DeviceMesh& mesh, const Layout5& on) {
  return {
      cut_of(plain.input, mesh, on.input),
      cut_of(plain.weight, mesh, on.parameters),
      cut_of(plain.bias, mesh, on.parameters),
      cut_of(plain.mean, mesh, on.statistics),
      cut_of(plain.variance, mesh, on.statistics)};
}

using Norm = std::function<Tensors(Data&, bool)>;

Tensors native(Data& d, bool training) {
  const auto [y, mean, rstd] = at::native_batch_norm(
      d.input, d.weight, d.bias, d.mean, d.variance, training, 0.3, 1e-5);
  return training ? Tensors{y, mean, rstd} : Tensors{y};
}

Tensors legit(Data& d, bool training) {
  const auto [y, mean, rstd] = at::_native_batch_norm_legit(
      d.input, d.weight, d.bias, d.mean, d.variance, training, 0.3, 1e-5);
  return training ? Tensors{y, mean, rstd} : Tensors{y};
}

Tensors with_update(Data& d, bool) {
  const auto [y, mean, rstd, reserve] = at::_batch_norm_with_update(
      d.input, d.weight, d.bias, d.mean, d.variance, 0.3, 1e-5);
  return {y, mean, rstd, reserve};
}

Tensors with_update_out(Data& d, bool) {
  const at::NoGradGuard no_gradient;
  Tensors outs = {
      at::zeros_like(d.input), at::zeros_like(d.mean),
      at::zeros_like(d.variance), d.mean.new_zeros({0}, at::kByte)};
  at::_batch_norm_with_update_out(
      outs[0], outs[1], outs[2], outs[3], d.input, d.weight, d.bias, d.mean,
      d.variance, 0.3, 1e-5);
  return outs;
}

Tensors with_update_functional(Data& d, bool) {
  const auto [y, mean, rstd, reserve, new_mean, new_variance] =
      at::_batch_norm_with_update_functional(
          d.input, d.weight, d.bias, d.mean, d.variance, 0.3, 1e-5);
  return {y, mean, rstd, reserve, new_mean, new_variance};
}

void expect_gradients(
    const Data& got, const Data& want, const at::Tensor& got_y,
    const at::Tensor& want_y) {
  const auto weights = distinct(want_y.sizes());
  (want_y * weights).sum().backward();
  (got_y * cut_of(
               weights, device_mesh(got_y),
               to_string(Placements(placements(got_y).size(), Replicate()))))
      .sum()
      .backward();
  EXPECT_TRUE(close(got.input.grad(), want.input.grad()));
  EXPECT_TRUE(close(got.weight.grad(), want.weight.grad()));
  EXPECT_TRUE(close(got.bias.grad(), want.bias.grad()));
}

void expect_equal(
    const char* name, const Norm& norm, const std::vector<int64_t>& shape,
    const Layout5& on, bool training, bool backward = true) {
  SCOPED_TRACE(c10::str(
      name, training ? " in training, " : ", ", on.input, ", parameters ",
      on.parameters, ", statistics ", on.statistics));
  Data want = data_of(shape);
  Data got = cut_data(want, mesh_of(on.mesh), on);
  const Tensors plain = norm(want, training);
  const Tensors cut = norm(got, training);
  ASSERT_EQ(plain.size(), cut.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(close(cut[i], plain[i])) << "result " << i;
  }
  EXPECT_EQ(to_string(placements(cut[0])), on.input);
  EXPECT_TRUE(close(got.mean, want.mean)) << "running mean";
  EXPECT_TRUE(close(got.variance, want.variance)) << "running variance";
  EXPECT_EQ(to_string(placements(got.mean)), on.statistics);
  if (backward) {
    expect_gradients(got, want, cut[0], plain[0]);
  }
}

// Channels alone, channels and batch, strided channels; parameters and
// statistics cut with them or not.
const std::vector<Layout5>& layouts() {
  static const std::vector<Layout5> all = {
      {{2}, "S(1)", "R", "R"},
      {{3}, "S(1)", "R", "R"},
      {{4}, "S(1)", "S(0)", "R"},
      {{4}, "S(1)", "R", "S(0)"},
      {{4}, "S(1)", "S(0)", "S(0)"},
      {{2}, "S(0)", "R", "R"},
      {{2, 2}, "S(1) R", "R R", "R R"},
      {{2, 2}, "S(0) S(1)", "R R", "R R"},
      {{2, 2}, "S(0) S(1)", "R S(0)", "R S(0)"},
      {{2, 2}, "S(1) S(1)", "R R", "R R"},
      {{2, 2}, "SS(1,2) S(1)", "R R", "R R"},
      {{2, 2}, "S(1) S(2)", "R R", "S(0) R"},
  };
  return all;
}

// Even, uneven, and fewer channels than ranks.
const std::vector<std::vector<int64_t>>& shapes() {
  static const std::vector<std::vector<int64_t>> all = {
      {3, 8, 4}, {5, 7, 3, 2}, {4, 2, 5}};
  return all;
}

int ranks_of(const Layout5& on) {
  return static_cast<int>(c10::multiply_integers(on.mesh));
}

TEST(BatchNorm, EqualsThePlainOperatorWhereverItsStatisticsLie) {
  for (const Layout5& on : layouts()) {
    for (const auto& shape : shapes()) {
      // A kernel that fails on empty shards runs on whole values where a rule
      // serves it.
      const bool by_rule = on.statistics == std::string("S(0)");
      if (by_rule && shape[1] < 4) {
        continue;
      }
      run_ranks(ranks_of(on), [&] {
        for (const bool training : {true, false}) {
          expect_equal("native", native, shape, on, training);
          expect_equal("legit", legit, shape, on, training);
        }
      });
    }
  }
}

// Also that of a rank without channels, which saves its input for backward.
TEST(BatchNorm, ResultsMayBeWrittenInPlace) {
  const Layout5 on = {{4}, "S(1)", "R", "R"};
  run_ranks(4, [&] {
    for (const bool training : {true, false}) {
      Data want = data_of({4, 2, 5});
      Data got = cut_data(want, mesh_of(on.mesh), on);
      expect_gradients(
          got, want, native(got, training)[0].relu_(),
          native(want, training)[0].relu_());
    }
  });
}

TEST(BatchNorm, OfLowPrecisionSavesWhatItsKernelsSave) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
      Data want{
          distinct({3, 4, 5}).to(at::kBFloat16).requires_grad_(true),
          {},
          {},
          distinct({4}).to(dtype),
          distinct({4}).abs().add(1).to(dtype)};
      Data got{
          cut_of(want.input, mesh, "S(1)"),
          {},
          {},
          cut_of(want.mean, mesh, "R"),
          cut_of(want.variance, mesh, "R")};
      const Tensors plain = native(want, /*training=*/true);
      const Tensors cut = native(got, /*training=*/true);
      for (size_t i = 0; i < plain.size(); ++i) {
        EXPECT_EQ(cut[i].scalar_type(), plain[i].scalar_type()) << i;
        EXPECT_TRUE(close(cut[i], plain[i])) << i;
      }
      const at::Tensor weights = distinct({3, 4, 5}).to(at::kBFloat16);
      (plain[0] * weights).sum().backward();
      (cut[0] * cut_of(weights, mesh, "S(1)")).sum().backward();
      EXPECT_TRUE(close(got.input.grad(), want.input.grad()));
    }
  });
}

TEST(BatchNorm, WithUpdatePassesNoReserveOfCutInputs) {
  for (const Layout5& on : layouts()) {
    for (const auto& shape : shapes()) {
      const bool leaves_empty = shape[1] < 4;
      if (on.statistics == std::string("S(0)") && leaves_empty) {
        continue;
      }
      run_ranks(ranks_of(on), [&] {
        expect_equal("with update", with_update, shape, on, true);
        expect_equal(
            "out", with_update_out, shape, on, true, /*backward=*/false);
        // Its statistics are cut as the channels are, so that a rule serves it.
        if (!leaves_empty) {
          expect_equal(
              "functional", with_update_functional, shape, on, true,
              /*backward=*/false);
        }
      });
    }
  }
}

TEST(BatchNorm, OfCutChannelsSendsItsStatisticsOnceAndNothingInEvaluation) {
  run_ranks(4, [] {
    const auto mesh = mesh_of({4});
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{2, 8, 3}, {2, 64, 32, 32}}) {
      Data d = cut_data(
          data_of(shape), mesh,
          {.mesh = {4}, .input = "S(1)", .parameters = "R", .statistics = "R"});
      CommLog log;
      static_cast<void>(native(d, false));
      static_cast<void>(legit(d, false));
      EXPECT_EQ(log.count(), 0) << to_string(log);
      static_cast<void>(native(d, true));
      EXPECT_EQ(log.count(), 1) << to_string(log);
      // Two values of this rank's channels to each of the others.
      EXPECT_EQ(log.bytes(), 3 * 2 * 8 * shape[1] / 4) << to_string(log);
    }
  });
}

// The statistics of all ranks by one collective, and the sums of the gradient.
TEST(BatchNorm, OverTwoMeshDimsTakesOneCollectiveEachWay) {
  for (const auto& [input, empty] : std::vector<std::pair<const char*, bool>>{
           {"S(2) S(3)", false}, {"S(0) S(2)", false}, {"S(3) S(0)", true}}) {
    const std::vector<int64_t> shape = empty ? std::vector<int64_t>{1, 3, 4, 3}
                                             : std::vector<int64_t>{2, 3, 5, 4};
    run_ranks(5, [&, on = std::string(input)] {  // one is outside
      SCOPED_TRACE(on);
      const auto mesh = mesh_of({2, 2});
      Data plain = data_of(shape);
      Data d = cut_data(
          plain, mesh,
          {.mesh = {2, 2},
           .input = on.c_str(),
           .parameters = "R R",
           .statistics = "R R"});
      // A large mean beside a small variance.
      const at::Tensor far = plain.input.detach() * 1e-3 + 1e6;
      plain.input = far.clone().requires_grad_(true);
      d.input = cut_of(plain.input, mesh, on);
      const Tensors want = native(plain, true);
      CommLog forward;
      const Tensors got = native(d, true);
      const int64_t ranks_in_mesh = rank() < 4 ? 1 : 0;
      EXPECT_EQ(forward.count(), ranks_in_mesh) << to_string(forward);
      // The mean and the variance of 3 channels to each of 3 others.
      EXPECT_EQ(forward.bytes(), ranks_in_mesh * 3 * 2 * 3 * 8);
      if (rank() < 4) {
        EXPECT_TRUE(close(got[2], want[2], 1e-5));
      }
      const at::Tensor loss = got[0].sum();
      CommLog backward;
      loss.backward();
      int64_t by_norm = 0;
      for (const CommLogEntry& entry : backward.entries()) {
        by_norm += entry.cause == "aten::native_batch_norm_backward" ? 1 : 0;
      }
      EXPECT_EQ(by_norm, ranks_in_mesh) << to_string(backward);
    });
  }
}

TEST(BatchNorm, IsExplainedAsItRunsAndKnownOutsideTheMesh) {
  run_ranks(3, [] {
    const DeviceMesh mesh(testing::device(), at::arange(2, at::kLong));
    const Data d = cut_data(
        data_of({3, 4, 5}), mesh,
        {.mesh = {2}, .input = "S(1)", .parameters = "R", .statistics = "R"});
    const std::string told = explain(
        "aten::native_batch_norm", d.input, d.weight, d.bias, d.mean,
        d.variance, true, 0.1, 1e-5);
    EXPECT_NE(told.find("all_gather 0: S(1) -> R"), told.npos) << told;
    EXPECT_NE(told.find("result: f64[3, 4, 5] S(1)"), told.npos) << told;
    EXPECT_NE(told.find("result: f64[4] S(0)"), told.npos) << told;
    Data copy = d;
    const Tensors got = with_update(copy, true);
    EXPECT_EQ(to_string(placements(got[0])), "S(1)");
    EXPECT_EQ(to_string(placements(got[1])), "S(0)");
    EXPECT_EQ(to_string(placements(got[3])), "R");
    const StrictMode strict;
    EXPECT_EQ(to_string(placements(native(copy, false)[0])), "S(1)");
    if (rank() < 2) {
      EXPECT_ERROR(
          "StrictMode forbids implied communication", native(copy, true));
    }
  });
}

TEST(BatchNorm, ModuleTrainsOnCutChannelsWithReplicatedBuffers) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto x = distinct({4, 6, 3});
    const auto cut = cut_of(x, mesh, "S(1)");
    torch::nn::BatchNorm1d plain(torch::nn::BatchNorm1dOptions(6));
    torch::nn::BatchNorm1d module(torch::nn::BatchNorm1dOptions(6));
    plain->to(at::kDouble);
    module->to(at::kDouble);
    distribute_module(module, mesh);
    for (int step = 0; step < 2; ++step) {
      EXPECT_TRUE(close(module->forward(cut), plain->forward(x)));
    }
    EXPECT_TRUE(close(module->running_mean, plain->running_mean));
    EXPECT_TRUE(close(module->running_var, plain->running_var));
    module->eval();
    plain->eval();
    CommLog log;
    const auto y = module->forward(cut);
    EXPECT_EQ(log.count(), 0) << to_string(log);
    EXPECT_TRUE(close(y, plain->forward(x)));
  });
}

// Statistics of each image and group, of ranks that share its rows and columns.
TEST(GroupNorm, OfImagesCutInRowsAndColumnsEqualsThePlainOne) {
  struct Case {
    std::vector<int64_t> mesh, shape;
    const char* on;
    bool affine;
  };
  for (const Case& c : std::vector<Case>{
           {{2, 2}, {2, 6, 5, 4}, "S(2) S(3)", true},
           {{3, 2}, {3, 4, 7, 2}, "S(3) S(2)", true},
           {{2, 2}, {3, 4, 5, 3}, "S(0) S(2)", true},
           {{4}, {2, 4, 9}, "S(2)", false},
           {{2, 2}, {1, 2, 3, 3}, "S(2) S(2)", true}}) {
    const auto ranks = static_cast<int>(c10::multiply_integers(c.mesh));
    run_ranks(ranks, [&] {
      SCOPED_TRACE(c.on);
      const auto mesh = mesh_of(c.mesh);
      const std::string whole = c.mesh.size() == 1 ? "R" : "R R";
      const at::Tensor x = distinct(c.shape).requires_grad_(true);
      at::Tensor w, b, cut_w, cut_b;
      if (c.affine) {
        w = distinct({c.shape[1]}).add(2).requires_grad_(true);
        b = distinct({c.shape[1]}).mul(3).requires_grad_(true);
        cut_w = cut_of(w, mesh, whole);
        cut_b = cut_of(b, mesh, whole);
      }
      const at::Tensor cut_x = cut_of(x, mesh, c.on);
      const StrictMode strict({.communication = false, .gathers = true});
      const at::Tensor want = at::group_norm(x, 2, w, b, 1e-5, false);
      const at::Tensor got =
          at::group_norm(cut_x, 2, cut_w, cut_b, 1e-5, false);
      EXPECT_TRUE(close(got, want));
      EXPECT_EQ(to_string(placements(got)), c.on);
      const at::Tensor weights = distinct(c.shape);
      (want * weights).sum().backward();
      (got * cut_of(weights, mesh, c.on)).sum().backward();
      EXPECT_TRUE(close(cut_x.grad(), x.grad()));
      if (c.affine) {
        EXPECT_TRUE(close(cut_w.grad(), w.grad()));
        EXPECT_TRUE(close(cut_b.grad(), b.grad()));
      }
    });
  }
}

}  // namespace
}  // namespace tessera
