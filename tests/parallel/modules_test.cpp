// Modules whose kernels write, read or draw beside their output.
#include <harness/sharded_test.h>

namespace tessera {
namespace {

using testing::close;
using testing::device;
using testing::distinct;
using testing::f64;
using testing::i64;
using testing::mesh_of;
using testing::same;

// Gives equal modules equal, distinct values on all ranks.
void fill(torch::nn::Module& module) {
  c10::NoGradGuard no_grad;
  module.to(device(), at::kDouble);
  double scale = 0.2;
  for (auto& p : module.parameters()) {
    p.copy_(distinct(p.sizes()).mul(scale));
    scale += 0.01;
  }
}

void cut_rows(
    const std::string&, torch::nn::Module& module, const DeviceMesh& mesh) {
  for (auto& p : module.parameters(/*recurse=*/false)) {
    make_dtensor_(p, mesh, {Shard(0)});
  }
}

TEST(Modules, OfBatchNormUpdateShardedStatistics) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    for (const char* layout : {"R", "S(0)"}) {
      SCOPED_TRACE(layout);
      torch::nn::BatchNorm1d m(4), plain(4);
      fill(*m), fill(*plain);
      make_dtensor_(m->running_mean, mesh, parse_placements(layout));
      make_dtensor_(m->running_var, mesh, parse_placements(layout));
      distribute_parameters(*m, mesh, cut_rows);
      const auto x = distribute_tensor(distinct({6, 4}), mesh, {Shard(0)});
      for (const bool training : {true, false}) {
        m->train(training), plain->train(training);
        auto y = m(x);
        auto want = plain(distinct({6, 4}));
        EXPECT_TRUE(close(y, want));
        EXPECT_TRUE(close(m->running_mean, plain->running_mean));
        EXPECT_TRUE(close(m->running_var, plain->running_var));
        y.pow(3).sum().backward(), want.pow(3).sum().backward();
        EXPECT_TRUE(close(m->weight.grad(), plain->weight.grad()));
      }
      EXPECT_TRUE(same(m->num_batches_tracked, plain->num_batches_tracked));
      EXPECT_EQ(to_string(placements(m->running_mean)), layout);
    }
  });
}

TEST(Modules, OfEmbeddingRenormaliseTheirShards) {
  run_ranks(2, [&] {
    const auto options =
        torch::nn::EmbeddingOptions(7, 4).padding_idx(1).max_norm(0.3);
    torch::nn::Embedding m(options), plain(options);
    fill(*m), fill(*plain);
    distribute_parameters(*m, mesh_of({2}), cut_rows);
    const auto index = at::tensor({1, 2, 6, 2}, i64());
    auto y = m(distribute_tensor(index, mesh_of({2}), {Shard(0)}));
    auto want = plain(index);
    EXPECT_TRUE(close(y, want));
    y.pow(2).sum().backward(), want.pow(2).sum().backward();
    EXPECT_TRUE(close(m->weight, plain->weight));
    EXPECT_TRUE(close(m->weight.grad(), plain->weight.grad()));
  });
}

TEST(Modules, OfRecurrentNetsTakeWholeAndPackedSequences) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto options =
        torch::nn::LSTMOptions(4, 3).num_layers(2).bidirectional(true);
    torch::nn::LSTM m(options), plain(options);
    fill(*m), fill(*plain);
    distribute_parameters(*m, mesh, cut_rows);
    const auto p = distinct({5, 3, 4});
    const auto x = distribute_tensor(p, mesh, {Shard(1)});
    // The module makes its first states by itself, and plain.
    const ImplicitReplication plain_states;
    auto y = std::get<0>(m(x));
    auto want = std::get<0>(plain(p));
    EXPECT_TRUE(close(y, want));
    y.pow(2).sum().backward(), want.pow(2).sum().backward();
    EXPECT_TRUE(
        close(m->parameters()[1].grad(), plain->parameters()[1].grad()));
    if (device() != at::kCPU) {
      return;  // lengths must be on the CPU, and shards are on the mesh's
               // device
    }
    namespace rnn = torch::nn::utils::rnn;
    const auto lengths = at::tensor({5, 4, 2}, at::kLong);
    const auto packed = rnn::pack_padded_sequence(
        x, distribute_tensor(lengths, mesh, {Replicate()}));
    const auto out = std::get<0>(m->forward_with_packed_input(packed));
    const auto plain_out = std::get<0>(plain->forward_with_packed_input(
        rnn::pack_padded_sequence(p, lengths)));
    EXPECT_TRUE(close(
        std::get<0>(rnn::pad_packed_sequence(out)),
        std::get<0>(rnn::pad_packed_sequence(plain_out))));
  });
}

TEST(Modules, OfAttentionEqualThePlainOnes) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto options =
        torch::nn::MultiheadAttentionOptions(8, 2).add_bias_kv(true);
    torch::nn::MultiheadAttention m(options), plain(options);
    fill(*m), fill(*plain);
    distribute_parameters(*m, mesh, cut_rows);
    auto p = distinct({5, 2, 8}).requires_grad_();
    auto x = distribute_tensor(p.detach(), mesh, {Shard(0)}).requires_grad_();
    auto y = std::get<0>(m(x, x, x));
    auto want = std::get<0>(plain(p, p, p));
    EXPECT_TRUE(close(y, want));
    y.pow(2).sum().backward(), want.pow(2).sum().backward();
    EXPECT_TRUE(close(x.grad(), p.grad()));
    EXPECT_TRUE(close(m->in_proj_weight.grad(), plain->in_proj_weight.grad()));
  });
}

TEST(Attention, WithAndWithoutAMaskEqualsThePlainOne) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    for (const bool masked : {false, true}) {
      auto p = distinct({2, 3, 4, 8}).requires_grad_();
      auto q = distribute_tensor(p.detach(), mesh, {Shard(1)}).requires_grad_();
      std::optional<at::Tensor> mask, plain_mask;
      if (masked) {
        plain_mask = distinct({4, 4}).gt(0).logical_or(at::eye(4, f64()).gt(0));
        mask = distribute_tensor(*plain_mask, mesh, {Replicate()});
      }
      auto y = at::scaled_dot_product_attention(q, q, q, mask, 0.0, !masked);
      auto want =
          at::scaled_dot_product_attention(p, p, p, plain_mask, 0.0, !masked);
      EXPECT_TRUE(close(y, want));
      y.pow(2).sum().backward(), want.pow(2).sum().backward();
      EXPECT_TRUE(close(q.grad(), p.grad()));
    }
  });
}

TEST(Training, EqualsThePlainRunWithLbfgs) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto p = distinct({6, 4});
    const auto x = distribute_tensor(p, mesh, {Shard(0)});
    auto plain = distinct({4, 3}).requires_grad_();
    auto w =
        distribute_tensor(plain.detach(), mesh, {Shard(0)}).requires_grad_();
    const auto options =
        torch::optim::LBFGSOptions(0.5).max_iter(5).line_search_fn(
            "strong_wolfe");
    const auto step = [](torch::optim::LBFGS& optimizer, const at::Tensor& in,
                         const at::Tensor& weight) {
      return optimizer.step([&] {
        optimizer.zero_grad();
        auto loss = (in.mm(weight).tanh() - 0.3).pow(2).mean();
        loss.backward();
        return loss;
      });
    };
    torch::optim::LBFGS a({w}, options), b({plain}, options);
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(close(step(a, x, w), step(b, p, plain), 1e-8));
      EXPECT_TRUE(close(w, plain, 1e-8));
    }
  });
}

}  // namespace
}  // namespace tessera
