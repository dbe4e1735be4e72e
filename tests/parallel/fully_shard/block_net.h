// The net of training.md's counts, and what tests of fully_shard share.
#pragma once

#include "../gpt_training.h"

namespace tessera::testing {

/// An embedding 50x16, three blocks 16-64-16, a head 16-50.
struct BlockNetBlock : torch::nn::Module {
  BlockNetBlock(int64_t width, int64_t hidden) {
    up = register_module("up", torch::nn::Linear(width, hidden));
    down = register_module("down", torch::nn::Linear(hidden, width));
  }
  at::Tensor forward(const at::Tensor& x) {
    return x + down(torch::tanh(up(x)));
  }
  torch::nn::Linear up = nullptr, down = nullptr;
};

struct BlockNetSizes {
  int64_t width = 16;
  int64_t hidden = 64;
  int64_t blocks = 3;
};

struct BlockNet : torch::nn::Module {
  explicit BlockNet(
      at::ScalarType dtype = at::kDouble, const BlockNetSizes& sizes = {}) {
    tokens = register_module("tokens", torch::nn::Embedding(50, sizes.width));
    for (int64_t i = 0; i < sizes.blocks; ++i) {
      blocks->push_back(
          std::make_shared<BlockNetBlock>(sizes.width, sizes.hidden));
    }
    register_module("blocks", blocks);
    head = register_module("head", torch::nn::Linear(sizes.width, 50));
    to(device(), dtype);
    const torch::NoGradGuard guard;
    double shift = 0.01;
    for (const at::Tensor& p : parameters()) {
      p.copy_(distinct(p.sizes()).mul(7).sin().mul(0.2).add(shift));
      shift += 0.01;
    }
  }
  at::Tensor hidden(const at::Tensor& indices) {
    at::Tensor x = tokens(indices);
    for (const auto& block : *blocks) {
      x = block->as<BlockNetBlock>()->forward(x);
    }
    return x;
  }
  at::Tensor forward(const at::Tensor& indices) {
    return head(hidden(indices));
  }
  BlockNetBlock& block(size_t i) { return *blocks[i]->as<BlockNetBlock>(); }
  torch::nn::Embedding tokens = nullptr;
  torch::nn::ModuleList blocks;
  torch::nn::Linear head = nullptr;
};

inline at::Tensor net_indices(int64_t step) {
  return at::arange(12, i64()).mul(7).add(step).remainder(50);
}
inline at::Tensor net_loss(const at::Tensor& logits) {
  return (logits * logits).mean() + logits.sum() * 0.01;
}
/// The loss of the whole batch, which `mesh` cuts along its first dim.
inline at::Tensor net_loss_on(
    BlockNet& net, const DeviceMesh& mesh, int64_t step = 0) {
  Placements placements(static_cast<size_t>(mesh.ndim()), Replicate());
  placements[0] = Shard(0);
  return net_loss(
      net.forward(distribute_tensor(net_indices(step), mesh, placements)));
}
inline at::Tensor plain_net_loss(BlockNet& net, int64_t step = 0) {
  return net_loss(net.forward(net_indices(step)));
}

/// Every gradient of `net` is that of `plain`, and lies as its parameter.
inline void expect_equal_gradients(
    const BlockNet& net, const BlockNet& plain, double tolerance = 1e-12) {
  const auto mine = net.named_parameters();
  for (const auto& p : plain.named_parameters()) {
    const at::Tensor& parameter = mine[p.key()];
    ASSERT_EQ(parameter.grad().defined(), p.value().grad().defined())
        << p.key();
    if (p.value().grad().defined()) {
      EXPECT_EQ(placements(parameter.grad()), placements(parameter));
      EXPECT_TRUE(close(parameter.grad(), p.value().grad(), tolerance))
          << p.key();
    }
  }
}

/// Tells whether ranks gather through buffers.
inline bool packs() {
  return init().engine() != "threads" || std::getenv("TESSERA_PACK") != nullptr;
}

struct Counts {
  int64_t gathers = 0;
  int64_t gather_bytes = 0;
  int64_t reductions = 0;
  int64_t reduction_bytes = 0;
  int64_t other = 0;  // not of fully_shard
  friend bool operator==(const Counts&, const Counts&) = default;
};
inline std::ostream& operator<<(std::ostream& out, const Counts& c) {
  return out << c.gathers << " gathers, " << c.gather_bytes << " bytes, "
             << c.reductions << " reductions, " << c.reduction_bytes
             << " bytes, " << c.other << " others";
}
/// Counts what is larger than the sums of single numbers; batches are
/// scattered.
inline Counts counts_of(const CommLog& log) {
  Counts counts;
  for (const CommLogEntry& entry : log.entries()) {
    if (entry.kind == "all_gather") {
      ++counts.gathers;
      counts.gather_bytes += entry.bytes;
    } else if (entry.kind == "reduce_scatter") {
      ++counts.reductions;
      counts.reduction_bytes += entry.bytes;
    } else if (entry.bytes > 16 && entry.kind != "scatter") {
      ++counts.other;
    }
  }
  return counts;
}

}  // namespace tessera::testing
