// The operators of models: values and gradients of the plain program, no
// operator on whole values for want of a rule, and exactly the communication
// that the placements call for, which is derived by hand in each test.
#include <harness/sharded_test.h>

#include <functional>
#include <map>

namespace tessera {
namespace {

using testing::close;
using testing::counting;
using testing::distinct;
using testing::error_of;
using testing::f64;
using testing::i64;
using testing::mesh_of;

// A tensor of a model and where it lies on the mesh.
struct Piece {
  at::Tensor value;
  std::string where;
};
using Pieces = std::map<std::string, Piece>;
using Tensors = std::map<std::string, at::Tensor>;
// Computes a loss from parameters and inputs.
using Model = std::function<at::Tensor(Tensors&)>;

// "2 all_reduce by redistribute": collectives by kind and cause.
using Counts = std::map<std::string, int>;

Counts counts_of(const CommLog& log) {
  Counts counts;
  for (const CommLogEntry& entry : log.entries()) {
    ++counts[entry.kind + " by " + entry.cause];
  }
  return counts;
}

// Data, targets and statistics need no gradient.
bool is_parameter(const std::string& name, const at::Tensor& value) {
  return value.is_floating_point() && name != "input" && name != "targets" &&
         name.find(".mean") == name.npos && name.find(".var") == name.npos;
}

Tensors plain_tensors(const Pieces& pieces) {
  Tensors tensors;
  for (const auto& [name, piece] : pieces) {
    tensors[name] =
        piece.value.clone().set_requires_grad(is_parameter(name, piece.value));
  }
  return tensors;
}

Tensors cut_tensors(const Pieces& pieces, const DeviceMesh& mesh) {
  Tensors tensors;
  for (const auto& [name, piece] : pieces) {
    tensors[name] =
        distribute_tensor(piece.value, mesh, parse_placements(piece.where))
            .set_requires_grad(is_parameter(name, piece.value));
  }
  return tensors;
}

struct Expected {
  Counts forward;
  Counts backward;
};

void expect_gradients(const Tensors& got, const Tensors& want) {
  for (const auto& [name, tensor] : want) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(close(got.at(name), tensor, 1e-9)) << "written statistics";
    ASSERT_EQ(got.at(name).grad().defined(), tensor.grad().defined());
    if (tensor.grad().defined()) {
      EXPECT_TRUE(close(got.at(name).grad(), tensor.grad(), 1e-9));
      EXPECT_EQ(placements(got.at(name).grad()), placements(got.at(name)));
    }
  }
}

// Runs the model plain and on the mesh, twice, so that what is kept about the
// first run serves the second.
void expect_model(
    const Model& model, const Pieces& pieces, const DeviceMesh& mesh,
    const Expected& expected) {
  for (int round = 0; round < 2; ++round) {
    Tensors plain = plain_tensors(pieces);
    const at::Tensor want = model(plain);
    want.backward();
    Tensors cut = cut_tensors(pieces, mesh);
    const StrictMode strict({.communication = false, .fallbacks = true});
    at::Tensor got;
    {
      const CommLog log;
      ASSERT_EQ(error_of([&] { got = model(cut); }), "");
      EXPECT_EQ(counts_of(log), expected.forward) << "forward\n" << log;
    }
    {
      const CommLog log;
      ASSERT_EQ(error_of([&] { got.backward(); }), "");
      EXPECT_EQ(counts_of(log), expected.backward) << "backward\n" << log;
    }
    EXPECT_TRUE(close(got, want, 1e-9));
    expect_gradients(cut, plain);
  }
}

// --- transformer

constexpr int64_t kBatch = 4, kLength = 6, kWidth = 8, kHeads = 4, kWords = 12;

at::Tensor small(at::IntArrayRef shape, double shift) {
  return distinct(shape).mul(0.2).add(shift);
}

at::Tensor replicated(const at::Tensor& x) {
  if (!is_dtensor(x)) {
    return x;
  }
  return redistribute(x, Placements(placements(x).size(), Replicate()));
}

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

void place(Pieces& pieces, const std::map<std::string, std::string>& where) {
  for (const auto& [name, text] : where) {
    ASSERT_EQ(pieces.count(name), 1U) << name;
    pieces[name].where = text;
  }
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
         .backward = {
             {"all_reduce by gradient of redistribute", 3},
             {"all_reduce by aten::_log_softmax_backward_data", 1}}});
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

// --- convnet

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

