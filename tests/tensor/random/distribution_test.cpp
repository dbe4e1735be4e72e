// Mean, variance and a chi-square of every distribution, on sharded tensors.
#include <cmath>

#include <harness/sharded_test.h>

namespace tessera {
namespace {

using testing::device;
using testing::f32;
using testing::mesh_of;
using testing::plain;

constexpr int64_t kCount = 200000;
constexpr double kPi = 3.14159265358979323846;

struct Continuous {
  const char* name;
  std::function<at::Tensor(at::Tensor)> draw;
  std::function<double(double)> cdf;
  double mean;  // not a number: there is none
  double variance;
};

double normal_cdf(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0));
}

// P(Gamma(a) <= x) by its series.
double gamma_cdf(double a, double x) {
  if (x <= 0) {
    return 0;
  }
  double term = 1 / a;
  double sum = term;
  for (int n = 1; n < 500; ++n) {
    term *= x / (a + n);
    sum += term;
  }
  return std::min(1.0, sum * std::exp(-x + a * std::log(x) - std::lgamma(a)));
}

std::vector<Continuous> continuous() {
  const double none = std::nan("");
  return {
      {"uniform_", [](at::Tensor t) { return t.uniform_(); },
       [](double x) { return x; }, 0.5, 1.0 / 12},
      {"uniform_(-2, 3)", [](at::Tensor t) { return t.uniform_(-2, 3); },
       [](double x) { return (x + 2) / 5; }, 0.5, 25.0 / 12},
      {"normal_", [](at::Tensor t) { return t.normal_(); }, normal_cdf, 0, 1},
      {"normal_(1, 3)", [](at::Tensor t) { return t.normal_(1, 3); },
       [](double x) { return normal_cdf((x - 1) / 3); }, 1, 9},
      {"exponential_(2)", [](at::Tensor t) { return t.exponential_(2); },
       [](double x) { return 1 - std::exp(-2 * x); }, 0.5, 0.25},
      {"log_normal_(0.1, 0.3)",
       [](at::Tensor t) { return t.log_normal_(0.1, 0.3); },
       [](double x) { return normal_cdf((std::log(x) - 0.1) / 0.3); },
       std::exp(0.145), (std::exp(0.09) - 1) * std::exp(0.29)},
      {"cauchy_(1, 2)", [](at::Tensor t) { return t.cauchy_(1, 2); },
       [](double x) { return 0.5 + std::atan((x - 1) / 2) / kPi; }, none, none},
      {"_standard_gamma(2.5)",
       [](at::Tensor t) { return at::_standard_gamma(t.fill_(2.5)); },
       [](double x) { return gamma_cdf(2.5, x); }, 2.5, 2.5},
      {"_standard_gamma(0.5)",
       [](at::Tensor t) { return at::_standard_gamma(t.fill_(0.5)); },
       [](double x) { return gamma_cdf(0.5, x); }, 0.5, 0.5},
      {"normal(mean, std)",
       [](at::Tensor t) {
         return at::normal(at::full_like(t, 2), at::full_like(t, 0.5));
       },
       [](double x) { return normal_cdf((x - 2) / 0.5); }, 2, 0.25},
  };
}

struct Discrete {
  const char* name;
  std::function<at::Tensor(at::Tensor)> draw;
  std::function<double(int64_t)> pmf;
  int64_t first;  // values first .. last are counted, the rest is one bin
  int64_t last;
  double mean;
  double variance;
};

double poisson_pmf(double mean, int64_t k) {
  const auto x = static_cast<double>(k);
  return std::exp(x * std::log(mean) - mean - std::lgamma(x + 1));
}

double binomial_pmf(double n, double p, int64_t k) {
  const auto x = static_cast<double>(k);
  return std::exp(
      std::lgamma(n + 1) - std::lgamma(x + 1) - std::lgamma(n - x + 1) +
      x * std::log(p) + (n - x) * std::log1p(-p));
}

