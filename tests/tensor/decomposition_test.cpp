// Operators along cut dims equal the plain ones, keep their shards and send
// only what is small: values, gradients, placements, bytes.
#include <harness/sharded_test.h>

#include <functional>

namespace tessera {
namespace {

using testing::close;
using testing::counting;
using testing::device;
using testing::distinct;
using testing::error_of;
using testing::f32;
using testing::f64;
using testing::i64;
using testing::mesh_of;
using testing::same;

using Tensors = std::vector<at::Tensor>;
using Op = std::function<Tensors(const Tensors&)>;

// A mesh, and placements that cut dim `d` of a tensor.
struct Cut {
  const char* name;
  std::vector<int64_t> mesh;
  std::function<Placements(int64_t)> of;
};

const std::vector<Cut>& cuts() {
  static const std::vector<Cut> all = {
      {"2", {2}, [](int64_t d) { return Placements{Shard(d)}; }},
      {"3", {3}, [](int64_t d) { return Placements{Shard(d)}; }},
      {"4", {4}, [](int64_t d) { return Placements{Shard(d)}; }},
      {"2x2, twice",
       {2, 2},
       [](int64_t d) {
         return Placements{Shard(d), Shard(d)};
       }},
      {"2x2, in the other order",
       {2, 2},
       [](int64_t d) {
         return Placements{Shard(d).with_order(1), Shard(d).with_order(0)};
       }},
      {"2x2, once",
       {2, 2},
       [](int64_t d) {
         return Placements{Replicate(), Shard(d)};
       }},
      {"2x2, another dim too",
       {2, 2},
       [](int64_t d) {
         return Placements{Shard(d == 0 ? 1 : 0), Shard(d)};
       }},
      {"2x2, strided",
       {2, 2},
       [](int64_t d) {
         return Placements{StridedShard(d, 2), Shard(d)};
       }},
  };
  return all;
}

int ranks_of(const std::vector<int64_t>& mesh) {
  return static_cast<int>(c10::multiply_integers(mesh));
}

at::Tensor leaf(const at::Tensor& t) {
  return t.detach().clone().set_requires_grad(t.is_floating_point());
}

// The sum of all results, each element with a weight of its own.
at::Tensor weighed(const Tensors& results) {
  at::Tensor sum;
  for (const at::Tensor& t : results) {
    if (!t.is_floating_point() || !t.requires_grad()) {
      continue;
    }
    at::Tensor weights = distinct(t.sizes(), t.options().device(device()));
    if (is_dtensor(t)) {
      weights = distribute_tensor(
          weights, device_mesh(t),
          Placements(placements(t).size(), Replicate()),
          {.src_data_rank = std::nullopt});
    }
    const at::Tensor part = (t * weights).sum();
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

// Runs `op` plain and with operand i cut along dims[i] (-1: replicated), on
// every mesh, forward and backward.
void expect_equal(
    const char* name, const Tensors& inputs, const std::vector<int64_t>& dims,
    const Op& op, double tolerance = 1e-10, bool backward = true) {
  for (const Cut& cut : cuts()) {
    run_ranks(ranks_of(cut.mesh), [&] {
      const auto mesh = mesh_of(cut.mesh);
      SCOPED_TRACE(std::string(name) + " on " + cut.name);
      Tensors plain_inputs, cut_inputs;
      for (size_t i = 0; i < inputs.size(); ++i) {
        plain_inputs.push_back(leaf(inputs[i]));
        Placements p(cut.mesh.size(), Replicate());
        if (dims[i] >= 0) {
          p = cut.of(dims[i]);
          for (Placement& one : p) {
            if (one.is_shard() && one.dim() >= inputs[i].dim()) {
              one = Replicate();
            }
          }
        }
        cut_inputs.push_back(distribute_tensor(leaf(inputs[i]), mesh, p));
      }
      const Tensors want = op(plain_inputs);
      const Tensors got = op(cut_inputs);
      ASSERT_EQ(want.size(), got.size());
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_TRUE(close(got[i], want[i], tolerance)) << "result " << i;
      }
      const at::Tensor loss = weighed(want);
      if (!backward || !loss.defined()) {
        return;
      }
      loss.backward();
      weighed(got).backward();
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (plain_inputs[i].grad().defined()) {
          ASSERT_TRUE(cut_inputs[i].grad().defined());
          EXPECT_TRUE(
              close(cut_inputs[i].grad(), plain_inputs[i].grad(), tolerance))
              << "gradient " << i;
        }
      }
    });
  }
}

// Shapes whose dim 1 is even, uneven, and leaves shards empty.
const std::vector<std::vector<int64_t>>& shapes() {
  static const std::vector<std::vector<int64_t>> all = {
      {3, 8}, {5, 7}, {4, 2}, {2, 5, 3}, {3, 1}};
  return all;
}

// One result of one tensor, along dim 1.
void expect_equal_along(
    const char* name, const std::function<Tensors(const at::Tensor&)>& op,
    bool backward = true) {
  for (const auto& shape : shapes()) {
    expect_equal(
        name, {distinct(shape)}, {1},
        [&](const Tensors& x) { return op(x[0]); }, 1e-10, backward);
  }
}

// What `body` sends on this rank.
template <class F>
int64_t bytes_of(F body) {
  CommLog log;
  static_cast<void>(body());
  return log.bytes();
}

at::Tensor cut_of(
    const at::Tensor& t, const DeviceMesh& mesh, const Placements& p) {
  return distribute_tensor(t, mesh, p, {.src_data_rank = std::nullopt});
}

const double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(SoftmaxDecomposition, EqualsThePlainOperatorForwardAndBackward) {
  expect_equal_along(
      "softmax", [](const at::Tensor& x) { return Tensors{x.softmax(1)}; });
  expect_equal_along("softmax of a negative dim", [](const at::Tensor& x) {
    return Tensors{x.softmax(1 - x.dim())};
  });
  expect_equal_along("log_softmax", [](const at::Tensor& x) {
    return Tensors{x.log_softmax(1)};
  });
  expect_equal_along("safe_softmax", [](const at::Tensor& x) {
    return Tensors{at::_safe_softmax(x, 1)};
  });
  expect_equal_along("logsumexp", [](const at::Tensor& x) {
    return Tensors{x.logsumexp(1), x.logsumexp(1, true)};
  });
  expect_equal_along("logsumexp of all", [](const at::Tensor& x) {
    return Tensors{x.logsumexp(at::IntArrayRef({0, 1}))};
  });
}

TEST(SoftmaxDecomposition, TreatsInfinityAndNaNAsAtenDoes) {
  const auto data = at::tensor(
      {-kInf, -kInf, -kInf, -kInf, kInf, 1., 2., 3., kNan, 1., 2., 3., -kInf,
       1., 2., kInf},
      f64());
  for (const char* name : {"softmax", "log_softmax", "safe", "logsumexp"}) {
    const std::string which = name;
    expect_equal(
        name, {data.view({4, 4})}, {1},
        [&](const Tensors& x) -> Tensors {
          return {
              which == "softmax"       ? x[0].softmax(1)
              : which == "log_softmax" ? x[0].log_softmax(1)
              : which == "safe"        ? at::_safe_softmax(x[0], 1)
                                       : x[0].logsumexp(1)};
        },
        1e-10, /*backward=*/false);
  }
}

TEST(SoftmaxDecomposition, KeepsTheCutAndSendsOneNumberPerRowTwice) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const auto x = cut_of(distinct({8, 4000}, f32()), mesh, {Shard(1)});
    at::Tensor y;
    // all_reduce of 8 f32: 2 * (32 - 32 / 4) = 48 bytes, for largest and sum
    EXPECT_EQ(bytes_of([&] { return y = x.softmax(1); }), 96);
    EXPECT_EQ(placements(y), Placements{Shard(1)});
    EXPECT_EQ(bytes_of([&] { return x.log_softmax(1); }), 96);
    EXPECT_EQ(bytes_of([&] { return y = x.logsumexp(1); }), 96);
    EXPECT_EQ(placements(y), Placements{Replicate()});
    EXPECT_EQ(
        bytes_of(
            [&] { return at::_softmax_backward_data(x, x, 1, at::kFloat); }),
        48);
  });
}

