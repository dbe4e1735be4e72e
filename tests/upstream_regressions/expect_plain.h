// What tests of known bugs share: leaves and parts in given placements, and the
// comparison of an operator on them with the plain one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <tensor/cut.h>

namespace tessera::testing {

/// A leaf in these placements.
inline at::Tensor leaf(
    const at::Tensor& value, const DeviceMesh& mesh, const std::string& text) {
  return cut(value, mesh, text).requires_grad_();
}

/// A tensor of which rank r has the addend (or candidate) `of(r)`.
template <class F>
at::Tensor parts(const DeviceMesh& mesh, const Placement& placement, F of) {
  return from_local(of(rank()), mesh, {placement});
}

/// Values and gradients of `op` on a tensor in each of the placements equal the
/// plain ones.
inline void expect_plain(
    int ranks, const std::vector<int64_t>& shape, const at::Tensor& value,
    const std::vector<std::string>& layouts,
    const std::function<at::Tensor(const at::Tensor&)>& op) {
  run_ranks(ranks, [&] {
    const auto mesh = mesh_of(shape);
    for (const std::string& text : layouts) {
      SCOPED_TRACE(text);
      auto t = leaf(value, mesh, text);
      auto p = value.clone().requires_grad_();
      const at::Tensor got = op(t), want = op(p);
      EXPECT_TRUE(close(got, want));
      if (!want.requires_grad()) {
        continue;
      }
      const at::Tensor weights = distinct(want.sizes()).add(1.5);
      (want * weights).sum().backward();
      const ImplicitReplication guard;
      (got * weights).sum().backward();
      ASSERT_EQ(t.grad().defined(), p.grad().defined());
      EXPECT_TRUE(!p.grad().defined() || close(t.grad(), p.grad()));
    }
  });
}

}  // namespace tessera::testing
