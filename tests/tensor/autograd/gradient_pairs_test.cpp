// Every conversion, through every pair of placements: first and second
// derivatives against central differences.
#include "numeric_gradient.h"

namespace tessera {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

using Build = std::function<at::Tensor(const at::Tensor& leaf)>;
using MakeLeaf = std::function<at::Tensor(const at::Tensor& x)>;

at::Tensor gradient_by(const at::Tensor& loss, const at::Tensor& leaf) {
  return torch::autograd::grad({loss}, {leaf}, {}, true, true)[0];
}

at::Tensor along(const at::Tensor& gradient) {
  return (gradient *
          replicate(direction(gradient.sizes()), device_mesh(gradient)))
      .sum();
}

// The first derivative by backward() and by grad(), element by element.
void check_first(
    const MakeLeaf& make, const Build& build, const at::Tensor& x) {
  const GlobalScalar f = [&](const at::Tensor& at) {
    c10::NoGradGuard no_grad;
    return value_of(build(make(at)));
  };
  const at::Tensor numeric = numeric_gradient(f, x);
  const at::Tensor leaf = make(x);
  build(leaf).backward();
  ASSERT_TRUE(is_dtensor(leaf.grad()));
  EXPECT_EQ(placements(leaf.grad()), placements(leaf));
  EXPECT_TRUE(close(leaf.grad(), numeric, kTolerance));
}

// The second derivative: the gradient of the slope of the gradient.
void check_second(
    const MakeLeaf& make, const Build& build, const at::Tensor& x) {
  const GlobalScalar slope = [&](const at::Tensor& at) {
    const at::Tensor leaf = make(at);
    return value_of(along(torch::autograd::grad({build(leaf)}, {leaf})[0]));
  };
  const at::Tensor v = distinct(x.sizes()).cos();
  const double numeric = numeric_slope(slope, x, v);
  const at::Tensor leaf = make(x);
  const at::Tensor gradient = gradient_by(build(leaf), leaf);
  EXPECT_EQ(placements(gradient), placements(leaf));
  along(gradient).backward();
  ASSERT_TRUE(is_dtensor(leaf.grad()));
  EXPECT_EQ(placements(leaf.grad()), placements(leaf));
  const double got = plain(leaf.grad()).mul(v).sum().item<double>();
  EXPECT_NEAR(got, numeric, 1e-6);
}

// Calls f(mesh, from, to) for every pair, on the ranks of each case.
template <class From, class F>
void for_each_pair(const std::vector<GradientCase>& cases, From from, F f) {
  for (const GradientCase& c : cases) {
    run_ranks(c.ranks(), [&] {
      const auto mesh = mesh_of(c.mesh);
      for (const Placements& a : from(c)) {
        for (const Placements& b : all_placements(c)) {
          SCOPED_TRACE(
              shape_to_string(c.shape) + " " + to_string(a) + " -> " +
              to_string(b) + " on " + to_string(mesh) + ", rank " +
              std::to_string(rank()));
          f(mesh, a, b, distinct(c.shape));
          if (::testing::Test::HasFailure()) {
            return;
          }
        }
      }
    });
  }
}

void check_redistribute(
    const DeviceMesh& mesh, const Placements& from, const Placements& to,
    const at::Tensor& x) {
  const MakeLeaf make = [&](const at::Tensor& at) {
    return leaf_of(at, mesh, from);
  };
  const Build build = [&](const at::Tensor& leaf) {
    return loss_of(redistribute(leaf, to));
  };
  check_first(make, build, x);
  check_second(make, build, x);
}

TEST(RedistributeGradient, IsTheNumericOneOnOneDimMeshes) {
  for_each_pair(one_dim_cases(), all_placements, check_redistribute);
}
TEST(RedistributeGradient, IsTheNumericOneOnTwoDimMeshes) {
  for_each_pair(two_dim_cases(), all_placements, check_redistribute);
}

// From a mesh of four in a row to one of two by two, and back.
TEST(RedistributeGradient, IsTheNumericOneAcrossMeshes) {
  const std::vector<int64_t> shape = {3, 2};
  run_ranks(4, [&] {
    const auto row = mesh_of({4});
    const auto square = mesh_of({2, 2});
    const auto check = [&](const DeviceMesh& a, const Placements& from,
                           const DeviceMesh& b, const Placements& to) {
      SCOPED_TRACE(to_string(from) + " -> " + to_string(to));
      check_first(
          [&](const at::Tensor& at) { return leaf_of(at, a, from); },
          [&](const at::Tensor& leaf) {
            return loss_of(redistribute(leaf, b, to));
          },
          distinct(shape));
    };
    for (const Placements& p : all_placements({{4}, shape})) {
      for (const char* text :
           {"R R", "S(0) S(0)", "S(1) R", "P(sum) S(0)", "P(avg) P(sum)",
            "P(max) R"}) {
        check(row, p, square, parse_placements(text));
        check(square, parse_placements(text), row, p);
      }
    }
  });
}

// sin() of an addend is no function of the sum, so addends are scaled instead.
at::Tensor use_locally(const at::Tensor& local, const Placements& placements) {
  for (const Placement& p : placements) {
    if (p.is_partial()) {
      return local * 1.7;
    }
  }
  return local.mul(1.3).sin();
}

void check_to_local(
    const DeviceMesh& mesh, const Placements& from, const Placements& to,
    const at::Tensor& x) {
  const MakeLeaf make = [&](const at::Tensor& at) {
    return leaf_of(at, mesh, from);
  };
  const Build build = [&](const at::Tensor& leaf) {
    const at::Tensor used = use_locally(to_local(leaf), from);
    const at::Tensor again =
        from_local(used, mesh, from, {.shape = x.sizes().vec()});
    return loss_of(redistribute(again, to));
  };
  check_first(make, build, x);
  check_second(make, build, x);
}

TEST(ToLocalGradient, IsTheNumericOneOnOneDimMeshes) {
  for_each_pair(one_dim_cases(), placements_with_default, check_to_local);
}
TEST(ToLocalGradient, IsTheNumericOneOnTwoDimMeshes) {
  for_each_pair(two_dim_cases(), placements_with_default, check_to_local);
}

void check_distribute_tensor(
    const DeviceMesh& mesh, const Placements& from, const Placements& to,
    const at::Tensor& x) {
  const MakeLeaf make = [&](const at::Tensor& at) {
    const at::Tensor mine = rank() == 0 ? at.clone() : at::zeros_like(at);
    return distribute_tensor(mine.requires_grad_(), mesh, from);
  };
  const Build build = [&](const at::Tensor& leaf) {
    return loss_of(redistribute(leaf, to));
  };
  check_first(make, build, x);
  check_second(make, build, x);
}

TEST(DistributeTensorGradient, IsTheNumericOneOnOneDimMeshes) {
  for_each_pair(one_dim_cases(), all_placements, check_distribute_tensor);
}
TEST(DistributeTensorGradient, IsTheNumericOneOnTwoDimMeshes) {
  for_each_pair({{{2, 2}, {1, 3}}}, all_placements, check_distribute_tensor);
}

// Every rank uses the whole value alike: the gradient is replicated.
TEST(FullTensorGradient, IsTheNumericOneOnEveryPlacement) {
  for (const auto& cases : {one_dim_cases(), two_dim_cases()}) {
    for (const GradientCase& c : cases) {
      run_ranks(c.ranks(), [&] {
        const auto mesh = mesh_of(c.mesh);
        for (const Placements& from : all_placements(c)) {
          SCOPED_TRACE(to_string(from) + " on " + to_string(mesh));
          const MakeLeaf make = [&](const at::Tensor& at) {
            return leaf_of(at, mesh, from);
          };
          const Build build = [&](const at::Tensor& leaf) {
            return loss_of(full_tensor(leaf));
          };
          check_first(make, build, distinct(c.shape));
          check_second(make, build, distinct(c.shape));
        }
      });
    }
  }
}

// Says which addend of which element an experiment changes.
struct Nudge {
  std::vector<int64_t> addend;  // coordinates along the Partial mesh dims
  int64_t element = -1;
  double by = 0;
};

// The plain tensors that from_local() is given: shards, copies and addends.
class Locals {
 public:
  Locals(const DeviceMesh& mesh, const Placements& placements, at::Tensor x)
      : mesh_(mesh), placements_(placements), x_(std::move(x)) {
    Placements copies = placements;
    addends_ = {{}};
    for (size_t m = 0; m < placements.size(); ++m) {
      if (!placements[m].is_partial()) {
        continue;
      }
      copies[m] = Replicate();
      const auto dim = static_cast<int64_t>(m);
      mine_.push_back(mesh.local_rank(dim));
      std::vector<std::vector<int64_t>> longer;
      for (const auto& prefix : addends_) {
        for (int64_t c = 0; c < mesh.size(dim); ++c) {
          longer.push_back(prefix);
          longer.back().push_back(c);
        }
      }
      addends_ = longer;
    }
    ids_ = shard_of(counting(x_.sizes()), mesh, copies);
  }