TEST(SoftmaxDecomposition, SumsInFloatAndAcceptsDtypesAndAddends) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto whole = distinct({3, 9}, f32().dtype(at::kBFloat16));
    const auto x = cut_of(whole, mesh, {Shard(1)});
    EXPECT_TRUE(close(x.softmax(1), whole.softmax(1), 1e-2));
    EXPECT_TRUE(
        close(x.softmax(1, at::kFloat), whole.softmax(1, at::kFloat), 1e-5));
    const auto many = cut_of(
        at::ones({1, 4096}, f32().dtype(at::kBFloat16)), mesh, {Shard(1)});
    EXPECT_EQ(many.softmax(1).sum().item<double>(), 1.0);
    const auto grid = mesh_of({1, 2});
    const auto sum = from_local(
        distinct({3, 5}), grid, {Partial(), Shard(1)},
        {.shape = std::vector<int64_t>{3, 10}});
    EXPECT_TRUE(close(sum.softmax(1), full_tensor(sum).softmax(1)));
  });
}

TEST(VarianceDecomposition, EqualsThePlainOperatorForwardAndBackward) {
  expect_equal_along("var", [](const at::Tensor& x) {
    return Tensors{x.var(1), x.std(1, true, true)};
  });
  for (const auto& shape : shapes()) {
    if (shape[1] < 2) {
      continue;
    }
    expect_equal("var of all", {distinct(shape)}, {1}, [](const Tensors& x) {
      const auto [var, mean] = at::var_mean(x[0], at::OptionalIntArrayRef(), 0);
      const auto [std, mean2] =
          at::std_mean(x[0], at::IntArrayRef({0, 1}), 0.5, true);
      return Tensors{x[0].var(), x[0].std(), var, mean, std, mean2};
    });
  }
}

