// make_dtensor_ and what LibTorch does to tensors behind our back: clone,
// set_data, to(), save and load, data pointers.
#include <harness/sharded_test.h>

#include <ATen/autocast_mode.h>
#include <sstream>

namespace tessera {
namespace {

using testing::close;
using testing::counting;
using testing::device;
using testing::distinct;
using testing::error_of;
using testing::f64;
using testing::mesh_of;
using testing::same;

TEST(MakeDtensor, ConvertsEveryHandle) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto t = counting({4, 2}).requires_grad_();
    const auto handle = t;
    const auto version = t._version();
    make_dtensor_(t, mesh, {Shard(0)});
    EXPECT_TRUE(is_dtensor(handle));
    EXPECT_TRUE(handle.requires_grad());
    EXPECT_TRUE(handle.is_leaf());
    EXPECT_GT(t._version(), version);
    EXPECT_EQ(to_local(handle).size(0), 2);
    EXPECT_TRUE(same(full_tensor(t), counting({4, 2})));
    handle.mul(3).sum().backward();
    EXPECT_TRUE(same(t.grad(), at::full({4, 2}, 3.0, f64())));
    EXPECT_EQ(to_string(placements(t.grad())), "S(0)");
  });
}

TEST(MakeDtensor, TakesTheSourceRanksValues) {
  run_ranks(3, [&] {
    auto t = counting({4}).add(static_cast<double>(rank()) * 10);
    make_dtensor_(t, mesh_of({3}), {Shard(0)}, {.src_data_rank = 2});
    EXPECT_TRUE(same(full_tensor(t), counting({4}).add(20)));
  });
}

TEST(MakeDtensor, ConvertsTiedWeightsOnce) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto weight = counting({4, 4});
    const auto tied = weight;
    make_dtensor_(weight, mesh, {Shard(0)});
    make_dtensor_(tied, mesh, {Shard(0)});
    make_dtensor_(tied, mesh, {Shard(-2)});
    EXPECT_TRUE(same(full_tensor(tied), counting({4, 4})));
    EXPECT_ERROR(
        "another layout already", make_dtensor_(tied, mesh, {Shard(1)}));
  });
}

TEST(MakeDtensor, ConvertsAnExistingGradient) {
  run_ranks(2, [&] {
    auto t = counting({4}).requires_grad_();
    t.mul(2).sum().backward();
    make_dtensor_(t, mesh_of({2}), {Shard(0)});
    EXPECT_TRUE(is_dtensor(t.grad()));
    t.mul(3).sum().backward();
    EXPECT_TRUE(same(t.grad(), at::full({4}, 5.0, f64())));
  });
}

TEST(MakeDtensor, RefusesViewsInferenceTensorsAndHistory) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto base = counting({4, 2});
    EXPECT_ERROR(
        "is a view", make_dtensor_(base.select(0, 1), mesh, {Shard(0)}));
    EXPECT_ERROR("is a view", make_dtensor_(base.t(), mesh, {Shard(0)}));
    at::Tensor frozen;
    {
      const c10::InferenceMode mode;
      frozen = counting({4});
    }
    EXPECT_ERROR("inference tensor", make_dtensor_(frozen, mesh, {Shard(0)}));
    const auto history = counting({4}).requires_grad_().mul(2);
    EXPECT_ERROR("must be a leaf", make_dtensor_(history, mesh, {Shard(0)}));
    EXPECT_ERROR("dim", make_dtensor_(base, mesh, {Shard(5)}));
    EXPECT_FALSE(is_dtensor(base));
  });
}

TEST(MakeDtensor, RefusesATensorSharedBetweenRanks) {
  const auto shared = counting({4, 2});
  EXPECT_ERROR(
      "every rank needs tensors and modules of its own", run_ranks(2, [&] {
        make_dtensor_(shared, mesh_of({2}), {Shard(0)});
        init().communicator().barrier();
        make_dtensor_(shared, mesh_of({2}), {Shard(0)});
      }));
}

TEST(DataPointers, GiveOurText) {
  run_ranks(2, [&] {
    const auto t = distribute_tensor(counting({4}), mesh_of({2}), {Shard(0)});
    const char* text = "use tessera::to_local(t)";
    EXPECT_ERROR(text, t.data_ptr());
    EXPECT_ERROR(text, t.const_data_ptr<double>());
    EXPECT_ERROR(text, t.accessor<double, 1>());
    EXPECT_ERROR(text, t.storage());
    EXPECT_ERROR(text, (t + 1).mutable_data_ptr());
    std::ostringstream out;
    EXPECT_ERROR(text, out << t);
    testing::one_at_a_time([&] {
      EXPECT_ERROR("tessera::checkpoint::save", torch::save(t, out));
    });
    auto copy = counting({4});
    make_dtensor_(copy, mesh_of({2}), {Replicate()});
    EXPECT_ERROR(text, copy.data_ptr());
  });
}

TEST(SetData, ExchangesShardedTensors) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto a =
        distribute_tensor(counting({4}), mesh, {Shard(0)}).requires_grad_();
    const auto b = distribute_tensor(counting({4}).add(10), mesh, {Shard(0)});
    a.set_data(b);
    EXPECT_TRUE(same(full_tensor(a), counting({4}).add(10)));
    EXPECT_TRUE(a.requires_grad());
    auto p = counting({4});
    p.set_data(b);
    EXPECT_TRUE(is_dtensor(p));
    EXPECT_TRUE(same(full_tensor(p), counting({4}).add(10)));
  });
}

