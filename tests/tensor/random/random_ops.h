// Every random operator as a function of one tensor, for tests that compare
// what it draws in different layouts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <harness/sharded_test.h>

namespace tessera::testing {

struct RandomOp {
  std::string name;
  /// Takes a tensor of values in (0, 1); returns an undefined tensor where the
  /// operator does not fit the shape.
  std::function<at::Tensor(const at::Tensor&)> draw;
};

/// Returns distinct values in (0, 1).
inline at::Tensor fractions(
    at::IntArrayRef shape, at::TensorOptions options = f32()) {
  const int64_t n = c10::multiply_integers(shape);
  return at::arange(n, at::kDouble)
      .add(1)
      .mul(0.6180339887498949)
      .frac()
      .mul(0.9)
      .add(0.05)
      .reshape(shape)
      .to(options)
      .clone();
}

/// Wraps an in-place operator.
template <class F>
std::function<at::Tensor(const at::Tensor&)> in_place(F f) {
  return [f](const at::Tensor& x) {
    at::Tensor t = x.clone();
    f(t);
    return t;
  };
}

/// Wraps rand_like and such, in another dtype.
inline RandomOp in_dtype(
    const std::string& name, at::ScalarType dtype,
    at::Tensor (*like)(const at::Tensor&, at::TensorOptions)) {
  return {name + " " + c10::toString(dtype), [=](const at::Tensor& x) {
            return like(x, x.options().dtype(dtype));
          }};
}

inline std::vector<RandomOp> filling_ops() {
  std::vector<RandomOp> ops = {
      {"uniform_", in_place([](auto& t) { t.uniform_(-2, 3); })},
      {"normal_", in_place([](auto& t) { t.normal_(1, 2); })},
      {"random_", in_place([](auto& t) { t.random_(); })},
      {"random_.to", in_place([](auto& t) { t.random_(5); })},
      {"random_.from", in_place([](auto& t) { t.random_(-3, 9); })},
      {"bernoulli_.float", in_place([](auto& t) { t.bernoulli_(0.3); })},
      {"exponential_", in_place([](auto& t) { t.exponential_(2); })},
      {"geometric_", in_place([](auto& t) { t.geometric_(0.3); })},
      {"log_normal_", in_place([](auto& t) { t.log_normal_(0.1, 0.5); })},
      {"cauchy_", in_place([](auto& t) { t.cauchy_(1, 2); })},
      {"randint_like",
       [](const at::Tensor& x) { return at::randint_like(x, 10); }},
      {"randint_like.low_dtype",
       [](const at::Tensor& x) {
         return at::randint_like(x, -5, 7, x.options().dtype(at::kLong));
       }},
      {"bernoulli.p",
       [](const at::Tensor& x) { return at::bernoulli(x, 0.6); }},
      {"uniform", [](const at::Tensor& x) { return at::uniform(x, 2, 4); }},
      {"normal_functional",
       [](const at::Tensor& x) { return at::normal_functional(x, 2, 4); }},
      {"random.from",
       [](const at::Tensor& x) { return at::random(x, 2, 400); }},
      {"exponential", [](const at::Tensor& x) { return at::exponential(x); }},
      {"geometric", [](const at::Tensor& x) { return at::geometric(x, 0.5); }},
      {"log_normal", [](const at::Tensor& x) { return at::log_normal(x); }},
      {"cauchy", [](const at::Tensor& x) { return at::cauchy(x); }},
      {"uniform.out",
       [](const at::Tensor& x) {
         at::Tensor out = at::empty_like(x);
         return at::uniform_out(out, x, 0, 7);
       }},
      {"rand.out",
       [](const at::Tensor& x) {
         at::Tensor out = at::empty_like(x);
         return at::rand_out(out, x.sizes());
       }},
      {"a view",
       [](const at::Tensor& x) {
         at::Tensor t = x.clone();
         if (t.dim() > 0) {
           t.slice(0, 0, t.size(0) / 2).normal_();
         }
         return t;
       }},
  };
  for (const auto dtype :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat}) {
    ops.push_back(in_dtype(
        "rand_like", dtype, [](const at::Tensor& x, at::TensorOptions o) {
          return at::rand_like(x, o);
        }));
    ops.push_back(in_dtype(
        "randn_like", dtype, [](const at::Tensor& x, at::TensorOptions o) {
          return at::randn_like(x, o);
        }));
  }
  for (const auto dtype : {at::kLong, at::kInt, at::kByte, at::kBool}) {
    ops.push_back(in_dtype(
        "random_", dtype, [](const at::Tensor& x, at::TensorOptions o) {
          return at::empty_like(x, o).random_();
        }));
  }
  return ops;
}