TEST(VarianceDecomposition, LosesNoDigitsAndSendsTwoNumbersPerRow) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const auto whole = counting({4, 1000}, f32()).add(1e5);
    const auto x = cut_of(whole, mesh, {Shard(1)});
    EXPECT_TRUE(close(x.var(1), whole.var(1), 1e-5));
    EXPECT_EQ(bytes_of([&] { return x.var(1); }), 48);
    EXPECT_EQ(placements(x.var(1)), Placements{Replicate()});
  });
}

TEST(NormDecomposition, EqualsThePlainOperatorForwardAndBackward) {
  for (const double p : {2., 3., 0.5, -1., 1., 0., kInf, -kInf}) {
    const bool smooth = p != 0 && p != -1;
    expect_equal_along(
        "vector norm",
        [&](const at::Tensor& x) {
          return Tensors{
              at::linalg_vector_norm(x, p, 1),
              at::linalg_vector_norm(x, p, 1, true),
              at::linalg_vector_norm(x, p)};
        },
        smooth);
  }
  expect_equal_along("norm", [](const at::Tensor& x) {
    return Tensors{
        x.norm(),
        x.norm(2),
        x.norm(3, {1}, true),
        x.norm(2, {1}, false),
        x.norm(2, at::kDouble),
        x.norm(3, {1}, true, at::kDouble)};
  });
}

TEST(NormDecomposition, TakesAWholeListInOneReductionPerGroup) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    Tensors whole, cut;
    const std::vector<Placements> layouts = {
        {Shard(0), Shard(0)},
        {Shard(1), Shard(0)},
        {Replicate(), Shard(0)},
        {Replicate(), Replicate()},
        {Replicate(), Shard(1)}};
    for (int64_t i = 0; i < 10; ++i) {
      whole.push_back(distinct({i + 1, 3}, f32()));
      cut.push_back(cut_of(
          whole.back(), mesh,
          layouts[static_cast<size_t>(i) % layouts.size()]));
    }
    for (const double p : {2., 1., 3., kInf}) {
      CommLog log;
      const auto got = at::_foreach_norm(cut, p);
      // by mesh dim 1: one all_reduce; by both: the steps of one plan, and no
      // more than for a single tensor
      EXPECT_EQ(log.count(), 4) << log;
      const auto want = at::_foreach_norm(whole, p);
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_TRUE(close(got[i], want[i], 1e-5)) << i;
        EXPECT_EQ(placements(got[i]), Placements(2, Replicate()));
      }
    }
    // 4 f32 over 4 ranks: 24; 4 f32 over 2 ranks: 16
    EXPECT_EQ(bytes_of([&] { return at::_foreach_norm(cut, 2); }), 40);
  });
}

TEST(NormDecomposition, ListsMixDtypesEmptyShardsAndAddends) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    const auto half = distinct({4, 2}, f32().dtype(at::kBFloat16));
    const auto tiny = distinct({1}, f32());
    const auto part = from_local(distinct({2}, f64()), mesh, {Partial()});
    const Tensors whole = {half, tiny, full_tensor(part)};
    const Tensors cut = {
        cut_of(half, mesh, {Shard(0)}), cut_of(tiny, mesh, {Shard(0)}), part};
    for (const double p : {2., kInf}) {
      const auto got = at::_foreach_norm(cut, p);
      const auto want = at::_foreach_norm(whole, p);
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_TRUE(close(got[i], want[i], 1e-2)) << i;
      }
    }
  });
}

TEST(NormDecomposition, ClipsGradientsAsThePlainProgramDoes) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto plain = leaf(distinct({5, 3}));
    auto cut = distribute_tensor(leaf(distinct({5, 3})), mesh, {Shard(0)});
    (plain * plain).sum().backward();
    (cut * cut).sum().backward();
    const double want = torch::nn::utils::clip_grad_norm_({plain}, 0.5);
    EXPECT_NEAR(torch::nn::utils::clip_grad_norm_({cut}, 0.5), want, 1e-10);
    EXPECT_TRUE(close(cut.grad(), plain.grad()));
  });
}

