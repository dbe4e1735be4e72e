// Gradients by central differences of a global function, and the leaves and
// placements to try it on. Nothing here uses autograd.
#pragma once

#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <harness/sharded_test.h>

namespace tessera::testing {

/// A function of the global value; every rank calls it with the same value and
/// gets the same result.
using GlobalScalar = std::function<double(const at::Tensor& x)>;

constexpr double kStep = 1e-5;
constexpr double kTolerance = 1e-7;

/// Returns the derivative by every element: (f(x+h) - f(x-h)) / 2h.
inline at::Tensor numeric_gradient(
    const GlobalScalar& f, const at::Tensor& x, double step = kStep) {
  const at::Tensor gradient = at::zeros_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const at::Tensor above = x.clone();
    above.view(-1)[i] += step;
    const at::Tensor below = x.clone();
    below.view(-1)[i] -= step;
    gradient.view(-1)[i] = (f(above) - f(below)) / (2 * step);
  }
  return gradient;
}

/// Returns the derivative along a direction.
inline double numeric_slope(
    const GlobalScalar& f, const at::Tensor& x, const at::Tensor& direction) {
  return (f(x + kStep * direction) - f(x - kStep * direction)) / (2 * kStep);
}

/// Weights and directions: distinct, and unlike distinct().
inline at::Tensor weights(at::IntArrayRef shape) {
  return distinct(shape).mul(1.3).cos().add(0.2);
}
inline at::Tensor direction(at::IntArrayRef shape) {
  return distinct(shape).mul(2.1).sin().sub(0.15);
}

/// A mesh and a shape to lay out on it.
struct GradientCase {
  std::vector<int64_t> mesh;
  std::vector<int64_t> shape;
  int ranks() const { return static_cast<int>(c10::multiply_integers(mesh)); }
};

inline bool long_form() {
  return std::getenv("TESSERA_LONG") != nullptr;
}

/// Even, uneven and empty shards on 1-D meshes of 2 and 3.
inline std::vector<GradientCase> one_dim_cases() {
  return {{{2}, {4, 2}}, {{2}, {1, 3}}, {{3}, {5, 2}}, {{3}, {2, 4}}};
}
inline std::vector<GradientCase> two_dim_cases() {
  std::vector<GradientCase> cases = {
      {{2, 2}, {2, 2}}, {{2, 2}, {3, 2}}, {{2, 2}, {1, 3}}};
  if (long_form()) {
    cases.push_back({{2, 2}, {4, 4}});
    cases.push_back({{2, 3}, {5, 4}});
    cases.push_back({{3, 2}, {7, 3}});
  }
  return cases;
}

inline Placement ragged(int64_t length, int64_t parts) {
  std::vector<int64_t> sizes(static_cast<size_t>(parts));
  sizes.front() = length - 1;
  sizes.back() = 1;
  return RaggedShard(0, sizes);
}

/// Placements whose local gradient has a default, then those without.
inline std::vector<Placements> placements_with_default(const GradientCase& c) {
  std::vector<std::string> texts = {"R",      "S(0)",   "S(1)",
                                    "P(sum)", "P(avg)", "SS(0,2)"};
  if (c.mesh.size() == 2) {
    texts = {"R R",
             "S(0) R",
             "R S(1)",
             "S(0) S(0)",
             "S(0) S(1)",
             "S(1) S(0)",
             "P(sum) P(sum)",
             "P(sum) S(0)",
             "S(1) P(sum)",
             "P(avg) R",
             "P(avg) P(sum)",
             "R P(sum)",
             "S(0)[1] S(0)[0]",
             "SS(0,2) S(0)"};
  }
  std::vector<Placements> list;
  for (const std::string& text : texts) {
    list.push_back(parse_placements(text));
  }
  Placements last(c.mesh.size(), Replicate());
  last.front() = ragged(c.shape[0], c.mesh[0]);
  list.push_back(last);
  return list;
}

inline std::vector<Placements> all_placements(const GradientCase& c) {
  std::vector<Placements> list = placements_with_default(c);
  const bool flat = c.mesh.size() == 1;
  for (const char* text :
       {flat ? "P(max)" : "P(max) S(0)", flat ? "P(min)" : "S(1) P(min)",
        flat ? "P(product)" : "P(product) P(product)"}) {
    list.push_back(parse_placements(text));
  }
  return list;
}

/// Changes the addends of a Partial, not the value: no two ranks hold the same.
inline at::Tensor with_gauge(
    at::Tensor local, const DeviceMesh& mesh, const Placements& placements) {
  const at::Tensor u = distinct(local.sizes()).abs().mul(0.3).add(0.4);
  for (int64_t m = 0; m < mesh.ndim(); ++m) {
    const Placement& p = placements[static_cast<size_t>(m)];
    if (!p.is_partial()) {
      continue;
    }
    const auto n = static_cast<double>(mesh.size(m));
    const bool last = mesh.local_rank(m) == mesh.size(m) - 1;
    switch (p.reduce_op()) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        local = local + u * (last ? 1 - n : 1);
        break;
      case ReduceOp::kMax:
        local = last ? local : local - u;
        break;
      case ReduceOp::kMin:
        local = last ? local : local + u;
        break;
      case ReduceOp::kProduct:
        local = local * (last ? std::pow(2.0, 1 - n) : 2.0);
        break;
    }
  }
  return local;
}

/// Returns this rank's shard of a global value.
inline at::Tensor shard_of(
    const at::Tensor& x, const DeviceMesh& mesh, const Placements& placements) {
  const at::Tensor t = distribute_tensor(
      x.detach(), mesh, placements, {.src_data_rank = std::nullopt});
  return with_gauge(to_local(t), mesh, placements).clone();
}

/// Returns a leaf of the given global value and placements.
inline at::Tensor leaf_of(
    const at::Tensor& x, const DeviceMesh& mesh, const Placements& placements) {
  return from_local(
             shard_of(x, mesh, placements), mesh, placements,
             {.shape = x.sizes().vec()})
      .requires_grad_();
}

inline at::Tensor replicate(const at::Tensor& x, const DeviceMesh& mesh) {
  return distribute_tensor(
      x, mesh, Placements(static_cast<size_t>(mesh.ndim()), Replicate()),
      {.src_data_rank = std::nullopt});
}

/// Returns sum(w * sin(y)): its gradient differs from element to element.
inline at::Tensor loss_of(const at::Tensor& y) {
  const at::Tensor w = weights(y.sizes());
  return (y.sin() * (is_dtensor(y) ? replicate(w, device_mesh(y)) : w)).sum();
}

inline double value_of(const at::Tensor& loss) {
  return plain(loss).item<double>();
}

}  // namespace tessera::testing
