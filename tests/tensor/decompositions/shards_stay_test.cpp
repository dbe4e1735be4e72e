// Operators along sharded dims that keep the shards: values, gradients, the
// placements of results, and exactly the bytes that must move.
#include <ATen/ops/scaled_dot_product_attention.h>
#include <tensor/decompositions/along_cut_dims.h>

namespace tessera {
namespace {

using testing::bytes_of;
using testing::close;
using testing::cut_of;
using testing::distinct;
using testing::error_of;
using testing::expect_equal;
using testing::f32;
using testing::f64;
using testing::leaf;
using testing::mesh_of;
using testing::same;
using testing::Tensors;

int64_t gathered_bytes() {
  int64_t bytes = 0;
  for (const GatherCount& count : gather_counts()) {
    bytes += count.bytes;
  }
  return bytes;
}

TEST(ShardsStay, NumbersOfAShardedDimStayOnTheirRank) {
  for (const int64_t index : {0, 3, -1}) {
    for (const auto& shape :
         std::vector<std::vector<int64_t>>{{8, 3}, {7, 2}, {5}, {4, 1, 3}}) {
      expect_equal("select", {distinct(shape)}, {0}, [&](const Tensors& x) {
        return Tensors{x[0].select(0, index) * 2};
      });
    }
  }
  run_ranks(5, [&] {  // one is outside
    const auto mesh = mesh_of({4});
    const at::Tensor plain = distinct({8, 16}, f32());
    at::Tensor x = cut_of(plain, mesh, {Shard(0)});
    at::Tensor row;
    EXPECT_EQ(bytes_of([&] { return row = x.select(0, 5); }), 0);
    EXPECT_EQ(placements(row), Placements{RaggedShard(0, {0, 0, 16, 0})});
    row.mul_(3);  // a view: the shard is written
    if (rank() < 4) {
      plain.select(0, 5).mul_(3);
      EXPECT_TRUE(same(x, plain));
      EXPECT_TRUE(same(row, plain[5]));
    }
    // Without a free dim one row moves.
    const at::Tensor line = cut_of(distinct({400}, f64()), mesh, {Shard(0)});
    const int64_t bytes = bytes_of([&] { return line.select(0, 399) + 1; });
    EXPECT_LE(bytes, 8);
  });
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    at::Tensor x = cut_of(distinct({8, 16}, f32()), mesh, {Shard(0)});
    x.set_requires_grad(true);
    const at::Tensor sum = x.select(0, 5).sum();
    EXPECT_EQ(
        bytes_of([&] {
          sum.backward();
          return 0;
        }),
        0);
    EXPECT_EQ(placements(x.grad()), Placements{Shard(0)});
  });
}

TEST(ShardsStay, ChunksAndSlicesAndTheirGradients) {
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{8, 3}, {7, 2}, {5}, {2, 3}}) {
    expect_equal("chunk", {distinct(shape)}, {0}, [](const Tensors& x) {
      return Tensors(x[0].chunk(2, 0));
    });
    expect_equal("slice", {distinct(shape)}, {0}, [](const Tensors& x) {
      return Tensors{x[0].slice(0, 1, 4, 2) * 2};
    });
  }
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    at::Tensor x = cut_of(distinct({8, 4}, f32()), mesh, {Shard(0)});
    x.set_requires_grad(true);
    EXPECT_EQ(bytes_of([&] { return x.chunk(2, 0); }), 0);
    const at::Tensor half = x.slice(0, 4, 8).sum();
    EXPECT_EQ(
        bytes_of([&] {
          half.backward();
          return 0;
        }),
        0);
    EXPECT_EQ(placements(x.grad()), Placements{Shard(0)});
  });
}