TEST(ExtremeDecomposition, EqualsThePlainOperatorForwardAndBackward) {
  expect_equal_along("max", [](const at::Tensor& x) {
    const auto [a, b] = x.max(1);
    const auto [c, d] = x.min(-x.dim() + 1, true);
    return Tensors{a, b, c, d};
  });
  expect_equal_along("argmax", [](const at::Tensor& x) {
    return Tensors{
        x.argmax(1), x.argmin(1, true), x.argmax(), x.argmin(),
        at::argmax(x, std::nullopt, true)};
  });
  expect_equal_along("aminmax", [](const at::Tensor& x) {
    const auto [a, b] = at::aminmax(x, 1);
    const auto [c, d] = at::aminmax(x, 1, true);
    const auto [e, f] = at::aminmax(x);
    return Tensors{a, b, c, d, e, f};
  });
}

TEST(ExtremeDecomposition, TakesTheFirstOfEqualsAndNaNBeforeAll) {
  const auto equal = at::tensor({3, 7, 7, 5, 7, 1, 1, 2}, i64()).view({2, 4});
  const auto nan =
      at::tensor(
          {1., kNan, 9., kNan, -kInf, -kInf, -kInf, -kInf, 2., 3., 1., kNan},
          f64())
          .view({3, 4});
  for (const at::Tensor& data : {equal, nan, equal.to(at::kInt), equal.gt(4)}) {
    expect_equal(
        "ties", {data}, {1},
        [](const Tensors& x) {
          const auto [a, b] = x[0].max(1);
          const auto [c, d] = x[0].min(1);
          return Tensors{a, b, c, d};
        },
        0, /*backward=*/false);
    if (data.scalar_type() != at::kBool) {
      expect_equal(
          "ties", {data}, {1},
          [](const Tensors& x) {
            return Tensors{
                x[0].argmax(1), x[0].argmin(1), x[0].argmax(), x[0].argmin()};
          },
          0, /*backward=*/false);
    }
  }
}

TEST(ExtremeDecomposition, SendsAValueAndAPlacePerRow) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const auto x = cut_of(distinct({8, 4000}, f32()), mesh, {Shard(1)});
    // 8 f32: 48 bytes, 8 int64: 96
    EXPECT_EQ(bytes_of([&] { return x.max(1); }), 144);
    EXPECT_EQ(bytes_of([&] { return x.argmax(); }), 24);
    EXPECT_EQ(bytes_of([&] { return x.aminmax(1); }), 0);
    EXPECT_EQ(placements(x.argmax(1)), Placements{Replicate()});
    const auto grid = mesh_of({2, 2});
    const auto y = cut_of(distinct({6, 4}), grid, {Shard(0), Shard(1)});
    EXPECT_EQ(
        placements(std::get<1>(y.max(1))), (Placements{Shard(0), Replicate()}));
    EXPECT_EQ(placements(y.argmax(0)), (Placements{Replicate(), Shard(0)}));
    EXPECT_ERROR(
        "Expected reduction dim",
        cut_of(at::zeros({2, 0}, f32()), mesh, {Shard(1)}).argmax(1));
  });
}

TEST(ScanDecomposition, EqualsThePlainOperatorForwardAndBackward) {
  expect_equal_along("cumsum", [](const at::Tensor& x) {
    return Tensors{x.cumsum(1), x.cumprod(1)};
  });
  expect_equal_along("logcumsumexp", [](const at::Tensor& x) {
    return Tensors{x.logcumsumexp(1)};
  });
  expect_equal_along("cummax", [](const at::Tensor& x) {
    const auto [a, b] = x.cummax(1);
    const auto [c, d] = x.cummin(1);
    return Tensors{a, b, c, d};
  });
}

TEST(ScanDecomposition, TreatsTypesTiesAndNaNAsAtenDoes) {
  const auto numbers = at::tensor({3, 7, 7, 5, 7, 1, 1, 2}, i64()).view({2, 4});
  expect_equal(
      "integers", {numbers}, {1},
      [](const Tensors& x) {
        const auto [a, b] = x[0].cummax(1);
        const auto [c, d] = x[0].cummin(1);
        return Tensors{
            a,
            b,
            c,
            d,
            x[0].cumsum(1),
            x[0].cumsum(1, at::kFloat),
            x[0].to(at::kInt).cumprod(1),
            x[0].gt(4).cumsum(1)};
      },
      0, false);
  const auto nan =
      at::tensor(
          {1., kNan, 9., kNan, 9., 2., kInf, 3., 1., 2., kNan, 1.}, f64())
          .view({3, 4});
  expect_equal(
      "NaN", {nan}, {1},
      [](const Tensors& x) {
        const auto [a, b] = x[0].cummax(1);
        return Tensors{a, b, x[0].cumsum(1), x[0].logcumsumexp(1)};
      },
      1e-10, false);
}

