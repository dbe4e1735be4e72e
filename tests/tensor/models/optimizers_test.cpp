// Optimizers step on cut parameters as on plain ones, without communication.
#include <tensor/models/expect_model.h>

#include <functional>

namespace tessera {
namespace {

using testing::close;
using testing::Counts;
using testing::counts_of;
using testing::error_of;
using testing::mesh_of;
using testing::small;

using List = std::vector<at::Tensor>;

// Parameters as they lie in the models above, an uneven one among them.
const std::vector<std::pair<std::vector<int64_t>, const char*>> kParameters = {
    {{6, 4}, "S(0)"}, {{4, 6}, "S(1)"}, {{5, 3}, "S(0)"},
    {{4}, "R"},       {{7}, "S(0)"},    {{1, 2}, "S(0)"}};

List parameters(const DeviceMesh* mesh, double shift) {
  List list;
  for (const auto& [shape, where] : kParameters) {
    const at::Tensor value = small(shape, shift += 0.1);
    list.push_back(
        mesh == nullptr
            ? value
            : distribute_tensor(value, *mesh, parse_placements(where)));
  }
  return list;
}

// Steps both optimizers with equal gradients; on the mesh nothing may move.
template <class Optimizer, class Options>
void expect_steps(const Options& options, const DeviceMesh& mesh) {
  List plain = parameters(nullptr, 0), cut = parameters(&mesh, 0);
  for (List* list : {&plain, &cut}) {
    for (at::Tensor& p : *list) {
      p.set_requires_grad(true);
    }
  }
  Optimizer want(plain, options), got(cut, options);
  for (int step = 0; step < 3; ++step) {
    const List gradients = parameters(nullptr, step);
    const List cut_gradients = parameters(&mesh, step);
    for (size_t i = 0; i < plain.size(); ++i) {
      plain[i].mutable_grad() = gradients[i];
      cut[i].mutable_grad() = cut_gradients[i];
    }
    want.step();
    const StrictMode strict({.communication = true, .fallbacks = true});
    const CommLog log;
    EXPECT_EQ(error_of([&] { got.step(); }), "");
    EXPECT_EQ(counts_of(log), Counts{}) << log;
  }
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(close(cut[i], plain[i], 1e-12)) << i;
  }
}

// What is done to each element of a parameter needs that element of its
// gradient and state, which lie on the same rank.
TEST(Optimizers, OfLibTorchStepWithoutCommunication) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    using namespace torch::optim;  // NOLINT(google-build-using-namespace)
    expect_steps<SGD>(SGDOptions(0.1), mesh);
    expect_steps<SGD>(
        SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01), mesh);
    expect_steps<SGD>(SGDOptions(0.1).momentum(0.9).dampening(0.1), mesh);
    expect_steps<Adam>(AdamOptions(0.01), mesh);
    expect_steps<Adam>(AdamOptions(0.01).amsgrad(true).weight_decay(0.1), mesh);
    expect_steps<AdamW>(AdamWOptions(0.01).weight_decay(0.1), mesh);
    expect_steps<AdamW>(AdamWOptions(0.01).amsgrad(true), mesh);
    expect_steps<RMSprop>(
        RMSpropOptions(0.01).momentum(0.5).centered(true), mesh);
    expect_steps<Adagrad>(AdagradOptions(0.1).lr_decay(0.1), mesh);
  });
}

// What a step reads and writes: one list per kind of state.
struct State {
  List params, grads, first, second, top, steps;
};

State state_of(const DeviceMesh* mesh) {
  const auto squares = [](List list) {
    for (at::Tensor& t : list) {
      t = t.square();
    }
    return list;
  };
  State state{parameters(mesh, 0),          parameters(mesh, 1),
              parameters(mesh, 2),          squares(parameters(mesh, 3)),
              squares(parameters(mesh, 4)), {}};
  for (size_t i = 0; i < state.params.size(); ++i) {
    const at::Tensor step = at::full({}, 3.0, testing::f32());
    state.steps.push_back(
        mesh == nullptr ? step : distribute_tensor(step, *mesh, {Replicate()}));
  }
  return state;
}

using Step = std::function<void(State&)>;

void expect_step(const char* name, const Step& step) {
  run_ranks(2, [&] {
    SCOPED_TRACE(name);
    const auto mesh = mesh_of({2});
    State want = state_of(nullptr), got = state_of(&mesh);
    for (int round = 0; round < 2; ++round) {
      step(want);
      const StrictMode strict({.communication = true, .fallbacks = true});
      const CommLog log;
      ASSERT_EQ(error_of([&] { step(got); }), "");
      EXPECT_EQ(counts_of(log), Counts{}) << log;
    }
    for (size_t i = 0; i < want.params.size(); ++i) {
      EXPECT_TRUE(close(got.params[i], want.params[i], 1e-12)) << i;
      EXPECT_TRUE(close(got.first[i], want.first[i], 1e-12)) << i;
      EXPECT_TRUE(close(got.second[i], want.second[i], 1e-12)) << i;
      EXPECT_TRUE(close(got.top[i], want.top[i], 1e-12)) << i;
      EXPECT_EQ(to_string(placements(got.params[i])), kParameters[i].second);
    }
  });
}

