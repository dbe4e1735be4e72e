// Styles that the library does not have.
#include "gpt_training.h"

namespace tessera {
namespace {

using testing::close;
using testing::distinct;
using testing::mesh_of;

// The rows of a Linear in blocks, each cut over the ranks.
struct BlockRows {
  static constexpr const char* kName = "BlockRows";
  int64_t blocks = 2;
  void apply(StyledModule& target) const {
    const Placement rows = StridedShard(0, blocks);
    target.shard(
        "weight", rows,
        CallLayouts{.input = Replicate(), .output = Replicate()});
    if (target.has("bias")) {
      target.shard("bias", rows);
    }
  }
};

// One dim of a parameter.
struct LastDim {
  static constexpr const char* kName = "LastDim";
  void apply(StyledParameter& target) const {
    target.shard(Shard(target.tensor().dim() - 1));
  }
};

// Results of all layers below in one layout.
struct Gathered {
  static constexpr const char* kName = "Gathered";
  void apply_around(StyledModule& target) const {
    target.prepare_output(Shard(1), Replicate());
  }
};

struct Wrong {
  static constexpr const char* kName = "Wrong";
  void apply(StyledModule& target) const { target.shard("scale", Shard(0)); }
};

torch::nn::Sequential two_layers() {
  torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::Linear(8, 6));
  net->to(testing::device(), at::kDouble);
  const torch::NoGradGuard guard;
  for (const at::Tensor& p : net->parameters()) {
    p.copy_(distinct(p.sizes()).mul(0.1));
  }
  return net;
}

TEST(OwnStyle, PlacesParametersAndTheLayoutsOfTheirUses) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"tp"});
    const at::Tensor x = distinct({3, 4});
    const at::Tensor want = two_layers()->forward(x);
    auto net = two_layers();
    parallelize_module(
        net, mesh, {{"0", BlockRows{.blocks = 4}}, {"1.weight", LastDim()}});
    const auto parameters = net->named_parameters();
    EXPECT_EQ(to_string(placements(parameters["0.weight"])), "SS(0,4)");
    EXPECT_EQ(to_string(placements(parameters["0.bias"])), "SS(0,4)");
    EXPECT_EQ(to_string(placements(parameters["1.weight"])), "S(1)");
    EXPECT_EQ(to_string(placements(parameters["1.bias"])), "R");
    const at::Tensor y = net->forward(x);
    EXPECT_TRUE(close(y, want));
    y.sum().backward();
    EXPECT_EQ(to_string(placements(parameters["0.weight"].grad())), "SS(0,4)");
  });
}

TEST(OwnStyle, AroundOthersComesAfterThem) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"tp"});
    auto net = two_layers();
    parallelize_module(net, mesh, {{"", Gathered()}, {"1", ColwiseParallel()}});
    const at::Tensor x = distinct({3, 4});
    const at::Tensor y = net->forward(x);
    EXPECT_EQ(to_string(placements(y)), "R");
    EXPECT_TRUE(close(y, two_layers()->forward(x)));
  });
}

TEST(OwnStyle, IsNamedInErrors) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"tp"});
    auto net = two_layers();
    EXPECT_ERROR(
        "parallelize_module, Wrong of \"1\" on tp of mesh(tp=2): the module "
        "has no parameter \"scale\"; there are: weight, bias",
        parallelize_module(net, mesh, {{"1", Wrong()}}));
    EXPECT_ERROR(
        "LastDim is for parameters; got the path of the root module",
        parallelize_module(net, mesh, {{"", LastDim()}}));
    EXPECT_ERROR(
        "another style of the plan has placed 0.weight",
        parallelize_module(
            net, mesh, {{"0", ColwiseParallel()}, {"*", BlockRows()}}));
    EXPECT_FALSE(is_dtensor(net->parameters()[0]));
    EXPECT_EQ(ParallelStyle(BlockRows()).name(), "BlockRows");
  });
}

TEST(DistributedModule, MapsTensorsWhereverTheyAre) {
  struct Net : torch::nn::Module {
    std::pair<at::Tensor, std::vector<std::optional<at::Tensor>>> forward(
        const std::optional<at::Tensor>& x) {
      return {*x, {*x + 1, std::nullopt}};
    }
  };
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"tp"});
    const auto negate = [](std::vector<at::Tensor> tensors, const DeviceMesh&) {
      for (at::Tensor& tensor : tensors) {
        tensor = -tensor;
      }
      return tensors;
    };
    const auto net =
        distribute_module(std::make_shared<Net>(), mesh, {}, negate, negate);
    const at::Tensor x = distinct({3});
    const auto [first, rest] = net(std::optional<at::Tensor>(x));
    EXPECT_TRUE(close(first, x));
    EXPECT_TRUE(close(*rest[0], x - 1));
    EXPECT_FALSE(rest[1].has_value());
  });
}

}  // namespace
}  // namespace tessera