TEST(ScanDecomposition, SendsASlicePerRank) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const auto x = cut_of(distinct({8, 4000}, f32()), mesh, {Shard(1)});
    at::Tensor y;
    EXPECT_EQ(bytes_of([&] { return y = x.cumsum(1); }), 96);
    EXPECT_EQ(placements(y), Placements{Shard(1)});
    const auto ragged =
        cut_of(distinct({2, 6}), mesh, {RaggedShard(1, {3, 0, 1, 2})});
    EXPECT_TRUE(close(ragged.cumsum(1), distinct({2, 6}).cumsum(1)));
    EXPECT_EQ(placements(ragged.cumsum(1)), placements(ragged));
  });
}

TEST(TopkDecomposition, EqualsThePlainOperatorForwardAndBackward) {
  for (const bool largest : {true, false}) {
    expect_equal_along("topk", [&](const at::Tensor& x) {
      const auto [a, b] = x.topk(std::min<int64_t>(x.size(1), 3), 1, largest);
      return Tensors{a, b};
    });
  }
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const auto x = cut_of(distinct({8, 4000}, f32()), mesh, {Shard(1)});
    // 12 values of f32 and of int64 per row, a quarter of them at home
    EXPECT_EQ(bytes_of([&] { return x.topk(3, 1); }), 8 * 9 * 12);
  });
}

TEST(LayerNormDecomposition, EqualsThePlainOperatorForwardAndBackward) {
  const Op op = [](const Tensors& x) {
    const auto [y, mean, rstd] =
        at::native_layer_norm(x[0], {x[0].size(-1)}, x[1], x[2], 1e-5);
    return Tensors{y, mean, rstd};
  };
  for (const int64_t n : {8, 7, 5, 2}) {
    for (const int64_t cut_weight : {0, -1}) {
      expect_equal(
          "layer_norm", {distinct({3, n}), distinct({n}), distinct({n}) + 1},
          {1, cut_weight, cut_weight}, [](const Tensors& x) {
            return Tensors{at::layer_norm(x[0], {x[0].size(-1)}, x[1], x[2])};
          });
    }
    expect_equal("no weight", {distinct({3, n})}, {1}, [](const Tensors& x) {
      return Tensors{at::layer_norm(x[0], {x[0].size(-1)})};
    });
    expect_equal(
        "statistics", {distinct({3, n}), distinct({n}), distinct({n}) + 1},
        {1, 0, 0}, op, 1e-10, /*backward=*/false);
  }
  expect_equal(
      "two dims", {distinct({2, 3, 4}), distinct({3, 4})}, {1, 0},
      [](const Tensors& x) {
        return Tensors{at::layer_norm(x[0], {3, 4}, x[1])};
      });
  expect_equal(
      "all dims", {distinct({5, 4}), distinct({5, 4})}, {0, 0},
      [](const Tensors& x) {
        return Tensors{at::layer_norm(x[0], {5, 4}, x[1])};
      });
}

TEST(LayerNormDecomposition, SendsTwoNumbersPerRowEachWay) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const auto x = cut_of(distinct({8, 4000}, f32()), mesh, {Shard(1)});
    const auto w = cut_of(distinct({4000}, f32()), mesh, {Shard(0)});
    at::Tensor y, mean, rstd;
    EXPECT_EQ(
        bytes_of([&] {
          std::tie(y, mean, rstd) =
              at::native_layer_norm(x, {4000}, w, w, 1e-5);
          return y;
        }),
        96);
    EXPECT_EQ(placements(y), Placements{Shard(1)});
    EXPECT_EQ(placements(mean), Placements{Replicate()});
    std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients;
    EXPECT_EQ(
        bytes_of([&] {
          gradients = at::native_layer_norm_backward(
              y, x, {4000}, mean, rstd, w, w, {true, true, true});
          return y;
        }),
        96);
    EXPECT_EQ(placements(std::get<0>(gradients)), Placements{Shard(1)});
    EXPECT_EQ(placements(std::get<1>(gradients)), Placements{Shard(0)});
    const auto masked = at::native_layer_norm_backward(
        y, x, {4000}, mean, rstd, w, w, {false, true, false});
    EXPECT_FALSE(std::get<0>(masked).defined());
    EXPECT_FALSE(std::get<2>(masked).defined());
  });
}

