// The operators of a convnet: values and gradients of the plain program, no
// operator on whole values for want of a rule, and exactly the communication
// that the placements call for, which is derived by hand in each test.
#include <tensor/models/expect_model.h>

#include <map>

namespace tessera {
namespace {

using testing::counting;
using testing::expect_model;
using testing::expect_model_outside;
using testing::expect_trains_without_gathers;
using testing::i64;
using testing::mesh_of;
using testing::Model;
using testing::Pieces;
using testing::place;
using testing::replicated;
using testing::small;
using testing::Tensors;

Pieces convnet_pieces() {
  Pieces p;
  p["input"] = {small({4, 2, 8, 8}, 0.1), "R"};
  p["conv1.weight"] = {small({4, 2, 3, 3}, 0.05), "R"};
  p["conv1.bias"] = {small({4}, 0.1), "R"};
  p["norm1.weight"] = {small({4}, 1), "R"};
  p["norm1.bias"] = {small({4}, 0.2), "R"};
  p["conv2.weight"] = {small({6, 4, 3, 3}, -0.03), "R"};
  p["conv2.bias"] = {small({6}, 0.1), "R"};
  p["norm2.weight"] = {small({6}, 1.1), "R"};
  p["norm2.bias"] = {small({6}, 0.3), "R"};
  p["linear.weight"] = {small({5, 6}, 0.1), "R"};
  p["linear.bias"] = {small({5}, 0.2), "R"};
  p["targets"] = {counting({4}, i64()).mul(3).remainder(5), "R"};
  // Statistics are buffers: no gradient.
  for (const auto& [name, size] :
       std::map<std::string, int64_t>{{"norm1", 4}, {"norm2", 6}}) {
    p[name + ".mean"] = {small({size}, 0.1), "R"};
    p[name + ".var"] = {small({size}, 1.5), "R"};
  }
  return p;
}

at::Tensor batch_normed(
    Tensors& t, const std::string& name, const at::Tensor& x, bool training) {
  return at::batch_norm(
      x, t[name + ".weight"], t[name + ".bias"], t[name + ".mean"],
      t[name + ".var"], training, 0.1, 1e-5, false);
}

// What is left of images that are cut in rows and columns is small, and the
// same on all ranks from the last pool on.
enum class Images : uint8_t { kWhole, kCut };

Model convnet(bool training, bool parallel, Images images = Images::kWhole) {
  return [=](Tensors& t) {
    at::Tensor x =
        at::conv2d(t["input"], t["conv1.weight"], t["conv1.bias"], 1, 1);
    x = at::relu(batch_normed(t, "norm1", x, training));
    x = at::max_pool2d(x, 2);
    x = at::conv2d(x, t["conv2.weight"], t["conv2.bias"], 1, 1);
    x = at::relu(
        batch_normed(t, "norm2", parallel ? replicated(x) : x, training));
    x = at::adaptive_avg_pool2d(at::avg_pool2d(x, 2), {1, 1}).flatten(1);
    x = images == Images::kCut ? replicated(x) : x;
    x = at::linear(x, t["linear.weight"], t["linear.bias"]);
    return at::cross_entropy_loss(x, t["targets"]);
  };
}

// Images are cut: one mean, and one sum per gradient of the 10 parameters.
TEST(Convnet, OnCutBatchesReducesOnlyGradientsInEvaluation) {
  run_ranks(2, [&] {
    Pieces pieces = convnet_pieces();
    place(pieces, {{"input", "S(0)"}, {"targets", "S(0)"}});
    expect_model(
        convnet(false, false), pieces, mesh_of({2}),
        {.forward = {{"all_reduce by aten::nll_loss_forward", 1}},
         .backward = {{"all_reduce by gradient of a leaf", 10}}});
  });
}

// In training each batch norm needs the means and variances of all ranks,
// 2 x [channels] numbers of each, and backward the two sums of its gradient,
// which are those of its weight and bias: 6 parameters are left to their
// leaves.
TEST(Convnet, OnCutBatchesSharesTheStatisticsInTraining) {
  run_ranks(2, [&] {
    Pieces pieces = convnet_pieces();
    place(pieces, {{"input", "S(0)"}, {"targets", "S(0)"}});
    expect_model(
        convnet(true, false), pieces, mesh_of({2}),
        {.forward =
             {{"all_gather by aten::native_batch_norm", 2},
              {"all_reduce by aten::nll_loss_forward", 1}},
         .backward = {
             {"all_reduce by aten::native_batch_norm_backward", 2},
             {"all_reduce by gradient of a leaf", 6}}});
  });
}

// Channels are cut from the first convolution to the second, which adds them
// up: one sum forward. Its gradient is whole, the input needs none.
TEST(Convnet, OnCutChannelsReducesOnce) {
  for (const bool training : {false, true}) {
    run_ranks(2, [&] {
      SCOPED_TRACE(training ? "training" : "evaluation");
      Pieces pieces = convnet_pieces();
      place(
          pieces, {{"conv1.weight", "S(0)"},
                   {"conv1.bias", "S(0)"},
                   {"norm1.weight", "S(0)"},
                   {"norm1.bias", "S(0)"},
                   {"norm1.mean", "S(0)"},
                   {"norm1.var", "S(0)"},
                   {"conv2.weight", "S(1)"}});
      expect_model(
          convnet(training, true), pieces, mesh_of({2}),
          {.forward = {{"all_reduce by redistribute", 1}}, .backward = {}});
    });
  }
}

// Images cut by batches, by channels of the first layers, and on 2x2 by rows
// and columns, down to the last pool.
TEST(Convnet, TrainsWithGathersForbidden) {
  for (const bool training : {false, true}) {
    run_ranks(4, [&] {
      SCOPED_TRACE(training ? "training" : "evaluation");
      Pieces pieces = convnet_pieces();
      place(pieces, {{"input", "S(0)"}, {"targets", "S(0)"}});
      expect_trains_without_gathers(
          convnet(training, false), pieces, mesh_of({4}));
      pieces = convnet_pieces();
      place(
          pieces, {{"conv1.weight", "S(0)"},
                   {"conv1.bias", "S(0)"},
                   {"norm1.weight", "S(0)"},
                   {"norm1.bias", "S(0)"},
                   {"norm1.mean", "S(0)"},
                   {"norm1.var", "S(0)"},
                   {"conv2.weight", "S(1)"}});
      expect_trains_without_gathers(
          convnet(training, true), pieces, mesh_of({4}));
      pieces = convnet_pieces();
      for (auto& [name, piece] : pieces) {
        piece.where = name == "input" ? "S(2) S(3)" : "R R";
      }
      expect_trains_without_gathers(
          convnet(training, false, Images::kCut), pieces, mesh_of({2, 2}));
    });
  }
}

TEST(Convnet, HasTheSpecsOfMembersOutsideOfTheMesh) {
  for (const bool training : {false, true}) {
    SCOPED_TRACE(training);
    Pieces pieces = convnet_pieces();
    place(pieces, {{"input", "S(0)"}, {"targets", "S(0)"}});
    expect_model_outside(convnet(training, false), pieces, {2});
    expect_model_outside(convnet(training, false), pieces, {3});
    place(
        pieces, {{"input", "R"},
                 {"targets", "R"},
                 {"conv1.weight", "S(0)"},
                 {"conv1.bias", "S(0)"},
                 {"conv2.weight", "S(1)"}});
    expect_model_outside(convnet(training, true), pieces, {2});
    expect_model_outside(convnet(training, false), pieces, {3});
  }
}

}  // namespace
}  // namespace tessera