TEST(ShardsStay, RollFlipAndPadExchangeRows) {
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{8, 3}, {7, 2}, {2, 3}, {3, 4, 5}}) {
    for (const int64_t by : {1, -2, 11}) {
      expect_equal("roll", {distinct(shape)}, {0}, [&](const Tensors& x) {
        return Tensors{x[0].roll({by, 1}, {0, 1})};
      });
    }
    expect_equal("flip", {distinct(shape)}, {0}, [](const Tensors& x) {
      return Tensors{x[0].flip({0}), x[0].flip({1, 0})};
    });
    for (const std::vector<int64_t>& pad :
         {std::vector<int64_t>{0, 0, 1, 2}, {1, 0, -1, 0}, {2, 2, 3, -1}}) {
      std::vector<int64_t> padding = pad;
      padding.insert(padding.begin(), 2 * (shape.size() - 2), 0);
      expect_equal("pad", {distinct(shape)}, {0}, [&](const Tensors& x) {
        return Tensors{at::constant_pad_nd(x[0], padding, 1.5)};
      });
    }
  }
  run_ranks(5, [&] {
    const auto mesh = mesh_of({4});
    const at::Tensor x = cut_of(distinct({16, 8}, f32()), mesh, {Shard(0)});
    const int64_t row = rank() < 4 ? 8 * 4 : 0;
    at::Tensor y;
    EXPECT_EQ(bytes_of([&] { return y = x.roll({1}, {0}); }), row);
    EXPECT_EQ(placements(y), Placements{Shard(0)});
    EXPECT_EQ(bytes_of([&] { return y = x.flip({0}); }), 4 * row);
    EXPECT_EQ(placements(y), Placements{Shard(0)});
    // 16 + 4 rows: 5 on each; rank r holds 4 r - 1 and needs up to 4 of others.
    bytes_of([&] { return y = at::constant_pad_nd(x, {0, 0, 0, 4}); });
    EXPECT_EQ(placements(y), Placements{Shard(0)});
    EXPECT_NE(
        explain("roll", x, std::vector<int64_t>{1}, std::vector<int64_t>{0})
            .find("rows of neighbours, "),
        std::string::npos);
  });
}

TEST(ShardsStay, TrianglesGoByThePlaceOfTheShard) {
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{8, 8}, {7, 5}, {2, 3}, {2, 5, 4}}) {
    const auto ndim = static_cast<int64_t>(shape.size());
    for (const int64_t d : {ndim - 2, ndim - 1}) {
      for (const int64_t diagonal : {0, 2, -1}) {
        expect_equal("tril", {distinct(shape)}, {d}, [&](const Tensors& x) {
          return Tensors{x[0].tril(diagonal), x[0].triu(diagonal)};
        });
      }
    }
  }
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    const at::Tensor plain = distinct({6, 6});
    at::Tensor x = cut_of(plain, mesh, {Shard(0), Shard(1)});
    EXPECT_EQ(bytes_of([&] { return x.tril_(1); }), 0);
    EXPECT_TRUE(same(x, plain.tril(1)));
    EXPECT_EQ(placements(x), (Placements{Shard(0), Shard(1)}));
  });
}

TEST(ShardsStay, DiagonalsAndTracesStayOnTheirRanks) {
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{8, 8}, {7, 5}, {2, 9}}) {
    for (const int64_t d : {0, 1}) {
      for (const int64_t offset : {0, 2, -1, 20}) {
        expect_equal("diagonal", {distinct(shape)}, {d}, [&](const Tensors& x) {
          return Tensors{
              x[0].diagonal(offset) * 2, x[0].diagonal(-offset, 1, 0) + 1};
        });
      }
      expect_equal("trace", {distinct(shape)}, {d}, [](const Tensors& x) {
        return Tensors{at::trace(x[0])};
      });
    }
  }
  expect_equal("batches", {distinct({3, 5, 6})}, {1}, [](const Tensors& x) {
    return Tensors{x[0].diagonal(1, 1, 2) * 2, x[0].diagonal(0, 2, 0) * 3};
  });
  expect_equal(
      "both dims", {distinct({7, 6})}, {0},
      [](const Tensors& x) {
        return Tensors{at::trace(x[0]), x[0].diagonal(1) * 2};
      },
      1e-10, /*backward=*/true, testing::grids());
  run_ranks(5, [&] {  // one is outside
    const auto mesh = mesh_of({4});
    const at::Tensor plain = distinct({8, 6});
    at::Tensor x = cut_of(plain, mesh, {Shard(0)});
    at::Tensor diagonal;
    EXPECT_EQ(
        bytes_of([&] {
          static_cast<void>(at::trace(x));
          return diagonal = x.diagonal(1);
        }),
        0);
    EXPECT_EQ(placements(diagonal), Placements{Shard(0)});  // 2 2 1 0
    diagonal.mul_(3);  // a view: the shard is written
    if (rank() < 4) {
      plain.diagonal(1).mul_(3);
      EXPECT_TRUE(same(x, plain));
    }
  });
}