TEST(LayerNormDecomposition, SumsInFloatAndKeepsTheTypesOfStatistics) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto whole = distinct({3, 9}, f32().dtype(at::kBFloat16));
    const auto x = cut_of(whole, mesh, {Shard(1)});
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const auto weight = distinct({9}, f32().dtype(type));
      const auto w = cut_of(weight, mesh, {Shard(0)});
      const auto [y, mean, rstd] = at::native_layer_norm(x, {9}, w, w, 1e-5);
      const auto [y2, mean2, rstd2] =
          at::native_layer_norm(whole, {9}, weight, weight, 1e-5);
      EXPECT_TRUE(close(y, y2, 1e-2));
      EXPECT_TRUE(close(mean, mean2, 1e-2));
      EXPECT_TRUE(close(rstd, rstd2, 1e-2));
    }
  });
}

TEST(LossDecomposition, EqualsThePlainOperatorForwardAndBackward) {
  using Loss =
      std::function<at::Tensor(const at::Tensor&, const at::Tensor&, int64_t)>;
  const std::vector<std::pair<const char*, Loss>> losses = {
      {"mse_loss",
       [](auto& x, auto& y, auto r) { return at::mse_loss(x, y, r); }},
      {"smooth_l1_loss",
       [](auto& x, auto& y, auto r) {
         return at::smooth_l1_loss(x, y, r, 0.7);
       }},
      {"huber_loss",
       [](auto& x, auto& y, auto r) { return at::huber_loss(x, y, r, 0.7); }},
      {"l1_loss",
       [](auto& x, auto& y, auto r) { return at::l1_loss(x, y, r); }},
      {"soft_margin_loss",
       [](auto& x, auto& y, auto r) {
         return at::soft_margin_loss(x, y.sign().detach(), r);
       }},
      {"kl_div",
       [](auto& x, auto& y, auto r) { return at::kl_div(x, y.sigmoid(), r); }},
      {"binary_cross_entropy",
       [](auto& x, auto& y, auto r) {
         return at::binary_cross_entropy(
             x.sigmoid(), y.sigmoid().detach(), {}, r);
       }},
      {"binary_cross_entropy, weighted",
       [](auto& x, auto& y, auto r) {
         return at::binary_cross_entropy(
             x.sigmoid(), y.sigmoid().detach(), y.detach().abs(), r);
       }},
      {"binary_cross_entropy_with_logits",
       [](auto& x, auto& y, auto r) {
         return at::binary_cross_entropy_with_logits(
             x, y.sigmoid().detach(), {}, {}, r);
       }},
  };
  for (const auto& [name, loss] : losses) {
    for (const auto& shape : shapes()) {
      for (const int64_t target : {1, -1}) {
        expect_equal(
            name, {distinct(shape), distinct(shape).mul(0.5)}, {1, target},
            [&, loss = loss](const Tensors& x) {
              return Tensors{loss(x[0], x[1], at::Reduction::Mean)};
            });
      }
    }
  }
}

TEST(LossDecomposition, IsAnAddendAndDoesNotOverflow) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto x =
        cut_of(at::full({100000}, 2, f32().dtype(at::kHalf)), mesh, {Shard(0)});
    const auto y = cut_of(
        at::zeros({100000}, f32().dtype(at::kHalf)), mesh, {Replicate()});
    at::Tensor loss;
    EXPECT_EQ(bytes_of([&] { return loss = at::mse_loss(x, y); }), 0);
    EXPECT_EQ(placements(loss), Placements{Partial()});
    EXPECT_EQ(full_tensor(loss).item<double>(), 4.0);
    // a target that is cut and one number that is not
    const auto one = cut_of(at::ones({}, f32()), mesh, {Replicate()});
    const auto many = cut_of(counting({6}, f32()), mesh, {Shard(0)});
    EXPECT_TRUE(close(
        at::mse_loss(many, one.expand({6})),
        at::mse_loss(counting({6}, f32()), at::ones({6}, f32())), 1e-5));
  });
}

at::Tensor targets_of(at::IntArrayRef shape, int64_t classes) {
  return counting(shape, i64()).mul(5).add(1).remainder(classes);
}

TEST(NllDecomposition, EqualsThePlainOperatorForwardAndBackward) {
  struct Shapes {
    std::vector<int64_t> scores, targets;
  };
  const std::vector<Shapes> all = {
      {{5, 8}, {5}},
      {{4, 7}, {4}},
      {{3, 2}, {3}},
      {{6}, {}},
      {{2, 5, 3, 2}, {2, 3, 2}}};
  for (const Shapes& s : all) {
    const int64_t classes = s.scores.size() == 1 ? s.scores[0] : s.scores[1];
    for (const int64_t reduction : {0, 1, 2}) {
      for (const int64_t cut : {0, 1, 2}) {
        if (cut >= static_cast<int64_t>(s.scores.size())) {
          continue;
        }
        for (const bool weighted : {false, true}) {
          const int64_t target = cut == 0 && !s.targets.empty() ? 0 : -1;
          expect_equal(
              "nll_loss",
              {distinct(s.scores), targets_of(s.targets, classes),
               distinct({classes}).abs().add(0.1)},
              {cut, target, -1}, [&](const Tensors& x) {
                const std::optional<at::Tensor> w =
                    weighted ? std::optional<at::Tensor>(x[2].detach())
                             : std::nullopt;
                // class 1 does not count
                return Tensors{at::nll_loss_nd(x[0], x[1], w, reduction, 1)};
              });
        }
      }
    }
  }
}

