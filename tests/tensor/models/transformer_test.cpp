// The operators of a transformer: values and gradients of the plain program, no
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

constexpr int64_t kBatch = 4, kLength = 6, kWidth = 8, kHeads = 4, kWords = 12;

at::Tensor heads(const at::Tensor& x) {
  return x.view({kBatch, kLength, kHeads, kWidth / kHeads}).transpose(1, 2);
}

at::Tensor attention(Tensors& t, const at::Tensor& x, bool math) {
  const at::Tensor q = heads(at::linear(x, t["q.weight"], t["q.bias"]));
  const at::Tensor k = heads(at::linear(x, t["k.weight"], t["k.bias"]));
  const at::Tensor v = heads(at::linear(x, t["v.weight"], t["v.bias"]));
  const at::Tensor mixed =
      math ? std::get<0>(at::_scaled_dot_product_attention_math(
                 q, k, v, {}, 0.0, /*is_causal=*/true))
           : at::scaled_dot_product_attention(
                 q, k, v, {}, 0.0, /*is_causal=*/true);
  return at::linear(
      mixed.transpose(1, 2).reshape({kBatch, kLength, kWidth}), t["o.weight"],
      t["o.bias"]);
}

at::Tensor mlp(Tensors& t, const at::Tensor& x) {
  return at::linear(
      at::gelu(at::linear(x, t["up.weight"], t["up.bias"])), t["down.weight"],
      t["down.bias"]);
}

at::Tensor normed(Tensors& t, const char* name, const at::Tensor& x) {
  const std::string layer = name;
  return at::layer_norm(x, {kWidth}, t[layer + ".weight"], t[layer + ".bias"]);
}

Pieces transformer_pieces() {
  Pieces p;
  double shift = -0.1;
  const auto layer = [&](const std::string& name, int64_t out, int64_t in) {
    p[name + ".weight"] = {small({out, in}, shift += 0.013), "R"};
    p[name + ".bias"] = {small({out}, shift += 0.011), "R"};
  };
  for (const char* name : {"q", "k", "v", "o"}) {
    layer(name, kWidth, kWidth);
  }
  layer("up", 2 * kWidth, kWidth);
  layer("down", kWidth, 2 * kWidth);
  for (const char* name : {"norm1", "norm2", "norm3"}) {
    p[std::string(name) + ".weight"] = {small({kWidth}, 1), "R"};
    p[std::string(name) + ".bias"] = {small({kWidth}, 0.1), "R"};
  }
  p["words"] = {small({kWords, kWidth}, 0), "R"};
  p["head"] = {small({kWords, kWidth}, 0.05), "R"};
  p["tokens"] = {
      counting({kBatch, kLength}, i64()).mul(7).remainder(kWords), "R"};
  p["targets"] = {
      counting({kBatch, kLength}, i64()).mul(5).add(3).remainder(kWords), "R"};
  return p;
}

// One block between an embedding and a head. The copies of a column-parallel
// layer's input begin, and the sums of a row-parallel layer end, in
// replicated(): where the layers are whole that does nothing.
Model transformer(bool parallel, bool math = false) {
  const auto edge = [parallel](const at::Tensor& x) {
    return parallel ? replicated(x) : x;
  };
  return [=](Tensors& t) {
    at::Tensor x = edge(at::embedding(t["words"], t["tokens"]));
    x = x + edge(attention(t, edge(normed(t, "norm1", x)), math));
    x = x + edge(mlp(t, edge(normed(t, "norm2", x))));
    const at::Tensor scores =
        at::linear(edge(normed(t, "norm3", x)), t["head"]);
    return at::cross_entropy_loss(
        scores.reshape({-1, kWords}), t["targets"].reshape({-1}));
  };
}

const std::map<std::string, std::string> kMegatron = {
    {"q.weight", "S(0)"},    {"q.bias", "S(0)"},    {"k.weight", "S(0)"},
    {"k.bias", "S(0)"},      {"v.weight", "S(0)"},  {"v.bias", "S(0)"},
    {"o.weight", "S(1)"},    {"up.weight", "S(0)"}, {"up.bias", "S(0)"},
    {"down.weight", "S(1)"},
};

// Columns of the first layers, rows of the last ones. Forward: the two sums of
// the row-parallel layers. Backward: the gradients of the two inputs that every
// rank has a copy of; q, k and v share one, since their addends are added up
// before they are reduced. Everything else is local: weights are cut as their
// gradients come out, biases after the sum are whole on every rank.
TEST(TransformerBlock, OfColumnAndRowParallelLayersReducesTwiceEachWay) {
  for (const bool math : {false, true}) {
    run_ranks(2, [&] {
      SCOPED_TRACE(math ? "math" : "flash");
      Pieces pieces = transformer_pieces();
      place(pieces, kMegatron);
      expect_model(
          transformer(true, math), pieces, mesh_of({2}),
          {.forward = {{"all_reduce by redistribute", 2}},
           .backward = {{"all_reduce by gradient of redistribute", 2}}});
    });
  }
}