Model convnet(bool training, bool parallel) {
  return [=](Tensors& t) {
    at::Tensor x =
        at::conv2d(t["input"], t["conv1.weight"], t["conv1.bias"], 1, 1);
    x = at::relu(batch_normed(t, "norm1", x, training));
    x = at::max_pool2d(x, 2);
    x = at::conv2d(x, t["conv2.weight"], t["conv2.bias"], 1, 1);
    x = at::relu(
        batch_normed(t, "norm2", parallel ? replicated(x) : x, training));
    x = at::adaptive_avg_pool2d(at::avg_pool2d(x, 2), {1, 1}).flatten(1);
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

// In training each batch norm needs the mean and then the variance of all
// images, [channels] numbers each, and backward the two sums of its gradient,
// which are those of its weight and bias: 6 parameters are left to their
// leaves.
TEST(Convnet, OnCutBatchesSharesTheStatisticsInTraining) {
  run_ranks(2, [&] {
    Pieces pieces = convnet_pieces();
    place(pieces, {{"input", "S(0)"}, {"targets", "S(0)"}});
    expect_model(
        convnet(true, false), pieces, mesh_of({2}),
        {.forward =
             {{"all_reduce by aten::native_batch_norm", 4},
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

// --- recommender

Pieces recommender_pieces() {
  Pieces p;
  p["input"] = {small({8, 6}, 0.1), "S(0)"};
  p["users"] = {counting({8}, i64()).mul(5).remainder(9), "R"};
  p["items"] = {counting({20}, i64()).mul(7).remainder(10), "R"};
  p["offsets"] = {at::tensor({0, 3, 3, 7, 9, 12, 17, 18}, i64()), "R"};
  p["user.table"] = {small({9, 4}, 0.1), "R"};
  p["item.table"] = {small({10, 4}, -0.1), "R"};
  p["up.weight"] = {small({6, 14}, 0.1), "R"};
  p["up.bias"] = {small({6}, 0.2), "R"};
  p["down.weight"] = {small({1, 6}, 0.1), "R"};
  p["down.bias"] = {small({1}, 0.2), "R"};
  p["targets"] = {counting({8}).remainder(2), "S(0)"};
  return p;
}

at::Tensor by_batch(const at::Tensor& x) {
  return is_dtensor(x) ? redistribute(x, {Shard(0)}) : x;
}

constexpr int64_t kSumMode = 0, kMeanMode = 1;

// Tables are cut, each rank looks up the whole batch in its part, and the rest
// runs on its part of the batch.
Model recommender(int64_t mode) {
  return [mode](Tensors& t) {
    const at::Tensor user =
        by_batch(at::embedding(t["user.table"], t["users"]));
    const at::Tensor item = by_batch(std::get<0>(at::embedding_bag(
        t["item.table"], t["items"], t["offsets"], false, mode)));
    at::Tensor x = at::cat({t["input"], user, item}, 1);
    x = at::relu(at::linear(x, t["up.weight"], t["up.bias"]));
    x = at::linear(x, t["down.weight"], t["down.bias"]).squeeze(1);
    return at::binary_cross_entropy_with_logits(x, t["targets"]);
  };
}

// Rows: what a rank does not hold it answers with zeros, and the sum goes to
// who has that part of the batch. Backward every rank needs all gradients of
// the batch for its rows; dense layers add up 4 gradients.
TEST(Recommender, OfTablesCutByRowsScattersSums) {
  for (const int64_t mode : {kSumMode, kMeanMode}) {
    run_ranks(2, [&] {
      SCOPED_TRACE(mode);
      Pieces pieces = recommender_pieces();
      place(pieces, {{"user.table", "S(0)"}, {"item.table", "S(0)"}});
      expect_model(
          recommender(mode), pieces, mesh_of({2}),
          {.forward = {{"reduce_scatter by redistribute", 2}},
           .backward = {
               {"all_gather by gradient of redistribute", 2},
               {"all_reduce by gradient of a leaf", 4}}});
    });
  }
}

// Columns: every rank has some features of all, and they change places with
// the parts of the batch, there and back.
TEST(Recommender, OfTablesCutByColumnsExchangesFeatures) {
  for (const int64_t mode : {kSumMode, kMeanMode}) {
    run_ranks(2, [&] {
      SCOPED_TRACE(mode);
      Pieces pieces = recommender_pieces();
      place(pieces, {{"user.table", "S(1)"}, {"item.table", "S(1)"}});
      expect_model(
          recommender(mode), pieces, mesh_of({2}),
          {.forward = {{"all_to_all by redistribute", 2}},
           .backward = {
               {"all_to_all by gradient of redistribute", 2},
               {"all_reduce by gradient of a leaf", 4}}});
    });
  }
}

// --- optimizers

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
