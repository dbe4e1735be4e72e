// DeferredInit as a guard: what it defers, shares and refuses.
#include "modules.h"

namespace tessera {
namespace {

namespace nn = torch::nn;
using testing::error_of;
using testing::mesh_of;
using testing::same;

nn::Linear deferred_linear() {
  const DeferredInit later;
  return nn::Linear(4, 6);
}

TEST(DeferredInit, MakesTensorsWithoutMemory) {
  nn::Linear linear = deferred_linear();
  EXPECT_TRUE(is_deferred(linear->weight));
  EXPECT_EQ(linear->weight.sizes(), at::IntArrayRef({6, 4}));
  EXPECT_TRUE(linear->weight.requires_grad());
  EXPECT_FALSE(is_deferred(at::ones({2})));
  EXPECT_FALSE(is_deferred(at::empty({2}, at::kMeta)));
  EXPECT_FALSE(is_deferred(at::Tensor()));
}

TEST(DeferredInit, Nests) {
  at::Tensor a, b, c, d;
  {
    const DeferredInit outer;
    a = at::ones({2});
    {
      const DeferredInit inner;
      b = at::ones({2});
    }
    c = at::ones({2}) + a;
  }
  d = at::ones({2});
  EXPECT_TRUE(is_deferred(a) && is_deferred(b) && is_deferred(c));
  EXPECT_FALSE(is_deferred(d));
  materialize(c);
  EXPECT_TRUE(same(c, d * 2));
}

TEST(DeferredInit, GoesOnUnderAnotherGuard) {
  nn::Linear linear = deferred_linear();
  {
    const DeferredInit later;
    nn::init::constant_(linear->weight, 3);
  }
  materialize(*linear);
  EXPECT_TRUE(same(linear->weight, at::full({6, 4}, 3.0F)));
}

TEST(DeferredInit, RefusesUseAfterItEndedByName) {
  nn::Linear linear = deferred_linear();
  const at::Tensor x = at::ones({2, 4});
  const std::string error = error_of([&] { linear(x); });
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "aten::addmm: ", error);
  EXPECT_PRED_FORMAT2(
      ::testing::IsSubstring, "f32[6] of aten::uniform_", error);
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "materialize()", error);
  name_tensor(linear->weight, "head.weight");
  EXPECT_ERROR(
      "aten::matmul: a tensor is used that was made under a DeferredInit and "
      "has no values yet; got 'head.weight', f32[6, 4] of aten::uniform_",
      x.matmul(linear->weight.t()));
  EXPECT_ERROR("aten::add_", linear->bias.add_(1));
  linear->bias.requires_grad_(false);  // says nothing about values
  materialize(*linear);
  EXPECT_EQ(linear(x).sizes(), at::IntArrayRef({2, 6}));
  EXPECT_FALSE(linear->bias.requires_grad());
}

TEST(DeferredInit, RefusesCallsThatWantValues) {
  const at::Tensor outside = at::zeros({2, 2});
  const DeferredInit later;
  const at::Tensor t = at::ones({2, 2});
  EXPECT_ERROR(
      "DeferredInit: aten::_local_scalar_dense needs values", t.sum().item());
  EXPECT_ERROR("DeferredInit: aten::equal needs values", t.equal(t));
  EXPECT_ERROR("DeferredInit: aten::nonzero needs values", t.nonzero());
  // LibTorch 2.11 says it in its own words.
  const auto takes_our_words = [](auto& storage) {
    return requires {
      storage.clear_data_ptr_access_error_msg_();
    };
  };
  const bool ours = takes_our_words(*t.storage().unsafeGetStorageImpl());
  EXPECT_ERROR(
      ours ? "memory of a deferred tensor" : "not allocated yet",
      t.data_ptr<float>());
  EXPECT_ERROR(
      ours ? "from_blob(...).clone()" : "not allocated yet",
      at::tensor(std::vector<float>{1, 2}));
  EXPECT_ERROR(
      "aten::copy_ writes values that do not exist yet", outside.copy_(t));
}

TEST(DeferredInit, KeepsPlainTensorsOfOutside) {
  const at::Tensor outside = at::arange(6).reshape({2, 3}).to(at::kFloat);
  at::Tensor a, b, sum;
  {
    const DeferredInit later;
    a = torch::empty({2, 3}).copy_(outside);
    b = outside * 2 + at::ones({2, 3});
    sum = outside.sum();  // of plain tensors alone: at once
  }
  EXPECT_FALSE(is_deferred(sum));
  materialize(a);
  materialize(b);
  EXPECT_TRUE(same(a, outside));
  EXPECT_TRUE(same(b, outside * 2 + 1));
}

TEST(DeferredInit, NoticesPlainTensorsThatChanged) {
  const at::Tensor outside = at::ones({2, 3});
  at::Tensor a;
  {
    const DeferredInit later;
    a = torch::empty({2, 3}).copy_(outside);
  }
  outside.add_(1);
  EXPECT_ERROR("has been written since", materialize(a));
}

TEST(DeferredInit, TiedWeightsStayTied) {
  run_ranks(2, [] {
    nn::Embedding tokens(nullptr);
    nn::Linear head(nullptr);
    {
      const DeferredInit later;
      tokens = nn::Embedding(8, 4);
      head = nn::Linear(4, 8);
      head->weight = head->register_parameter("weight2", tokens->weight);
    }
    nn::Sequential net(tokens, head);
    const auto mesh = mesh_of({2});
    parallelize_module(
        *net, mesh, {{"0", RowwiseParallel()}, {"1", ColwiseParallel()}});
    EXPECT_TRUE(head->weight.is_same(tokens->weight));
    EXPECT_TRUE(is_dtensor(head->weight));
  });
}