std::vector<Discrete> discrete() {
  const auto poisson = [](double mean) {
    return [=](at::Tensor t) { return at::poisson(t.fill_(mean)); };
  };
  const auto binomial = [](double n, double p) {
    return [=](at::Tensor t) {
      return at::binomial(at::full_like(t, n), at::full_like(t, p));
    };
  };
  return {
      {"random_(-3, 9)", [](at::Tensor t) { return t.random_(-3, 9); },
       [](int64_t) { return 1.0 / 12; }, -3, 8, 2.5, 143.0 / 12},
      {"bernoulli_(0.3)", [](at::Tensor t) { return t.bernoulli_(0.3); },
       [](int64_t k) { return k == 1 ? 0.3 : 0.7; }, 0, 1, 0.3, 0.21},
      {"bernoulli(0.3)",
       [](at::Tensor t) { return at::bernoulli(t.fill_(0.3)); },
       [](int64_t k) { return k == 1 ? 0.3 : 0.7; }, 0, 1, 0.3, 0.21},
      {"geometric_(0.3)", [](at::Tensor t) { return t.geometric_(0.3); },
       [](int64_t k) {
         return 0.3 * std::pow(0.7, static_cast<double>(k) - 1);
       },
       1, 25, 1 / 0.3, 0.7 / 0.09},
      {"poisson(2.5)", poisson(2.5),
       [](int64_t k) { return poisson_pmf(2.5, k); }, 0, 10, 2.5, 2.5},
      {"poisson(40)", poisson(40), [](int64_t k) { return poisson_pmf(40, k); },
       20, 62, 40, 40},
      {"binomial(20, 0.2)", binomial(20, 0.2),
       [](int64_t k) { return binomial_pmf(20, 0.2, k); }, 0, 11, 4, 3.2},
      {"binomial(100, 0.7)", binomial(100, 0.7),
       [](int64_t k) { return binomial_pmf(100, 0.7, k); }, 54, 85, 70, 21},
      {"multinomial",
       [](at::Tensor t) {
         const auto weights = distribute_tensor(
             at::tensor({1.0, 0.0, 2.0, 3.0}).to(t.options()), device_mesh(t),
             {Replicate()});
         return at::multinomial(weights, kCount, true);
       },
       [](int64_t k) {
         return std::vector<double>{1, 0, 2, 3}[size_t(k)] / 6;
       },
       0, 3, 13.0 / 6, 35.0 / 6 - 169.0 / 36},
  };
}

at::Tensor drawn(const std::function<at::Tensor(at::Tensor)>& draw) {
  manual_seed(11);
  return plain(draw(empty({kCount}, mesh_of({1}), {Shard(0)}, f32())))
      .to(at::kCPU, at::kDouble);
}

void check_moments(const at::Tensor& values, double mean, double variance) {
  if (std::isnan(mean)) {
    return;
  }
  const double n = kCount;
  const auto centred = values - mean;
  const double fourth = centred.pow(4).mean().item<double>();
  EXPECT_NEAR(values.mean().item<double>(), mean, 5 * std::sqrt(variance / n));
  EXPECT_NEAR(
      centred.pow(2).mean().item<double>(), variance,
      5 * std::sqrt(std::max(fourth - variance * variance, 1e-12) / n));
}

// Bins with an expectation below 5 should not occur in the tables above.
void check_chi_square(
    const std::vector<double>& counts, const std::vector<double>& chances) {
  double chi_square = 0;
  int64_t bins = 0;
  for (size_t b = 0; b < counts.size(); ++b) {
    const double expected = chances[b] * kCount;
    if (expected < 5) {
      EXPECT_LT(counts[b], 30) << "bin " << b;
      continue;
    }
    chi_square += (counts[b] - expected) * (counts[b] - expected) / expected;
    ++bins;
  }
  const double freedom = std::max<double>(static_cast<double>(bins) - 1, 1);
  EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2 * freedom));
}

