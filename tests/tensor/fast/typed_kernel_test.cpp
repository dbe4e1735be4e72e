// Calls without a stack: they are those of common signatures, and give what
// boxed ones give.
#include <harness/sharded_test.h>

#include <functional>

#include <tensor/fast/thread_dispatch.h>

namespace tessera {
namespace {

using testing::close;
using testing::distinct;
using testing::mesh_of;

int64_t typed_calls() {
  return detail::ThreadDispatch::here().typed_calls;
}

struct Call {
  const char* name;
  /// Gets [4, 6], [4, 6] and [6, 6].
  std::function<at::Tensor(
      const at::Tensor&, const at::Tensor&, const at::Tensor&)>
      run;
  /// Calls without a stack, counting those that ATen decomposes.
  int64_t typed = 1;
};

using T = const at::Tensor&;

// One for every signature.
std::vector<Call> calls() {
  return {
      {"relu", [](T a, T, T) { return at::relu(a); }},
      {"relu_", [](T a, T, T) { return a.clone().relu_(); }},
      {"detach", [](T a, T, T) { return a.detach(); }},
      {"t", [](T a, T, T) { return a.t(); }},
      {"mm", [](T a, T, T w) { return at::mm(a, w); }},
      {"add", [](T a, T b, T) { return at::add(a, b, 2); }},
      {"mul_", [](T a, T b, T) { return a.clone().mul_(b); }},
      {"add_", [](T a, T b, T) { return a.clone().add_(b, 3); }},
      {"pow", [](T a, T, T) { return at::pow(a, 2); }},
      {"mul by a number", [](T a, T, T) { return a.clone().mul_(2); }},
      {"add a number", [](T a, T, T) { return at::add(a, 2, 3); }},
      {"add a number in place", [](T a, T, T) { return a.clone().add_(2, 3); }},
      {"where", [](T a, T b, T) { return at::where(a.gt(3), a, b); }, 2},
      {"addcmul", [](T a, T b, T) { return at::addcmul(a, a, b, 2); }},
      {"addcmul_", [](T a, T b, T) { return a.clone().addcmul_(a, b, 2); }},
      {"addmm", [](T a, T b, T w) { return at::addmm(b, a, w, 2, 3); }},
      {"transpose", [](T a, T, T) { return a.transpose(0, 1); }},
      {"unsqueeze", [](T a, T, T) { return a.unsqueeze(1); }},
      {"permute",
       [](T a, T, T) {
         return a.permute({1, 0});
       }},
      {"view",
       [](T a, T, T) {
         return a.view({4, 3, 2});
       }},
      {"expand",
       [](T a, T, T) {
         return a.expand({2, 4, 6});
       }},
      {"select", [](T a, T, T) { return a.select(1, 2); }},
      {"slice", [](T a, T, T) { return a.slice(1, 1, 5, 2); }},
      {"split", [](T a, T, T) { return a.split(2, 1)[1]; }},
      {"_softmax", [](T a, T, T) { return at::_softmax(a, 1, false); }},
      {"_softmax_backward_data",
       [](T a, T b, T) {
         return at::_softmax_backward_data(a, b, 1, at::kDouble);
       }},
      {"softmax", [](T a, T, T) { return at::softmax(a, 1); }, 2},
      {"sum", [](T a, T, T) { return at::sum(a, at::kDouble); }},
      {"sum of a dim", [](T a, T, T) { return at::sum(a, {1}, true); }},
      {"gelu", [](T a, T, T) { return at::gelu(a, "tanh"); }},
      {"gelu_backward",
       [](T a, T b, T) { return at::gelu_backward(a, b, "tanh"); }},
      {"cat",
       [](T a, T b, T) {
         return at::cat({a, b}, 1);
       }},
      {"stack",
       [](T a, T b, T) {
         return at::stack({a, b}, 1);
       }},
      {"native_layer_norm",
       [](T a, T, T w) {
         return std::get<0>(
             at::native_layer_norm(a, {6}, w.select(0, 1), {}, 1e-5));
       },
       2},
      {"native_layer_norm_backward",
       [](T a, T b, T w) {
         const auto mean = b.sum({1}, true);
         return std::get<1>(at::native_layer_norm_backward(
             a, b, {6}, mean, mean, w.select(0, 1), {}, {true, true, false}));
       },
       3},
      {"layer_norm", [](T a, T, T) { return at::layer_norm(a, {6}); }, 2},
      {"linear", [](T a, T, T w) { return at::linear(a, w); }, 3},
      // ATen decomposes it, and has another kernel for most backends.
      {"silu_backward", [](T a, T b, T) { return at::silu_backward(a, b); }, 0},
  };
}

struct Operands {
  at::Tensor a = distinct({4, 6});
  at::Tensor b = distinct({4, 6}).add(0.5);
  at::Tensor w = distinct({6, 6}).sub(9);
};

TEST(TypedCall, EverySignatureIsServedAndRight) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    const Operands plain;
    for (const Placement& placement : {Placement(Shard(0)), Replicate()}) {
      const at::Tensor a = distribute_tensor(plain.a, mesh, {placement});
      const at::Tensor b = distribute_tensor(plain.b, mesh, {placement});
      const at::Tensor w = distribute_tensor(plain.w, mesh, {Replicate()});
      for (const Call& call : calls()) {
        SCOPED_TRACE(call.name);
        const at::Tensor expected = call.run(plain.a, plain.b, plain.w);
        call.run(a, b, w);  // is decided
        const int64_t before = typed_calls();
        const at::Tensor result = call.run(a, b, w);
        EXPECT_GE(typed_calls() - before, call.typed);
        ASSERT_TRUE(close(full_tensor(result), expected));
        EXPECT_EQ(result.strides(), expected.strides());
        EXPECT_EQ(result.is_contiguous(), expected.is_contiguous());
        EXPECT_EQ(
            result.is_non_overlapping_and_dense(),
            expected.is_non_overlapping_and_dense());
      }
    }
  });
}