TEST(ShardsStay, TransformsOfAllDimsTakeOneAllToAll) {
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{8, 8}, {7, 6}, {5, 4, 4}, {2, 9}}) {
    for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
      expect_equal("fftn", {distinct(shape)}, {d}, [](const Tensors& x) {
        return Tensors{
            at::real(at::fft_fftn(x[0])), at::imag(at::fft_ifftn(x[0]))};
      });
      expect_equal("rfftn", {distinct(shape)}, {d}, [](const Tensors& x) {
        return Tensors{at::real(at::fft_rfftn(x[0]))};
      });
      expect_equal("irfftn", {distinct(shape)}, {d}, [](const Tensors& x) {
        return Tensors{
            at::fft_irfftn(at::complex(x[0], x[0] * 2)),
            at::fft_irfftn(at::complex(x[0], x[0]), {}, {}, "ortho") * 2};
      });
    }
  }
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const at::Tensor plain = at::complex(distinct({8, 8}), distinct({8, 8}));
    const at::Tensor x = cut_of(plain, mesh, {Shard(0)});
    CommLog log;
    const at::Tensor y = at::fft_fftn(x);
    ASSERT_EQ(log.count(), 1);
    EXPECT_EQ(log.entries().at(0).kind, "all_to_all");
    EXPECT_EQ(log.bytes(), (16 - 4) * 16);
    EXPECT_EQ(placements(y), Placements{Shard(1)});
    EXPECT_TRUE(
        close(at::view_as_real(y), at::view_as_real(at::fft_fftn(plain))));
    // The real dim comes first, or last: twice where it is in the way.
    const StrictMode strict({.communication = false, .gathers = true});
    const auto count_of = [](const auto& body) {
      CommLog calls;
      static_cast<void>(body());
      return calls.count();
    };
    const at::Tensor real = distinct({16, 16});
    EXPECT_EQ(
        count_of([&] { return at::fft_rfftn(cut_of(real, mesh, {Shard(0)})); }),
        1);
    EXPECT_EQ(
        count_of([&] { return at::fft_rfftn(cut_of(real, mesh, {Shard(1)})); }),
        2);
    EXPECT_EQ(count_of([&] { return at::fft_irfftn(x); }), 2);
    EXPECT_EQ(
        count_of(
            [&] { return at::fft_irfftn(cut_of(plain, mesh, {Shard(1)})); }),
        1);
  });
}

// Every number of heads of query and of key and value that ranks divide.
TEST(ShardsStay, AttentionByHeadsThatShareKeysMovesNothing) {
  struct HeadCounts {
    int64_t heads, shared, ranks;
  };
  std::vector<HeadCounts> all;
  for (const int64_t heads : {4, 6, 8, 12, 16}) {
    for (int64_t shared = 2; shared < heads; ++shared) {
      for (const int64_t ranks : {2, 3, 4}) {
        if (heads % shared == 0 && shared % ranks == 0) {
          all.push_back({heads, shared, ranks});
        }
      }
    }
  }
  for (const HeadCounts& c : all) {
    SCOPED_TRACE(c10::str(c.heads, " heads, ", c.shared, ", ", c.ranks));
    run_ranks(static_cast<int>(c.ranks), [&] {
      const auto mesh = mesh_of({c.ranks});
      const std::vector<at::Tensor> plain{
          leaf(distinct({2, c.heads, 5, 4}, f32()) / 100),
          leaf(distinct({2, c.shared, 5, 4}, f32()) / 100),
          leaf(distinct({2, c.shared, 5, 4}, f32()) / 90)};
      Tensors x;
      for (const at::Tensor& t : plain) {
        x.push_back(leaf(cut_of(t.detach(), mesh, {Shard(1)})));
      }
      const auto attend = [](const Tensors& t) {
        return at::scaled_dot_product_attention(
            t[0], t[1], t[2], {}, 0.0, /*is_causal=*/true, std::nullopt,
            /*enable_gqa=*/true);
      };
      at::Tensor y;
      EXPECT_EQ(bytes_of([&] { return y = attend(x); }), 0);
      EXPECT_EQ(placements(y), Placements{Shard(1)});
      const at::Tensor want = attend(plain);
      EXPECT_TRUE(close(y, want, 1e-5));
      want.pow(2).sum().backward();
      const at::Tensor loss = y.pow(2).sum();
      EXPECT_EQ(
          bytes_of([&] {
            loss.backward();
            return 0;
          }),
          0);
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(close(x[i].grad(), plain[i].grad(), 1e-5)) << i;
        EXPECT_EQ(placements(x[i].grad()), Placements{Shard(1)});
      }
    });
  }
}