TEST(NllDecomposition, CrossEntropyOfCutClassesSendsNoScores) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    auto x = cut_of(distinct({8, 4000}, f32()), mesh, {Shard(1)});
    x.set_requires_grad(true);
    const auto t = cut_of(targets_of({8}, 4000), mesh, {Replicate()});
    at::Tensor loss;
    // log_softmax 96, sum and weight 16
    EXPECT_EQ(
        bytes_of([&] { return loss = at::cross_entropy_loss(x, t); }), 112);
    EXPECT_EQ(placements(loss), Placements{Replicate()});
    // the sum of log_softmax's gradient
    EXPECT_EQ(
        bytes_of([&] {
          loss.backward();
          return 0;
        }),
        48);
    EXPECT_EQ(placements(x.grad()), Placements{Shard(1)});
  });
}

TEST(NllDecomposition, RefusesTargetsOutsideTheClasses) {
  EXPECT_ERROR("targets must be in [0, 8); got 8", run_ranks(2, [&] {
                 const auto mesh = mesh_of({2});
                 const auto x = cut_of(distinct({3, 8}), mesh, {Shard(1)});
                 const auto t =
                     cut_of(at::full({3}, 8, i64()), mesh, {Replicate()});
                 at::nll_loss(x, t);
               }));
}

TEST(NllDecomposition, IsNaNWhereNothingCounts) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto x = cut_of(distinct({3, 8}), mesh, {Shard(1)});
    const auto t = cut_of(at::full({3}, -100, i64()), mesh, {Replicate()});
    EXPECT_TRUE(std::isnan(at::nll_loss(x, t).item<double>()));
  });
}

TEST(EqualDecomposition, ComparesShardsAndSendsOneByte) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const auto whole = distinct({9, 5});
    auto changed = whole.clone();
    changed.index_put_({torch::indexing::TensorIndex(8), 4}, 100);
    const auto a = cut_of(whole, mesh, {Shard(0)});
    for (const Placement& p : {Shard(0), Replicate()}) {
      const auto same_values = cut_of(whole, mesh, {p});
      const auto other = cut_of(changed, mesh, {p});
      EXPECT_TRUE(at::equal(a, same_values));
      EXPECT_TRUE(at::equal(same_values, a));
      EXPECT_FALSE(at::equal(a, other));
      EXPECT_FALSE(at::equal(other, a));
      EXPECT_LE(bytes_of([&] { return at::equal(a, other); }), 2);
    }
    EXPECT_FALSE(at::equal(a, cut_of(distinct({9, 4}), mesh, {Shard(0)})));
    const auto sum = from_local(whole, mesh, {Partial()});
    EXPECT_TRUE(at::equal(cut_of(whole * 4, mesh, {Shard(0)}), sum));
    EXPECT_FALSE(at::equal(sum, a));
    EXPECT_EQ(sum.sum().item<double>(), (whole * 4).sum().item<double>());
    const auto nan = cut_of(at::full({4}, kNan, f64()), mesh, {Shard(0)});
    EXPECT_FALSE(at::equal(nan, nan));
  });
}

struct ConvCase {
  std::vector<int64_t> input, weight, stride, padding, dilation;
  int64_t groups = 1;
};

const std::vector<ConvCase>& conv_cases() {
  static const std::vector<ConvCase> all = {
      {{2, 2, 8}, {3, 2, 3}, {1}, {1}, {1}},
      {{2, 2, 7}, {3, 2, 3}, {1}, {0}, {1}},
      {{2, 2, 9}, {3, 2, 3}, {2}, {1}, {1}},
      {{2, 2, 10}, {3, 2, 3}, {1}, {2}, {2}},
      {{2, 2, 8}, {3, 2, 2}, {2}, {0}, {1}},
      {{2, 2, 7}, {3, 2, 5}, {1}, {4}, {1}},
      {{2, 2, 2}, {3, 2, 3}, {1}, {1}, {1}},
      {{2, 2, 11}, {3, 2, 2}, {4}, {0}, {1}},
      {{2, 4, 5, 6}, {4, 2, 3, 2}, {1, 2}, {1, 0}, {1, 1}, 2},
      {{2, 2, 7, 4}, {3, 2, 3, 3}, {2, 1}, {1, 1}, {1, 1}},
      {{1, 2, 5, 3, 4}, {2, 2, 3, 2, 2}, {1, 1, 1}, {1, 0, 1}, {1, 1, 1}},
  };
  return all;
}