TEST(TypedCall, ResultsOnUnevenAndEmptyShardsAreRight) {
  run_ranks(3, [] {
    const DeviceMesh mesh = mesh_of({3});
    for (const int64_t rows : {1, 2, 4, 5}) {
      const at::Tensor plain = distinct({rows, 6});
      const at::Tensor a = distribute_tensor(plain, mesh, {Shard(0)});
      for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(close(full_tensor(at::add(a, a)), plain + plain));
        ASSERT_TRUE(
            close(full_tensor(a.view({rows, 2, 3})), plain.view({rows, 2, 3})));
        ASSERT_TRUE(close(full_tensor(at::sum(a, {0})), plain.sum(0)));
      }
    }
  });
}

TEST(TypedCall, OtherStaticArgumentsMeetOtherDecisions) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    const at::Tensor plain = distinct({4, 6});
    const at::Tensor a = distribute_tensor(plain, mesh, {Shard(0)});
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(close(full_tensor(a.view({4, 6, 1})), plain.view({4, 6, 1})));
      EXPECT_TRUE(close(full_tensor(a.view({4, 1, 6})), plain.view({4, 1, 6})));
      EXPECT_TRUE(close(full_tensor(at::sum(a, {1})), plain.sum(1)));
      EXPECT_TRUE(close(full_tensor(at::sum(a, {0})), plain.sum(0)));
      EXPECT_TRUE(
          close(full_tensor(at::sum(a, {1}, true)), plain.sum(1, true)));
      EXPECT_TRUE(close(full_tensor(a.select(1, 0)), plain.select(1, 0)));
      EXPECT_TRUE(close(full_tensor(a.select(1, 5)), plain.select(1, 5)));
      EXPECT_TRUE(
          close(full_tensor(at::gelu(a, "tanh")), at::gelu(plain, "tanh")));
      EXPECT_TRUE(
          close(full_tensor(at::gelu(a, "none")), at::gelu(plain, "none")));
    }
  });
}