// The steps that Python's foreach optimizers make of at::_foreach_*.
TEST(Optimizers, OfForeachOperatorsStepWithoutCommunication) {
  expect_step("sgd", [](State& s) {
    const auto decayed = at::_foreach_add(s.grads, s.params, 0.01);
    at::_foreach_mul_(s.first, 0.9);
    at::_foreach_add_(s.first, decayed, 0.9);
    at::_foreach_add_(s.params, s.first, -0.1);
  });
  const auto adam = [](bool decoupled) {
    return [decoupled](State& s) {
      at::_foreach_add_(s.steps, 1);
      List grads = s.grads;
      if (decoupled) {
        at::_foreach_mul_(s.params, 1 - 0.01 * 0.1);
      } else {
        grads = at::_foreach_add(s.grads, s.params, 0.1);
      }
      at::_foreach_lerp_(s.first, grads, 0.1);
      at::_foreach_mul_(s.second, 0.99);
      at::_foreach_addcmul_(s.second, grads, grads, 0.01);
      at::_foreach_maximum_(s.top, s.second);
      auto root = at::_foreach_sqrt(s.top);
      const std::vector<at::Scalar> corrections(s.params.size(), 0.7);
      at::_foreach_div_(root, corrections);
      at::_foreach_add_(root, 1e-8);
      const std::vector<at::Scalar> rates(s.params.size(), -0.01);
      at::_foreach_addcdiv_(s.params, s.first, root, rates);
    };
  };
  expect_step("adam", adam(false));
  expect_step("adamw", adam(true));
  expect_step("zero", [](State& s) {
    at::_foreach_copy_(s.first, s.grads);
    at::_foreach_neg_(s.second);
    at::_foreach_reciprocal_(s.second);
    at::_foreach_clamp_min_(s.second, -5);
    at::_foreach_pow_(s.top, 2);
    at::_foreach_zero_(s.grads);
    at::_foreach_sub_(s.params, s.first, 0.5);
  });
}

TEST(Optimizers, OfFusedOperatorsStepWithoutCommunication) {
  const auto fused = [](auto op, bool amsgrad) {
    return [op, amsgrad](State& s) {
      op(s.params, s.grads, s.first, s.second, amsgrad ? s.top : List{},
         s.steps, amsgrad);
    };
  };
  const auto adam = [](const List& params, const List& grads, const List& first,
                       const List& second, const List& top, const List& steps,
                       bool amsgrad) {
    at::_fused_adam_(
        params, grads, first, second, top, steps, 0.01, 0.9, 0.99, 0.1, 1e-8,
        amsgrad, false);
  };
  const auto adamw = [](const List& params, const List& grads,
                        const List& first, const List& second, const List& top,
                        const List& steps, bool amsgrad) {
    at::_fused_adamw_(
        params, grads, first, second, top, steps, 0.01, 0.9, 0.99, 0.1, 1e-8,
        amsgrad, true);
  };
  expect_step("adam", fused(adam, false));
  expect_step("adam, amsgrad", fused(adam, true));
  expect_step("adamw", fused(adamw, false));
  expect_step("adamw, amsgrad", fused(adamw, true));
  // A rate that is a plain tensor of one element, whatever its shape.
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{}, {1}, {1, 1}}) {
    const at::Tensor rate = at::full(shape, 0.01, testing::f64());
    expect_step("adam, tensor_lr", [rate](State& s) {
      at::_fused_adam_(
          s.params, s.grads, s.first, s.second, s.top, s.steps, rate, 0.9, 0.99,
          0.1, 1e-8, true, false);
    });
    expect_step("adamw, tensor_lr", [rate](State& s) {
      at::_fused_adamw_(
          s.params, s.grads, s.first, s.second, {}, s.steps, rate, 0.9, 0.99,
          0.1, 1e-8, false, true);
    });
    expect_step("sgd, tensor_lr", [rate](State& s) {
      at::_fused_sgd_(
          s.params, s.grads, s.first, 0.01, 0.9, rate, 0.2, true, false, false);
    });
  }
  expect_step("sgd", [](State& s) {
    at::_fused_sgd_(
        s.params, s.grads, s.first, 0.01, 0.9, 0.1, 0.2, true, false, false);
  });
  expect_step("adagrad", [](State& s) {
    at::_fused_adagrad_(
        s.params, s.grads, s.second, s.steps, 0.1, 0.01, 0.1, 1e-8, false);
  });
}

// A gradient that is still a sum, or lies in another way, is reduced by its
// leaf; the step itself has nothing left to do.
TEST(Optimizers, StepAfterABackwardWithoutCommunication) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto w = distribute_tensor(small({6, 4}, 0.1), mesh, {Replicate()});
    w.set_requires_grad(true);
    const auto x = distribute_tensor(small({8, 4}, 0.3), mesh, {Shard(0)});
    torch::optim::AdamW optimizer({w}, torch::optim::AdamWOptions(0.1));
    at::linear(x, w).square().sum().backward();
    const StrictMode strict({.communication = true, .fallbacks = true});
    EXPECT_EQ(error_of([&] { optimizer.step(); }), "");
  });
}

}  // namespace
}  // namespace tessera