  at::Tensor local(const Nudge& nudge = {}) const {
    const at::Tensor shard = shard_of(x_, mesh_, placements_);
    return nudge.addend == mine_ && nudge.element >= 0
               ? shard + ids_.eq(nudge.element) * nudge.by
               : shard;
  }

  /// The derivative of f(local) by this rank's own local tensor.
  at::Tensor numeric(const std::function<double(const at::Tensor&)>& f) const {
    const at::Tensor gradient = at::zeros_like(ids_);
    for (const auto& addend : addends_) {
      for (int64_t i = 0; i < x_.numel(); ++i) {
        const double slope =
            (f(local({addend, i, kStep})) - f(local({addend, i, -kStep}))) /
            (2 * kStep);
        if (addend == mine_) {
          gradient.masked_fill_(ids_.eq(i), slope);
        }
      }
    }
    return gradient;
  }

 private:
  const DeviceMesh& mesh_;
  const Placements& placements_;
  at::Tensor x_;
  at::Tensor ids_;  // the global index of each local element
  std::vector<int64_t> mine_;
  std::vector<std::vector<int64_t>> addends_;
};

void check_from_local(
    const DeviceMesh& mesh, const Placements& from, const Placements& to,
    const at::Tensor& x) {
  const auto build = [&](const at::Tensor& local) {
    return loss_of(redistribute(
        from_local(local.mul(0.9), mesh, from, {.shape = x.sizes().vec()}),
        to));
  };
  const Locals locals(mesh, from, x);
  const at::Tensor numeric = locals.numeric([&](const at::Tensor& local) {
    c10::NoGradGuard no_grad;
    return value_of(build(local));
  });
  const at::Tensor leaf = locals.local().requires_grad_();
  build(leaf).backward();
  EXPECT_TRUE(close(leaf.grad(), numeric, kTolerance));
}

TEST(FromLocalGradient, IsTheNumericOneOnOneDimMeshes) {
  for_each_pair(one_dim_cases(), placements_with_default, check_from_local);
}
TEST(FromLocalGradient, IsTheNumericOneOnTwoDimMeshes) {
  for_each_pair({{{2, 2}, {3, 2}}}, placements_with_default, check_from_local);
}

// The slope of the first derivative, as a function of the local tensors: that
// of a shard of a sharded tensor, Replicate where the addends are.
void check_from_local_second(
    const DeviceMesh& mesh, const Placements& from, const Placements& to,
    const at::Tensor& x) {
  Placements copies = from;
  for (Placement& p : copies) {
    p = p.is_partial() ? Replicate() : p;
  }
  const FromLocalOptions shape = {.shape = x.sizes().vec()};
  const auto slope = [&](const at::Tensor& local) {
    const auto loss =
        loss_of(redistribute(from_local(local, mesh, from, shape), to));
    const auto gradient = gradient_by(loss, local);
    return along(from_local(gradient, mesh, copies, shape));
  };
  const Locals locals(mesh, from, x);
  const at::Tensor numeric = locals.numeric([&](const at::Tensor& local) {
    return value_of(slope(local.detach().requires_grad_()));
  });
  const at::Tensor leaf = locals.local().requires_grad_();
  slope(leaf).backward();
  EXPECT_TRUE(close(leaf.grad(), numeric, kTolerance));
}

TEST(FromLocalGradient, OfSecondOrderIsTheNumericOne) {
  for_each_pair(
      {{{2}, {3, 2}}, {{3}, {2, 2}}}, placements_with_default,
      check_from_local_second);
  for_each_pair(
      {{{2, 2}, {1, 2}}}, placements_with_default, check_from_local_second);
}

}  // namespace
}  // namespace tessera