TEST(TypedCall, AViewThatTheShardDoesNotPermitIsTakenOfACopy) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    // The shard lies otherwise in memory than the global strides say.
    const at::Tensor shard = distinct({6, 2}).t();
    const at::Tensor a = from_local(shard, mesh, {Shard(0)});
    const at::Tensor plain = full_tensor(a).contiguous();
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(close(
          full_tensor(a.contiguous().view({4, 2, 3})), plain.view({4, 2, 3})));
      ASSERT_TRUE(
          close(full_tensor(a.reshape({4, 2, 3})), plain.view({4, 2, 3})));
    }
  });
}

TEST(TypedCall, MixesOfPlainAndShardedAreRefusedEveryTime) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    const at::Tensor plain = distinct({4, 6});
    const at::Tensor a = distribute_tensor(plain, mesh, {Shard(0)});
    at::add(a, a);
    for (int i = 0; i < 3; ++i) {
      EXPECT_ERROR("plain", at::add(a, plain));
      EXPECT_ERROR("plain", at::linear(a, plain.view({4, 6})));
    }
  });
}

TEST(TypedCall, GradientsFlow) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    for (int i = 0; i < 3; ++i) {
      const at::Tensor p = distinct({6, 6}).requires_grad_();
      const at::Tensor w =
          distribute_tensor(p.detach(), mesh, {Shard(0)}).requires_grad_();
      const at::Tensor x = distinct({4, 6});
      const at::Tensor plain = at::gelu(at::linear(x, p)).t().sum(0).sum();
      const at::Tensor sharded =
          at::gelu(at::linear(distribute_tensor(x, mesh, {Replicate()}), w))
              .t()
              .sum(0)
              .sum();
      plain.backward();
      sharded.backward();
      EXPECT_TRUE(close(full_tensor(w.grad()), p.grad()));
      EXPECT_EQ(placements(w.grad()), placements(w));
    }
  });
}

// A derivative formula may return zeros that have no memory.
TEST(TypedCall, ZerosWithoutMemoryMeetNoKeysOfOthers) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    const at::Tensor x = distribute_tensor(distinct({4, 6}), mesh, {Shard(0)});
    for (const bool zero_first : {true, false}) {
      detail::ThreadDispatch::here().cache.clear();
      for (int i = 0; i < 4; ++i) {
        const bool zero = (i % 2 == 0) == zero_first;
        const at::Tensor w = ones({4, 6}, mesh, {Shard(0)}).to(at::kDouble);
        w.requires_grad_();
        const at::Tensor local = to_local(w * x);
        (zero ? local.sgn() : local * 1).sum().backward();
        const at::Tensor wanted =
            zero ? at::zeros({4, 6}, testing::f64()) : distinct({4, 6});
        EXPECT_TRUE(close(w.grad(), wanted)) << zero_first << " " << i;
      }
    }
  });
}

TEST(TypedCall, AliasesOfLeavesHaveGradientsInTheLeavesPlacements) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    for (int i = 0; i < 3; ++i) {
      const at::Tensor w = ones({4, 6}, mesh, {Shard(0)}).requires_grad_();
      const at::Tensor x = ones({6, 4}, mesh, {Shard(1)});
      at::mm(x, at::alias(w)).sum().backward();
      EXPECT_EQ(placements(w.grad()), placements(w));
    }
  });
}

TEST(TypedCall, ANumberOnAnotherDeviceIsAnErrorAndNothingMore) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    const at::Tensor a = ones({4, 6}, mesh, {Shard(0)});
    for (int i = 0; i < 3; ++i) {
      const at::Tensor wrong = at::empty({}, at::kMeta);
      EXPECT_NE(testing::error_of([&] { full_tensor(a + wrong); }), "");
      EXPECT_TRUE(
          close(a + at::ones({}), at::full({4, 6}, 2.0, testing::f32())));
    }
  });
}

}  // namespace
}  // namespace tessera