// Besides, the words of embedding and head are cut. Forward: the sum of what
// ranks found in their part of the table; per row of scores a maximum and a sum
// (log_softmax), then the sums of losses and weights. Backward: the gradient of
// the head's input; per row the sum of log_softmax's gradient. The table's
// gradient is whole on every rank, which cuts its part.
TEST(TransformerBlock, WithCutWordsSendsSumsAndOneNumberPerScore) {
  run_ranks(2, [&] {
    Pieces pieces = transformer_pieces();
    place(pieces, kMegatron);
    place(pieces, {{"words", "S(0)"}, {"head", "S(0)"}});
    expect_model(
        transformer(true), pieces, mesh_of({2}),
        {.forward =
             {{"all_reduce by redistribute", 3},
              {"all_reduce by aten::_log_softmax", 2},
              {"all_reduce by aten::nll_loss_forward", 1}},
         .backward = {{"all_reduce by gradient of redistribute", 3}}});
  });
}

// Every rank has its sequences and all parameters: the mean of the losses and
// one sum per gradient of the 20 parameters.
TEST(TransformerBlock, OnCutBatchesReducesOnlyGradients) {
  for (const bool math : {false, true}) {
    run_ranks(2, [&] {
      SCOPED_TRACE(math ? "math" : "flash");
      Pieces pieces = transformer_pieces();
      place(pieces, {{"tokens", "S(0)"}, {"targets", "S(0)"}});
      expect_model(
          transformer(false, math), pieces, mesh_of({2}),
          {.forward = {{"all_reduce by aten::nll_loss_forward", 1}},
           .backward = {{"all_reduce by gradient of a leaf", 20}}});
    });
  }
}

// Both on one mesh: the sums of each, none of them larger.
TEST(TransformerBlock, OnATwoDimMeshDoesBoth) {
  run_ranks(4, [&] {
    Pieces pieces = transformer_pieces();
    place(pieces, {{"tokens", "S(0)"}, {"targets", "S(0)"}});
    place(pieces, kMegatron);
    for (auto& [name, piece] : pieces) {
      const bool is_data = name == "tokens" || name == "targets";
      piece.where = is_data ? piece.where + " R" : "R " + piece.where;
    }
    const auto edge_model = [](Tensors& t) {
      const auto edge = [](const at::Tensor& x) {
        return is_dtensor(x) ? redistribute(x, {Shard(0), Replicate()}) : x;
      };
      at::Tensor x = at::embedding(t["words"], t["tokens"]);
      x = x + edge(attention(t, edge(normed(t, "norm1", x)), false));
      x = x + edge(mlp(t, edge(normed(t, "norm2", x))));
      return at::cross_entropy_loss(
          at::linear(normed(t, "norm3", x), t["head"]).reshape({-1, kWords}),
          t["targets"].reshape({-1}));
    };
    expect_model(
        edge_model, pieces, mesh_of({2, 2}, {"dp", "tp"}),
        {.forward =
             {{"all_reduce by redistribute", 2},
              {"all_reduce by aten::nll_loss_forward", 1}},
         .backward = {
             {"all_reduce by gradient of redistribute", 2},
             {"all_reduce by gradient of a leaf", 20}}});
  });
}

TEST(TransformerBlock, TrainsWithGathersForbidden) {
  for (const bool math : {false, true}) {
    run_ranks(2, [&] {
      SCOPED_TRACE(math ? "math" : "flash");
      Pieces pieces = transformer_pieces();
      place(pieces, {{"tokens", "S(0)"}, {"targets", "S(0)"}});
      expect_trains_without_gathers(
          transformer(false, math), pieces, mesh_of({2}));
      pieces = transformer_pieces();
      place(pieces, kMegatron);
      expect_trains_without_gathers(
          transformer(true, math), pieces, mesh_of({2}));
      place(pieces, {{"words", "S(0)"}, {"head", "S(0)"}});
      expect_trains_without_gathers(
          transformer(true, math), pieces, mesh_of({2}));
    });
  }
}

TEST(TransformerBlock, HasTheSpecsOfMembersOutsideOfTheMesh) {
  for (const bool math : {false, true}) {
    SCOPED_TRACE(math ? "math" : "flash");
    Pieces pieces = transformer_pieces();
    place(pieces, {{"tokens", "S(0)"}, {"targets", "S(0)"}});
    expect_model_outside(transformer(false, math), pieces, {2});
    expect_model_outside(transformer(false, math), pieces, {3});
    pieces = transformer_pieces();
    place(pieces, kMegatron);
    expect_model_outside(transformer(true, math), pieces, {2});
    expect_model_outside(transformer(false, math), pieces, {2});
    place(pieces, {{"words", "S(0)"}, {"head", "S(0)"}});
    expect_model_outside(transformer(true, math), pieces, {2});
    expect_model_outside(transformer(true, math), pieces, {3});
  }
}

// One sum forward, where the row-parallel layer ends, and one backward, where
// the copies of the input begin.
TEST(Mlp, OfColumnAndRowParallelLayersReducesOnceEachWay) {
  run_ranks(2, [&] {
    Pieces p;
    p["x"] = {small({6, 8}, 0.3), "R"};
    p["up.weight"] = {small({16, 8}, 0.1), "S(0)"};
    p["up.bias"] = {small({16}, 0.2), "S(0)"};
    p["down.weight"] = {small({8, 16}, -0.1), "S(1)"};
    p["down.bias"] = {small({8}, 0.4), "R"};
    expect_model(
        [](Tensors& t) {
          return replicated(mlp(t, replicated(t["x"]))).square().sum();
        },
        p, mesh_of({2}),
        {.forward = {{"all_reduce by redistribute", 1}},
         .backward = {{"all_reduce by gradient of redistribute", 1}}});
  });
}

}  // namespace
}  // namespace tessera