// More ranks than heads of key and value: groups of ranks share one. Of
// replicated keys and values nothing moves; of sharded ones one head comes, not
// all of them, and its gradient goes back.
TEST(ShardsStay, AttentionByGroupsOfRanksThatShareAHead) {
  struct HeadCounts {
    int64_t heads, shared, ranks;
  };
  for (const HeadCounts& c : std::vector<HeadCounts>{
           {8, 2, 4}, {4, 1, 4}, {4, 1, 2}, {6, 3, 6}, {16, 2, 8}}) {
    for (const Placement& keys : {Replicate(), Shard(1)}) {
      SCOPED_TRACE(c10::str(
          c.heads, " heads, ", c.shared, ", ", c.ranks, " ranks, keys ",
          to_string(keys)));
      run_ranks(static_cast<int>(c.ranks), [&] {
        const auto mesh = mesh_of({c.ranks});
        const StrictMode strict({.communication = false, .gathers = true});
        const Tensors plain{
            leaf(distinct({2, c.heads, 5, 4}, f32()) / 100),
            leaf(distinct({2, c.shared, 5, 4}, f32()) / 100),
            leaf(distinct({2, c.shared, 5, 4}, f32()) / 90)};
        const Tensors x{
            leaf(cut_of(plain[0].detach(), mesh, {Shard(1)})),
            leaf(cut_of(plain[1].detach(), mesh, {keys})),
            leaf(cut_of(plain[2].detach(), mesh, {keys}))};
        const auto attend = [](const Tensors& t) {
          return at::scaled_dot_product_attention(
              t[0], t[1], t[2], {}, 0.0, /*is_causal=*/true, std::nullopt,
              /*enable_gqa=*/true);
        };
        at::Tensor y;
        const int64_t bytes = bytes_of([&] { return y = attend(x); });
        const int64_t head = int64_t{2} * 5 * 4 * 4;
        const int64_t sent = c.ranks / c.shared;  // a holder's, one its own
        EXPECT_LE(bytes, keys.is_shard() ? 2 * sent * head : 0);
        EXPECT_EQ(placements(y), Placements{Shard(1)});
        const at::Tensor want = attend(plain);
        EXPECT_TRUE(close(y, want, 1e-5));
        want.pow(2).sum().backward();
        y.pow(2).sum().backward();
        for (size_t i = 0; i < 3; ++i) {
          EXPECT_TRUE(close(x[i].grad(), plain[i].grad(), 1e-5)) << i;
          EXPECT_EQ(placements(x[i].grad()), placements(x[i]));
        }
      });
    }
  }
}

TEST(ShardsStay, AttentionOnTwoMeshDims) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    const at::Tensor q = distinct({2, 8, 5, 4}, f32()) / 100;
    const at::Tensor k = distinct({2, 4, 5, 4}, f32()) / 100;
    for (const Placements& p :
         {Placements{Shard(0), Shard(1)}, Placements{Shard(1), Shard(1)},
          Placements{Replicate(), Shard(1)}}) {
      const at::Tensor want = at::scaled_dot_product_attention(
          q, k, k, {}, 0.0, false, std::nullopt, true);
      at::Tensor y;
      const at::Tensor cut_q = cut_of(q, mesh, p), cut_k = cut_of(k, mesh, p);
      EXPECT_EQ(
          bytes_of([&] {
            return y = at::scaled_dot_product_attention(
                       cut_q, cut_k, cut_k, {}, 0.0, false, std::nullopt, true);
          }),
          0);
      EXPECT_EQ(placements(y), p);
      EXPECT_TRUE(close(y, want, 1e-5));
    }
  });
}

