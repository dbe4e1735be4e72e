// Plans that cannot be followed: an error that names the module, the style and
// the mesh dim, and no parameter is touched.
#include "gpt_training.h"

namespace tessera {
namespace {

using testing::error_of;
using testing::GptSizes;
using testing::mesh_of;
using testing::new_gpt;

void expect_refused(
    const ParallelPlan& plan, const std::vector<std::string>& texts,
    const GptSizes& sizes = {}) {
  auto model = new_gpt(sizes);
  const auto mesh = mesh_of({4}, {"tp"});
  const CommLog log;
  const std::string error =
      error_of([&] { parallelize_module(model, mesh, plan); });
  for (const std::string& text : texts) {
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, text, error);
  }
  EXPECT_EQ(log.count(), 0);
  for (const auto& p : model->named_parameters()) {
    EXPECT_FALSE(is_dtensor(p.value())) << p.key();
  }
}

TEST(BadPlans, NameAModuleThatIsNotThere) {
  run_ranks(4, [&] {
    expect_refused(
        {{"blocks.*.mlp.up", ColwiseParallel()},
         {"blocks.*.mlp.side", RowwiseParallel()}},
        {"parallelize_module", "\"blocks.*.mlp.side\"", "up", "down"});
    expect_refused(
        {{"layers.0", ColwiseParallel()}},
        {"no module has the name \"layers\"", "blocks"});
    expect_refused(
        {{"places", ParameterParallel()}},
        {"no parameter has the name \"places\"", "positions"});
  });
}

TEST(BadPlans, HaveAStyleThatDoesNotFit) {
  run_ranks(4, [&] {
    expect_refused(
        {{"blocks.0.norm1", ColwiseParallel()}},
        {"ColwiseParallel of \"blocks.0.norm1\" on tp of mesh(", "LayerNorm"});
    expect_refused(
        {{"blocks.1", RowwiseParallel()}},
        {"RowwiseParallel of \"blocks.1\" on tp"});
    expect_refused(
        {{"blocks.0.mlp.up", SequenceParallel()}},
        {"SequenceParallel of \"blocks.0.mlp.up\" on tp", "Linear"});
  });
}

TEST(BadPlans, NameTheRootModuleByItsType) {
  run_ranks(4, [&] {
    expect_refused(
        {{"", ColwiseParallel()}},
        {"ColwiseParallel of the root module (", "Gpt", ") on tp of mesh("});
    expect_refused(
        {{"", ParameterParallel()}},
        {"parallelize_module", "the root module (", "name a parameter of it"});
  });
}

TEST(BadPlans, CutFewerWordsThanThereAreRanks) {
  GptSizes sizes;
  sizes.vocabulary = 3;
  run_ranks(4, [&] {
    expect_refused(
        {{"blocks.*.mlp.up", ColwiseParallel()}, {"tokens", RowwiseParallel()}},
        {"RowwiseParallel of \"tokens\" on tp", "tokens.weight has 3 in dim 0",
         "4 ranks"},
        sizes);
  });
}

TEST(BadPlans, PlaceAParameterTwice) {
  run_ranks(4, [&] {
    expect_refused(
        {{"blocks.*.mlp.up", ColwiseParallel()},
         {"blocks.0.mlp.*", RowwiseParallel()}},
        {"RowwiseParallel of \"blocks.0.mlp.up\" on tp",
         "another style of the plan has placed blocks.0.mlp.up.weight"});
  });
}

TEST(BadPlans, CutADimThatIsNotThere) {
  run_ranks(4, [&] {
    expect_refused(
        {{"positions", ParameterParallel{.placement = Shard(2)}}},
        {"ParameterParallel of \"positions\" on tp", "no dim 2"});
  });
}

TEST(BadPlans, DoNotDivideTheHeadsOfAnAttention) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4}, {"tp"});
    torch::nn::MultiheadAttention attention(12, 6);
    const std::string error = error_of([&] {
      parallelize_module(attention, mesh, {{"", ColwiseParallel()}});
    });
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, "6 heads and 4 ranks", error);
    EXPECT_FALSE(is_dtensor(attention->in_proj_weight));
    torch::nn::MultiheadAttention split(
        torch::nn::MultiheadAttentionOptions(12, 4).kdim(8));
    EXPECT_ERROR(
        "only the packed projection",
        parallelize_module(split, mesh, {{"", ColwiseParallel()}}));
  });
}

TEST(BadPlans, AskAPackedProjectionForOutputLayouts) {
  run_ranks(2, [&] {
    torch::nn::MultiheadAttention attention(8, 4);
    const ColwiseParallel whole{.output_layouts = Replicate()};
    EXPECT_ERROR(
        "give them to \"out_proj\"",
        parallelize_module(attention, mesh_of({2}, {"tp"}), {{"", whole}}));
  });
}

TEST(BadPlans, NameAContainerForTheSequence) {
  run_ranks(4, [&] {
    expect_refused(
        {{"blocks", SequenceParallel()}},
        {"SequenceParallel of \"blocks\" on tp", "no parameters of its own"});
  });
}

struct WithViewImpl : torch::nn::Module {
  WithViewImpl() {
    linear = register_module("linear", torch::nn::Linear(4, 4));
    mask =
        register_buffer("mask", torch::ones({4, 4}).tril().view({1, 1, 4, 4}));
  }
  torch::nn::Linear linear = nullptr;
  at::Tensor mask;
};

TEST(BadPlans, AreFoundBeforeATensorIsMet) {
  run_ranks(2, [&] {
    WithViewImpl module;
    EXPECT_ERROR(
        "parallelize_module, mask",
        parallelize_module(
            module, mesh_of({2}, {"tp"}), {{"linear", ColwiseParallel()}}));
    EXPECT_FALSE(is_dtensor(module.linear->weight));
    auto model = new_gpt({});
    const ParameterParallel ragged{.placement = RaggedShard(0, {3, 2})};
    EXPECT_ERROR(
        "",
        parallelize_module(
            model, mesh_of({2}, {"tp"}),
            {{"blocks.*.mlp.up", ColwiseParallel()}, {"positions", ragged}}));
    EXPECT_FALSE(is_dtensor(model->blocks->named_parameters()[0].value()));
  });
}

TEST(BadPlans, CutAConvolutionInGroupsByInputs) {
  run_ranks(4, [&] {
    torch::nn::Conv2d conv(torch::nn::Conv2dOptions(8, 8, 3).groups(2));
    EXPECT_ERROR(
        "a convolution in groups",
        parallelize_module(
            conv, mesh_of({4}, {"tp"}), {{"", RowwiseParallel()}}));
  });
}

TEST(BadPlans, NameAMeshDimThatIsNotThere) {
  run_ranks(4, [&] {
    auto model = new_gpt({});
    EXPECT_ERROR(
        "has no dim \"sp\"",
        parallelize_module(
            model, mesh_of({2, 2}, {"dp", "tp"}), {}, {.mesh_dim = "sp"}));
  });
}

TEST(BadPlans, ComeTwice) {
  run_ranks(2, [&] {
    auto model = new_gpt({});
    const auto mesh = mesh_of({2}, {"tp"});
    parallelize_module(model, mesh, testing::tensor_parallel());
    EXPECT_ERROR(
        "sharded already",
        parallelize_module(model, mesh, testing::tensor_parallel()));
  });
}

}  // namespace
}  // namespace tessera