TEST(RandomDistributions, ContinuousOnesHaveTheirMomentsAndShape) {
  for (const Continuous& c : continuous()) {
    SCOPED_TRACE(c.name);
    const auto values = drawn(c.draw);
    check_moments(values, c.mean, c.variance);
    constexpr size_t kBins = 64;
    std::vector<double> counts(kBins, 0);
    const double* data = values.const_data_ptr<double>();
    for (int64_t i = 0; i < kCount; ++i) {
      const double place = c.cdf(data[i]) * kBins;
      ++counts[static_cast<size_t>(std::min(place, kBins - 1.0))];
    }
    check_chi_square(counts, std::vector<double>(kBins, 1.0 / kBins));
  }
}

TEST(RandomDistributions, DiscreteOnesHaveTheirMomentsAndShape) {
  for (const Discrete& d : discrete()) {
    SCOPED_TRACE(d.name);
    const auto values = drawn(d.draw);
    check_moments(values, d.mean, d.variance);
    const auto bins = static_cast<size_t>(d.last - d.first + 1);
    std::vector<double> counts(bins + 1, 0);
    std::vector<double> chances(bins + 1, 0);
    chances.back() = 1;
    for (size_t b = 0; b < bins; ++b) {
      chances[b] = d.pmf(d.first + static_cast<int64_t>(b));
      chances.back() -= chances[b];
    }
    const double* data = values.const_data_ptr<double>();
    for (int64_t i = 0; i < kCount; ++i) {
      const auto value = static_cast<int64_t>(data[i]);
      EXPECT_EQ(static_cast<double>(value), data[i]);
      const bool counted = value >= d.first && value <= d.last;
      ++counts[counted ? static_cast<size_t>(value - d.first) : bins];
    }
    check_chi_square(counts, chances);
  }
}

TEST(RandomDistributions, NeighbouringElementsAreIndependent) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    manual_seed(5);
    const auto t = plain(randn({kCount}, mesh_of({1}), {Shard(0)}, dtype))
                       .to(at::kCPU, at::kDouble);
    for (const int64_t lag : {1, 2, 3, 4, 8}) {
      for (const auto& x : {t, t.abs() - t.abs().mean()}) {
        const double correlation =
            (x.slice(0, lag) * x.slice(0, 0, kCount - lag))
                .mean()
                .item<double>();
        EXPECT_LT(std::abs(correlation), 5 / std::sqrt(double(kCount)))
            << "lag " << lag;
      }
    }
  }
}

TEST(RandomDistributions, UniformsStayBelowTheirEnd) {
  const auto mesh = mesh_of({1});
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const auto t = empty({kCount}, mesh, {Shard(0)}, dtype);
    for (const auto& [from, to] : std::vector<std::pair<double, double>>{
             {0, 1}, {-1, 0}, {5, 5.1}, {1000, 1001}, {-0.3, 0.1}}) {
      t.uniform_(from, to);
      const auto values = plain(t).to(at::kDouble);
      EXPECT_LT(values.max().item<double>(), to) << dtype;
      const double least = at::scalar_tensor(from, dtype).item<double>();
      EXPECT_GE(values.min().item<double>(), std::min(from, least)) << dtype;
    }
    t.uniform_(3, 3);
    EXPECT_TRUE(plain(t).eq(3).all().item<bool>());
  }
}