// Weights are replicated; their gradients are sums, which move when asked for.
TEST(ShardsStay, RecurrentLayersByBatchMoveNothing) {
  for (const int64_t gates : {4, 3, 1}) {  // LSTM, GRU, RNN
    for (const auto& [type, first] :
         std::vector<std::pair<at::ScalarType, bool>>{
             {at::kFloat, false}, {at::kFloat, true}, {at::kDouble, false}}) {
      SCOPED_TRACE(c10::str(gates, " gates, ", type));
      run_ranks(3, [&, dtype = type, batch_first = first] {
        const auto mesh = mesh_of({3});
        const auto options = at::TensorOptions(dtype);
        const int64_t hidden = 4, width = 3, batch = 5;
        Tensors plain_weights;
        Tensors weights;
        for (const auto& shape : std::vector<std::vector<int64_t>>{
                 {gates * hidden, width},
                 {gates * hidden, hidden},
                 {gates * hidden},
                 {gates * hidden}}) {
          plain_weights.push_back(leaf(distinct(shape, options) / 100));
          weights.push_back(
              leaf(cut_of(plain_weights.back().detach(), mesh, {Replicate()})));
        }
        const std::vector<int64_t> shape =
            batch_first ? std::vector<int64_t>{batch, 6, width}
                        : std::vector<int64_t>{6, batch, width};
        const at::Tensor plain_x = leaf(distinct(shape, options) / 50);
        const at::Tensor plain_h = distinct({1, batch, hidden}, options) / 50;
        const at::Tensor x =
            leaf(cut_of(plain_x.detach(), mesh, {Shard(batch_first ? 0 : 1)}));
        const at::Tensor h = cut_of(plain_h, mesh, {Shard(1)});
        const auto run = [&](const at::Tensor& in, const at::Tensor& state,
                             const Tensors& w) {
          if (gates == 3) {
            return std::get<0>(
                at::gru(in, state, w, true, 1, 0.0, true, false, batch_first));
          }
          if (gates == 1) {
            return std::get<0>(at::rnn_tanh(
                in, state, w, true, 1, 0.0, true, false, batch_first));
          }
          return std::get<0>(at::lstm(
              in, {state, state}, w, true, 1, 0.0, true, false, batch_first));
        };
        at::Tensor y;
        const int64_t bytes = bytes_of([&] { return y = run(x, h, weights); });
        EXPECT_EQ(bytes, 0);
        EXPECT_EQ(placements(y), Placements{Shard(batch_first ? 0 : 1)});
        const at::Tensor want = run(plain_x, plain_h, plain_weights);
        EXPECT_TRUE(close(y, want, 1e-5));
        want.pow(2).sum().backward();
        y.pow(2).sum().backward();
        EXPECT_TRUE(close(x.grad(), plain_x.grad(), 1e-4));
        for (size_t i = 0; i < weights.size(); ++i) {
          EXPECT_TRUE(close(weights[i].grad(), plain_weights[i].grad(), 1e-4))
              << i;
        }
      });
    }
  }
}

// A fused layer that ran on whole values, and whose gradient comes in parts.
TEST(ShardsStay, RecurrentLayersTakeGradientsInOtherPlacements) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto options = at::TensorOptions(at::kFloat);
    Tensors plain_weights;
    Tensors weights;
    for (const auto& shape :
         std::vector<std::vector<int64_t>>{{16, 3}, {16, 4}, {16}, {16}}) {
      plain_weights.push_back(leaf(distinct(shape, options) / 100));
      weights.push_back(
          leaf(cut_of(plain_weights.back().detach(), mesh, {Replicate()})));
    }
    const auto run = [](const at::Tensor& in, const at::Tensor& state,
                        const Tensors& w) {
      return std::get<0>(
          at::lstm(in, {state, state}, w, true, 1, 0.0, true, false, false));
    };
    const at::Tensor plain_x = leaf(distinct({5, 6, 3}, options) / 50);
    const at::Tensor plain_h = at::zeros({1, 6, 4}, options);
    const at::Tensor mask = distinct({5, 6, 4}, options) / 50;
    (run(plain_x, plain_h, plain_weights) * mask).sum().backward();
    for (const Placement& in : {Replicate(), Shard(1), Shard(2)}) {
      for (const Placement& out : {Replicate(), Shard(0), Shard(1)}) {
        const at::Tensor x = leaf(cut_of(plain_x.detach(), mesh, {in}));
        const at::Tensor h = cut_of(plain_h, mesh, {Replicate()});
        (run(x, h, weights) * cut_of(mask, mesh, {out})).sum().backward();
        EXPECT_TRUE(close(x.grad(), plain_x.grad(), 1e-4))
            << to_string(in) << " " << to_string(out);
      }
    }
  });
}

TEST(ShardsStay, NothingAboveIsGathered) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const StrictMode strict({.communication = false, .gathers = true});
    const at::Tensor x = cut_of(distinct({8, 8}), mesh, {Shard(0)});
    init().communicator().barrier();
    const int64_t before = gathered_bytes();
    init().communicator().barrier();
    static_cast<void>(x.select(0, 3) + 1);
    static_cast<void>(x.chunk(2, 0));
    static_cast<void>(x.roll({1}, {0}));
    static_cast<void>(x.flip({0}));
    static_cast<void>(at::constant_pad_nd(x, {0, 0, 1, 1}));
    static_cast<void>(x.tril());
    static_cast<void>(at::fft_fftn(x));
    init().communicator().barrier();
    EXPECT_EQ(gathered_bytes(), before);
  });
}

}  // namespace
}  // namespace tessera