TEST(DeferredInit, SharedMemoryIsSharedAfterMaterialize) {
  at::Tensor a, b;
  {
    const DeferredInit later;
    a = at::zeros({4});
    b = a.narrow(0, 1, 2);
  }
  materialize(a);
  materialize(b);
  b.fill_(7);
  EXPECT_TRUE(same(a, at::tensor({0.0F, 7.0F, 7.0F, 0.0F})));
}

TEST(DeferredInit, ModulesConvertAndClone) {
  nn::Linear linear(nullptr);
  std::shared_ptr<nn::Module> twin;
  {
    const DeferredInit later;
    manual_seed(3);
    linear = nn::Linear(4, 6);
    linear->to(at::kBFloat16);
    twin = linear->clone();
  }
  nn::Linear want(nullptr);
  {
    const ReplicatedRandom equal;
    manual_seed(3);
    want = nn::Linear(4, 6);
    want->to(at::kBFloat16);
  }
  materialize(*linear);
  materialize(*twin);
  EXPECT_TRUE(same(linear->weight, want->weight));
  EXPECT_TRUE(same(twin->parameters()[0], want->weight));
  EXPECT_EQ(linear->weight.scalar_type(), at::kBFloat16);
}

TEST(DeferredInit, TrainsLikeAModuleThatWasNot) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    std::vector<at::Tensor> losses;
    for (const bool is_deferred : {false, true}) {
      manual_seed(11);
      nn::Sequential net(nullptr);
      const auto make = [&] {
        net = nn::Sequential(nn::Linear(4, 6), nn::GELU(), nn::Linear(6, 3));
      };
      if (is_deferred) {
        const DeferredInit later;
        make();
      } else {
        const ReplicatedRandom equal;
        make();
      }
      parallelize_module(
          net, mesh, {{"0", ColwiseParallel()}, {"2", RowwiseParallel()}});
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      at::Tensor loss;
      for (int step = 0; step < 3; ++step) {
        loss = net->forward(at::ones({5, 4})).square().mean();
        optimizer.zero_grad();
        loss.backward();
        optimizer.step();
      }
      losses.push_back(full_tensor(loss.detach()));
    }
    EXPECT_TRUE(same(losses[0], losses[1]));
  });
}

// Both ask for one dispatch key.
TEST(DeferredInit, IsNoLossParallelAndEndsNone) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const at::Tensor targets =
        distribute_tensor(at::arange(4), mesh, {Replicate()});
    const at::Tensor whole =
        distribute_tensor(testing::distinct({4, 6}), mesh, {Replicate()});
    const at::Tensor cut = redistribute(whole, {Shard(1)});
    const std::string refused = "LossParallel: cross_entropy on ";
    {
      const DeferredInit later;
      EXPECT_EQ(error_of([&] { at::cross_entropy_loss(whole, targets); }), "");
      {
        const LossParallel loss;
        EXPECT_ERROR(refused, at::cross_entropy_loss(whole, targets));
        EXPECT_TRUE(is_deferred(at::ones({2})));
      }
      EXPECT_TRUE(is_deferred(at::ones({2})));
    }
    const LossParallel loss;
    {
      const DeferredInit later;
      EXPECT_ERROR(refused, at::cross_entropy_loss(whole, targets));
    }
    EXPECT_FALSE(is_deferred(at::ones({2})));
    EXPECT_ERROR(refused, at::cross_entropy_loss(whole, targets));
    EXPECT_TRUE(testing::close(
        at::cross_entropy_loss(cut, targets),
        at::cross_entropy_loss(testing::plain(whole), at::arange(4))));
  });
}

TEST(DeferredInit, DrawsFromAStreamAndAGenerator) {
  const auto make = [] {
    const RandomStream stream("weights");
    auto generator = at::detail::createCPUGenerator(9);
    return at::empty({5}).normal_() + at::empty({5}).normal_(0, 1, generator);
  };
  manual_seed(4);
  at::Tensor got, want;
  {
    const DeferredInit later;
    got = make();
  }
  manual_seed(4);
  {
    const ReplicatedRandom equal;
    want = make();
  }
  materialize(got);
  EXPECT_TRUE(same(got, want));
}

TEST(DeferredInit, LeavesTheLibrarysOwnTensorsAlone) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const at::Tensor outside = testing::distinct({4, 2});
    const DeferredInit later;
    const at::Tensor cut = distribute_tensor(outside, mesh, {Shard(0)});
    const at::Tensor ones = tessera::ones({4, 2}, mesh, {Shard(0)});
    const at::Tensor sum = cut + ones;
    const at::Tensor weight = torch::full({4, 2}, 2.0);
    make_dtensor_(weight, mesh, {Shard(0)});  // under the guard
    EXPECT_ERROR(
        "a deferred tensor meets a sharded one", at::zeros({4, 2}) + cut);
    EXPECT_TRUE(at::equal(to_local(sum), to_local(cut) + to_local(ones)));
    EXPECT_EQ(to_local(weight).sum().item<double>(), 8);
  });
}

TEST(DeferredInit, DistributesACopy) {
  run_ranks(2, [] {
    at::Tensor t;
    {
      const DeferredInit later;
      t = at::full({4, 2}, 3.0);
    }
    const at::Tensor cut = distribute_tensor(t, mesh_of({2}), {Shard(0)});
    EXPECT_TRUE(is_deferred(t));
    EXPECT_TRUE(same(cut, at::full({4, 2}, 3.0)));
  });
}

}  // namespace
}  // namespace tessera