TEST(ConvolutionDecomposition, EqualsThePlainOperatorForwardAndBackward) {
  for (const ConvCase& c : conv_cases()) {
    for (int64_t d = 2; d < static_cast<int64_t>(c.input.size()); ++d) {
      expect_equal(
          "convolution",
          {distinct(c.input), distinct(c.weight), distinct({c.weight[0]})},
          {d, -1, -1}, [&](const Tensors& x) {
            return Tensors{at::convolution(
                x[0], x[1], x[2], c.stride, c.padding, c.dilation, false, {0},
                c.groups)};
          });
    }
  }
}

TEST(ConvolutionDecomposition, SendsTheRowsBetweenNeighboursOnly) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const auto x = cut_of(distinct({2, 3, 64, 16}, f32()), mesh, {Shard(2)});
    auto w = cut_of(distinct({5, 3, 3, 3}, f32()), mesh, {Replicate()});
    at::Tensor y;
    const int64_t row = 2 * 3 * 16 * 4;
    const int64_t neighbours = rank() == 0 || rank() == 3 ? 1 : 2;
    EXPECT_EQ(
        bytes_of([&] { return y = at::conv2d(x, w, {}, 1, 1); }),
        neighbours * row);
    EXPECT_EQ(placements(y), Placements{Shard(2)});
    const auto patches =
        cut_of(distinct({5, 3, 4, 4}, f32()), mesh, {Replicate()});
    EXPECT_EQ(bytes_of([&] { return y = at::conv2d(x, patches, {}, 4); }), 0);
    EXPECT_EQ(placements(y), Placements{Shard(2)});
    w.set_requires_grad(true);
    y = at::conv2d(x, w, {}, 1, 1).sum();
    y.backward();
    EXPECT_TRUE(close(
        w.grad(),
        [&] {
          auto plain = leaf(distinct({5, 3, 3, 3}, f32()));
          at::conv2d(distinct({2, 3, 64, 16}, f32()), plain, {}, 1, 1)
              .sum()
              .backward();
          return plain.grad();
        }(),
        1e-3));
  });
}

TEST(ConvolutionDecomposition, LeavesErrorsToAten) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto x = cut_of(distinct({1, 1, 4}), mesh, {Shard(2)});
    const auto w = cut_of(distinct({1, 1, 9}), mesh, {Replicate()});
    EXPECT_ERROR("Kernel size can't be greater", at::conv1d(x, w));
  });
}

TEST(Decomposition, IsExplainedAsItRunsAndForbiddenByStrictMode) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const auto x = cut_of(distinct({8, 16}, f32()), mesh, {Shard(1)});
    const std::string told = explain("aten::_softmax", x, int64_t{1}, false);
    EXPECT_NE(told.find("all_reduce 0: P(max) -> R, 48 bytes"), told.npos)
        << told;
    EXPECT_NE(told.find("all_reduce 0: P(sum) -> R, 48 bytes"), told.npos)
        << told;
    EXPECT_NE(told.find("result: f32[8, 16] S(1)"), told.npos) << told;
    EXPECT_NE(told.find("total: 96 bytes"), told.npos) << told;
    const StrictMode strict;
    EXPECT_ERROR("StrictMode forbids implied communication", x.softmax(1));
    EXPECT_EQ(placements(x.softmax(0)), Placements{Shard(1)});
  });
}

TEST(Decomposition, RanksOutsideTheMeshGetTheSameLayouts) {
  run_ranks(3, [&] {
    const DeviceMesh mesh(device(), at::arange(2, at::kLong));
    const auto x = cut_of(distinct({4, 6}), mesh, {Shard(1)});
    const auto w = cut_of(distinct({6}), mesh, {Shard(0)});
    EXPECT_EQ(placements(x.softmax(1)), Placements{Shard(1)});
    EXPECT_EQ(placements(x.var(1)), Placements{Replicate()});
    EXPECT_EQ(placements(x.norm()), Placements{Replicate()});
    EXPECT_EQ(x.argmax().sizes(), at::IntArrayRef());
    EXPECT_EQ(placements(x.cumsum(1)), Placements{Shard(1)});
    EXPECT_EQ(placements(at::layer_norm(x, {6}, w)), Placements{Shard(1)});
    EXPECT_EQ(placements(at::mse_loss(x, x)), Placements{Partial()});
    EXPECT_EQ(at::_foreach_norm({x, w}, 2).size(), 2U);
    EXPECT_EQ(std::get<0>(x.topk(2, 1)).sizes(), at::IntArrayRef({4, 2}));
  });
}

}  // namespace
}  // namespace tessera