TEST(RandomDistributions, IntegersFillTheirRange) {
  const auto mesh = mesh_of({1});
  auto t = empty({kCount}, mesh, {Shard(0)}, at::kLong);
  const auto extremes = [&] {
    const auto v = plain(t);
    return std::pair(v.min().item<int64_t>(), v.max().item<int64_t>());
  };
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  t.random_(7, 8);
  EXPECT_EQ(extremes(), (std::pair<int64_t, int64_t>(7, 7)));
  t.random_(-2, 2);
  EXPECT_EQ(extremes(), (std::pair<int64_t, int64_t>(-2, 1)));
  for (int form = 0; form < 2; ++form) {  // the full 64 bits, and all but one
    form == 0 ? t.random_(kMin, std::optional<int64_t>())
              : t.random_(kMin, std::optional<int64_t>(kMax));
    EXPECT_LT(extremes().first, kMin / 1000 * 999);
    EXPECT_GT(extremes().second, kMax / 1000 * 999);
    for (int bit = 0; bit < 64; ++bit) {
      const double ones = plain(t)
                              .bitwise_right_shift(bit)
                              .bitwise_and(1)
                              .to(at::kDouble)
                              .mean()
                              .item<double>();
      EXPECT_NEAR(ones, 0.5, 0.01) << "bit " << bit;
    }
  }
  t.random_();
  EXPECT_GE(extremes().first, 0);
  const auto b = empty({kCount}, mesh, {Shard(0)}, at::kByte).random_();
  EXPECT_EQ(plain(b).min().item<int64_t>(), 0);
  EXPECT_EQ(plain(b).max().item<int64_t>(), 255);
  // 259 would round to 260 in bf16.
  const auto f = empty({kCount}, mesh, {Shard(0)}, at::kBFloat16);
  f.random_(250, 260);
  EXPECT_LT(plain(f).to(at::kDouble).max().item<double>(), 260);
}

TEST(RandomDistributions, DirichletRowsSumToOne) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto alpha =
        distribute_tensor(at::full({3000, 4}, 2.0, f32()), mesh, {Shard(1)});
    manual_seed(3);
    const auto rows = plain(at::_sample_dirichlet(alpha));
    EXPECT_TRUE(at::allclose(rows.sum(-1), at::ones({3000}, f32())));
    EXPECT_NEAR(rows.select(1, 2).mean().item<double>(), 0.25, 0.015);
    EXPECT_NEAR(rows.select(1, 0).var().item<double>(), 0.25 * 0.75 / 9, 0.003);
  });
}

TEST(RandomDistributions, SamplesWithoutReplacementAreDistinctAndWeighted) {
  const auto mesh = mesh_of({1});
  manual_seed(4);
  const auto weights = distribute_tensor(
      at::tensor({1.0, 2.0, 0.0, 5.0}).expand({20000, 4}).to(f32()), mesh,
      {Shard(0)});
  const auto drawn = plain(at::multinomial(weights, 3)).cpu();
  const auto sorted = std::get<0>(drawn.sort(1));
  EXPECT_TRUE(at::equal(sorted, at::tensor({0, 1, 3}).expand({20000, 3})));
  const auto first = drawn.select(1, 0);
  EXPECT_NEAR(first.eq(3).to(at::kDouble).mean().item<double>(), 0.625, 0.02);
  EXPECT_NEAR(first.eq(0).to(at::kDouble).mean().item<double>(), 0.125, 0.02);
}

TEST(RandomDistributions, PermutationsAreUniform) {
  const auto mesh = mesh_of({1});
  manual_seed(2);
  std::vector<double> counts(24, 0);
  for (int i = 0; i < 4800; ++i) {
    const auto p = plain(randperm(4, mesh, {Replicate()})).cpu();
    const int64_t* v = p.const_data_ptr<int64_t>();
    size_t code = 0;  // the place among all permutations
    for (int a = 0; a < 4; ++a) {
      size_t smaller = 0;
      for (int b = a + 1; b < 4; ++b) {
        smaller += v[b] < v[a] ? 1 : 0;
      }
      code = code * static_cast<size_t>(4 - a) + smaller;
    }
    ++counts[code];
  }
  double chi_square = 0;
  for (const double count : counts) {
    chi_square += (count - 200) * (count - 200) / 200;
  }
  EXPECT_LT(chi_square, 23 + 5 * std::sqrt(46.0));
}

}  // namespace
}  // namespace tessera