inline std::vector<RandomOp> parameter_ops() {
  return {
      {"bernoulli", [](const at::Tensor& x) { return at::bernoulli(x); }},
      {"bernoulli_.Tensor",
       [](const at::Tensor& x) { return x.clone().bernoulli_(x); }},
      {"normal.Tensor_float",
       [](const at::Tensor& x) { return at::normal(x, 2.0); }},
      {"normal.float_Tensor",
       [](const at::Tensor& x) { return at::normal(2.0, x); }},
      {"normal.Tensor_Tensor",
       [](const at::Tensor& x) { return at::normal(x, x + 1); }},
      {"poisson", [](const at::Tensor& x) { return at::poisson(x * 30); }},
      {"binomial",
       [](const at::Tensor& x) { return at::binomial(x * 0 + 40, x); }},
      {"_standard_gamma",
       [](const at::Tensor& x) { return at::_standard_gamma(x * 3); }},
      {"_sample_dirichlet",
       [](const at::Tensor& x) {
         return x.dim() > 0 ? at::_sample_dirichlet(x) : at::Tensor();
       }},
      {"multinomial",
       [](const at::Tensor& x) {
         const bool fits = (x.dim() == 1 || x.dim() == 2) && x.numel() > 0;
         return fits ? at::multinomial(x, 1) : at::Tensor();
       }},
      {"multinomial with replacement",
       [](const at::Tensor& x) {
         const bool fits = (x.dim() == 1 || x.dim() == 2) && x.numel() > 0;
         return fits ? at::multinomial(x, 9, true) : at::Tensor();
       }},
      {"rrelu_with_noise",
       [](const at::Tensor& x) {
         return at::rrelu(x - 0.5, 0.1, 0.4, /*training=*/true);
       }},
      {"dropout",
       [](const at::Tensor& x) { return at::dropout(x, 0.4, true); }},
      {"dropout_", in_place([](auto& t) { at::dropout_(t, 0.4, true); })},
      {"native_dropout",
       [](const at::Tensor& x) {
         const auto [y, mask] = at::native_dropout(x, 0.4, true);
         return y + mask;
       }},
      {"alpha_dropout",
       [](const at::Tensor& x) { return at::alpha_dropout(x, 0.4, true); }},
      {"feature_dropout",
       [](const at::Tensor& x) {
         return x.dim() > 1 ? at::feature_dropout(x, 0.4, true) : at::Tensor();
       }},
      {"feature_alpha_dropout",
       [](const at::Tensor& x) {
         return x.dim() > 1 ? at::feature_alpha_dropout(x, 0.4, true)
                            : at::Tensor();
       }},
      {"randperm.out",
       [](const at::Tensor& x) {
         at::Tensor out = at::empty_like(x, x.options().dtype(at::kLong));
         return x.dim() == 1 ? at::randperm_out(out, x.size(0)) : at::Tensor();
       }},
  };
}

inline std::vector<RandomOp> all_random_ops() {
  auto ops = filling_ops();
  for (RandomOp& op : parameter_ops()) {
    ops.push_back(std::move(op));
  }
  return ops;
}

/// Returns what every operator draws from one seed, as plain tensors.
inline std::vector<at::Tensor> draw_all(
    const std::vector<RandomOp>& ops, const at::Tensor& x, uint64_t seed) {
  manual_seed(seed);
  std::vector<at::Tensor> values;
  for (const RandomOp& op : ops) {
    at::Tensor drawn;
    try {
      drawn = op.draw(x);
    } catch (const std::exception& e) {
      throw std::runtime_error(op.name + ": " + e.what());
    }
    values.push_back(drawn.defined() ? plain(drawn) : drawn);
  }
  return values;
}

}  // namespace tessera::testing