TEST(Copy, CutsAPlainTensorOfTheGlobalShape) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    for (const char* layout : {"R", "S(0)", "S(1)", "P(sum)", "SS(0,2)"}) {
      SCOPED_TRACE(layout);
      auto t = zeros({5, 2}, mesh, parse_placements(layout), f64());
      t.copy_(counting({5, 2}));
      EXPECT_TRUE(same(t, counting({5, 2})));
      t.copy_(counting({2}));
      EXPECT_TRUE(same(t, counting({2}).expand({5, 2})));
      t.copy_(distribute_tensor(counting({5, 2}).add(1), mesh, {Shard(1)}));
      EXPECT_TRUE(same(t, counting({5, 2}).add(1)));
    }
    auto t = zeros({5, 2}, mesh, {Shard(0)}, f64());
    EXPECT_NE(error_of([&] { t.copy_(counting({4, 2})); }), "");
    auto p = counting({5, 2});
    EXPECT_ERROR("mixed", p.copy_(t));
  });
}

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { reset(); }
  void reset() override {
    linear = register_module(
        "linear", torch::nn::Linear(torch::nn::LinearOptions(4, 3)));
    scale = register_parameter("scale", torch::ones({3}));
    running = register_buffer("running", torch::zeros({3}));
    to(device(), at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) {
    return linear(x) * scale + running;
  }
  torch::nn::Linear linear{nullptr};
  at::Tensor scale, running;
};
TORCH_MODULE(Net);

TEST(Modules, CloneAndConvertWithTheirShards) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    Net net;
    auto module =
        distribute_module(net, mesh, [](const auto&, auto& m, const auto& on) {
          if (auto* linear = m.template as<torch::nn::Linear>()) {
            make_dtensor_(linear->weight, on, {Shard(0)});
          }
        });
    const auto weight = full_tensor(net->linear->weight.detach());
    auto copy = std::dynamic_pointer_cast<NetImpl>(net->clone());
    EXPECT_TRUE(is_dtensor(copy->linear->weight));
    EXPECT_TRUE(same(copy->linear->weight, weight));
    {
      torch::NoGradGuard guard;
      copy->linear->weight.mul_(2);
    }
    EXPECT_TRUE(same(net->linear->weight, weight));
    net->to(at::kFloat);
    EXPECT_EQ(net->linear->weight.scalar_type(), at::kFloat);
    EXPECT_EQ(to_string(placements(net->linear->weight)), "S(0)");
    EXPECT_TRUE(close(net->linear->weight, weight.to(at::kFloat), 1e-6));
    std::ostringstream out;
    testing::one_at_a_time([&] {
      EXPECT_ERROR(
          "tessera::checkpoint::save to save it", torch::save(net, out));
    });
  });
}

TEST(Modules, LoadAPlainCheckpointIntoTheirShards) {
  Net saved;
  std::ostringstream out;
  torch::save(saved, out);
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    Net net;
    distribute_parameters(*net, mesh, [](const auto&, auto& m, const auto& on) {
      if (auto* linear = m.template as<torch::nn::Linear>()) {
        make_dtensor_(linear->weight, on, {Shard(1)});
      }
    });
    std::istringstream in(out.str());
    testing::one_at_a_time([&] { torch::load(net, in); });
    EXPECT_TRUE(is_dtensor(net->linear->weight));
    EXPECT_EQ(to_string(placements(net->linear->weight)), "S(1)");
    EXPECT_TRUE(same(net->linear->weight, saved->linear->weight));
    EXPECT_TRUE(same(net->scale, saved->scale));
  });
}

TEST(Modes, BehaveAsOnPlainTensors) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto w =
        distribute_tensor(distinct({4, 4}), mesh, {Shard(0)}).requires_grad_();
    {
      torch::NoGradGuard guard;
      EXPECT_FALSE((w * 2).requires_grad());
    }
    {
      const c10::InferenceMode mode;
      const auto y = at::linear(w, w).softmax(1).sum(0);
      EXPECT_TRUE(close(
          y, at::linear(distinct({4, 4}), distinct({4, 4})).softmax(1).sum(0)));
    }
    const auto y = (w * 2).sum();
    y.backward({}, /*retain_graph=*/true);
    y.backward();
    EXPECT_TRUE(same(w.grad(), at::full({4, 4}, 4.0, f64())));
    const auto x =
        distribute_tensor(distinct({4, 4}, testing::f32()), mesh, {Shard(0)});
    const auto type = device();
    at::autocast::set_autocast_enabled(type, true);
    at::autocast::set_autocast_dtype(type, at::kBFloat16);
    const auto half = at::linear(x, x);
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(type, false);
    EXPECT_EQ(half.scalar_type(), at::kBFloat16);
  });
}

TEST(Hooks, OfTheUserRunBesideOurs) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto w =
        distribute_tensor(distinct({4}), mesh, {Shard(0)}).requires_grad_();
    int calls = 0;
    w.register_hook([&](const at::Tensor& g) {
      ++calls;
      return g * 10;
    });
    (w * 2).sum().backward();
    EXPECT_EQ(calls, 1);
    EXPECT_TRUE(same(w.grad(), at::full({4}, 20.0, f64())));
    EXPECT_EQ(to_string(placements(w.grad())), "S(0)");
    const auto g = torch::autograd::grad({w.sum()}, {w})[0];
    EXPECT_EQ(to_string(placements(g)), "S(0)");
  });
}

}  // namespace
}  // namespace tessera
