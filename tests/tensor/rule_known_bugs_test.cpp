// Wrong answers that another implementation of sharded tensors gave, one test
// each. Numbers are issues of github.com/pytorch/pytorch unless another
// repository is named; "measured" were found by running it.
#include <harness/sharded_test.h>

#include <functional>
#include <set>

namespace tessera {
namespace {

using testing::close;
using testing::counting;
using testing::distinct;
using testing::error_of;
using testing::f32;
using testing::f64;
using testing::i64;
using testing::mesh_of;
using testing::same;

at::Tensor cut(
    const at::Tensor& value, const DeviceMesh& mesh, const std::string& text) {
  return distribute_tensor(value, mesh, parse_placements(text));
}

// A leaf in these placements.
at::Tensor leaf(
    const at::Tensor& value, const DeviceMesh& mesh, const std::string& text) {
  return cut(value, mesh, text).requires_grad_();
}

// A tensor of which rank r has the addend (or candidate) `of(r)`.
template <class F>
at::Tensor parts(const DeviceMesh& mesh, const Placement& placement, F of) {
  return from_local(of(rank()), mesh, {placement});
}

// Values and gradients of `op` on a tensor in each of the placements equal the
// plain ones.
void expect_plain(
    int ranks, const std::vector<int64_t>& shape, const at::Tensor& value,
    const std::vector<std::string>& layouts,
    const std::function<at::Tensor(const at::Tensor&)>& op) {
  run_ranks(ranks, [&] {
    const auto mesh = mesh_of(shape);
    for (const std::string& text : layouts) {
      SCOPED_TRACE(text);
      auto t = leaf(value, mesh, text);
      auto p = value.clone().requires_grad_();
      const at::Tensor got = op(t), want = op(p);
      EXPECT_TRUE(close(got, want));
      if (!want.requires_grad()) {
        continue;
      }
      const at::Tensor weights = distinct(want.sizes()).add(1.5);
      (want * weights).sum().backward();
      const ImplicitReplication guard;
      (got * weights).sum().backward();
      ASSERT_EQ(t.grad().defined(), p.grad().defined());
      EXPECT_TRUE(!p.grad().defined() || close(t.grad(), p.grad()));
    }
  });
}

// --- uneven and empty shards

TEST(KnownBugs, FiveRowsOverFourRanksGatherToFive) {  // 103306
  run_ranks(4, [&] {
    const auto t = cut(distinct({5, 3}), mesh_of({4}), "S(0)");
    const auto r = redistribute(t, {Replicate()});
    EXPECT_EQ(to_local(r).sizes(), at::IntArrayRef({5, 3}));
    EXPECT_TRUE(same(r, distinct({5, 3})));
  });
}

TEST(KnownBugs, UnevenShardsOfATwoDimMeshGatherWhole) {  // 115310, 194457
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    for (const int64_t rows : {1, 2, 3, 5, 7}) {
      for (const char* text :
           {"S(0) S(0)", "S(0)[1] S(0)[0]", "S(0) S(1)", "S(1) S(0)",
            "R S(0)"}) {
        EXPECT_TRUE(same(
            full_tensor(cut(distinct({rows, 3}), mesh, text)),
            distinct({rows, 3})))
            << rows << " " << text;
      }
    }
  });
}

TEST(KnownBugs, FromLocalNoticesShardsOfDifferentSizes) {  // 110762
  EXPECT_ERROR("from_local", run_ranks(2, [&] {
                 const auto mesh = mesh_of({2});
                 from_local(
                     counting({rank() == 0 ? 3 : 2, 4}), mesh, {Shard(0)},
                     {.run_check = true});
               }));
  run_ranks(2, [&] {
    const auto t = from_local(
        distinct({5, 4}).slice(0, rank() == 0 ? 0 : 3, rank() == 0 ? 3 : 5),
        mesh_of({2}), {Shard(0)}, {.shape = {{5, 4}}});
    EXPECT_TRUE(same(full_tensor(t), distinct({5, 4})));
  });
}

TEST(KnownBugs, FromLocalRefusesSizesThatAreNoChunks) {  // 144109
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const int64_t rows = 2 + rank();  // 2, 3, 4, 5 of 14: chunks are 4, 4, 4, 2
    if (rank() != 2) {
      EXPECT_ERROR(
          "does not fit",
          from_local(
              counting({rows, 2}), mesh, {Shard(0)}, {.shape = {{14, 2}}}));
    }
    const int64_t before = rank() * (rank() + 3) / 2;
    const auto t = from_local(
        distinct({14, 2}).slice(0, before, before + rows), mesh,
        {RaggedShard(0, {2, 3, 4, 5})}, {.shape = {{14, 2}}});
    EXPECT_TRUE(same(full_tensor(t), distinct({14, 2})));
  });
}

TEST(KnownBugs, MeanOfUnevenShardsIsThatOfAllElements) {  // 162692
  for (const int64_t rows : {1, 2, 3, 5}) {
    expect_plain(
        4, {4}, distinct({rows, 3}), {"S(0)", "S(1)"},
        [](const at::Tensor& t) { return t.mean(0); });
    expect_plain(
        4, {4}, distinct({rows, 3}), {"S(0)"},
        [](const at::Tensor& t) { return t.mean(); });
  }
}

TEST(KnownBugs, AStridedShardOfFiveIsCutWhereItsPiecesEnd) {  // 168134
  run_ranks(2, [&] {
    const auto t = cut(counting({5}), mesh_of({2}), "SS(0,2)");
    // pieces 0 1 2 and 3 4, each halved: 0 1 3 and 2 4
    EXPECT_TRUE(at::equal(
        to_local(t), rank() == 0 ? at::tensor({0., 1., 3.}, f64())
                                 : at::tensor({2., 4.}, f64())));
    EXPECT_TRUE(same(t.add(1).mul(2), counting({5}).add(1).mul(2)));
    EXPECT_TRUE(same(t.sum(), counting({5}).sum()));
    EXPECT_TRUE(same(t.flip(0), counting({5}).flip(0)));
  });
}

TEST(KnownBugs, RowsCutByTwoMeshDimsComeBackInOrder) {  // 129206, 129229
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2}, {"dp", "tp"});
    for (const int64_t rows : {8, 7}) {
      const auto value = counting({rows, 2});
      EXPECT_TRUE(same(full_tensor(cut(value, mesh, "SS(0,2) S(0)")), value));
      const auto by_tp = cut(value, mesh, "R S(0)");
      EXPECT_TRUE(same(
          full_tensor(redistribute(by_tp, parse_placements("S(0)[1] S(0)[0]"))),
          value));
    }
  });
}

TEST(KnownBugs, ChunksOfUnevenNestedShardsCoverEachRowOnce) {
  // 161368, 150862, 121002, 188947
  for (const int64_t rows : {0, 1, 2, 3, 5, 7}) {
    std::mutex mutex;
    std::vector<int> covered(static_cast<size_t>(rows), 0);
    run_ranks(4, [&] {
      const auto t = cut(counting({rows, 2}), mesh_of({2, 2}), "S(0) S(0)");
      for (const ChunkStorageMetadata& chunk : chunk_list(t)) {
        const int64_t end = chunk.offsets[0] + chunk.sizes[0];
        ASSERT_LE(end, rows) << "inside the tensor";
        const std::lock_guard<std::mutex> lock(mutex);
        for (int64_t i = chunk.offsets[0]; i < end; ++i) {
          ++covered[static_cast<size_t>(i)];
        }
      }
    });
    EXPECT_EQ(covered, std::vector<int>(static_cast<size_t>(rows), 1));
  }
}

TEST(KnownBugs, WhatWasGatheredFromUnevenShardsCanBeViewed) {  // 173041
  run_ranks(4, [&] {
    const auto t = cut(distinct({3, 5}), mesh_of({4}), "S(1)");
    const auto r = redistribute(t, {Replicate()});
    EXPECT_TRUE(to_local(r).is_contiguous());
    EXPECT_TRUE(same(to_local(r).view({15}), distinct({15})));
  });
}

TEST(KnownBugs, ExtremesOfEmptyShardsDecideNothing) {  // measured
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> ops = {
      [](auto& t) { return t.max(); },
      [](auto& t) { return t.min(); },
      [](auto& t) { return t.amax(0); },
      [](auto& t) { return t.amin(0); },
      [](auto& t) { return std::get<0>(t.max(0)); },
      [](auto& t) { return std::get<1>(t.max(0)); },
      [](auto& t) { return std::get<1>(t.min(0)); },
      [](auto& t) { return t.argmax(0); },
      [](auto& t) { return t.argmin(); },
      [](auto& t) { return at::linalg_vector_norm(t, INFINITY, 0); },
      [](auto& t) { return at::linalg_vector_norm(t, -INFINITY, 0); },
      [](auto& t) { return at::linalg_vector_norm(t, 0, 0); },
  };
  for (const auto& op : ops) {
    // All negative: a zero from an empty shard would win a maximum.
    expect_plain(4, {4}, distinct({2, 3}).sub(5), {"S(0)", "S(1)"}, op);
    expect_plain(4, {4}, distinct({2, 3}).add(5), {"S(0)", "S(1)"}, op);
  }
}

// --- partial values

TEST(KnownBugs, ANumberIsAddedToASumOnce) {  // 163193, 149768
  expect_plain(
      3, {3}, distinct({4, 3}), {"P(sum)", "P(avg)", "P(max)", "S(0)"},
      [](const at::Tensor& t) { return 1.5 - (t + 2.0).add(3, 2) - 1; });
  expect_plain(2, {2}, distinct({4, 3}), {"P(sum)"}, [](const at::Tensor& t) {
    return (t + 1e-6).reciprocal();
  });
}

TEST(KnownBugs, ClippingGradientsAddsItsEpsilonOnce) {  // 149768
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    std::vector<at::Tensor> sharded, plain;
    for (const char* text : {"S(0)", "S(1)", "R"}) {
      const auto value = distinct({4, 4}).add(sharded.size());
      sharded.push_back(leaf(value, mesh, text));
      plain.push_back(value.clone().requires_grad_());
      sharded.back().mutable_grad() = cut(value * 3, mesh, text);
      plain.back().mutable_grad() = value * 3;
    }
    const double got = torch::nn::utils::clip_grad_norm_(sharded, 1.0);
    const double want = torch::nn::utils::clip_grad_norm_(plain, 1.0);
    EXPECT_NEAR(got, want, 1e-9);
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_TRUE(close(sharded[i].grad(), plain[i].grad()));
    }
  });
}

TEST(KnownBugs, ASumTimesAnotherNumberIsAnotherResult) {  // 147180, 153603
  run_ranks(2, [&] {
    const auto t = cut(distinct({4, 3}), mesh_of({2}), "P(sum)");
    for (const double by : {2.0, 3.0, -1.0, 0.5, 2.0}) {
      EXPECT_TRUE(close(t * by, distinct({4, 3}) * by)) << by;
      EXPECT_TRUE(close(t / by, distinct({4, 3}) / by)) << by;
      EXPECT_TRUE(close(t.pow(by), distinct({4, 3}).pow(by))) << by;
    }
  });
}

TEST(KnownBugs, NormsAndExtremesOfSumsAreThoseOfTheWhole) {  // 165962, 159856
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    // Addends that cancel: 10 + (v - 10).
    const auto value = distinct({4, 3});
    const auto t = parts(mesh, Partial(), [&](int64_t r) {
      return r == 0 ? at::full({4, 3}, 10., f64()) : value - 10;
    });
    EXPECT_TRUE(close(t.max(), value.max()));
    EXPECT_TRUE(close(t.min(), value.min()));
    EXPECT_TRUE(close(t.amax(0), value.amax(0)));
    EXPECT_TRUE(close(t.argmax(), value.argmax()));
    EXPECT_TRUE(close(t.abs(), value.abs()));
    for (const double p : {0., 1., 2., 3.}) {
      EXPECT_TRUE(close(
          at::linalg_vector_norm(t, p, 0), at::linalg_vector_norm(value, p, 0)))
          << p;
      EXPECT_TRUE(close(t.norm(p), value.norm(p))) << p;
    }
    EXPECT_TRUE(close(t.norm(INFINITY), value.norm(INFINITY)));
    EXPECT_TRUE(close(t.std(), value.std()));
  });
}

TEST(KnownBugs, InfiniteNormsOfMaximaAreThoseOfTheWhole) {  // measured
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    // max(-7, -1) = -1: a norm of the parts would say 7.
    for (const Placement& placement :
         {Partial(ReduceOp::kMax), Partial(ReduceOp::kMin)}) {
      const auto t = parts(mesh, placement, [](int64_t r) {
        return distinct({4, 3}).sub(r == 0 ? 7 : 3);
      });
      const auto whole = full_tensor(t);
      for (const double p : {HUGE_VAL, -HUGE_VAL, 1.0, 2.0}) {
        EXPECT_TRUE(close(
            at::linalg_vector_norm(t, p), at::linalg_vector_norm(whole, p)))
            << p << " " << to_string(placement);
      }
    }
  });
}

TEST(KnownBugs, ASumOfNormsIsASumOfWholeNorms) {  // 172288
  expect_plain(
      3, {3}, distinct({5, 4}), {"S(0)", "S(1)", "P(sum)"},
      [](const at::Tensor& t) {
        return at::linalg_vector_norm(t, 2, 0).sum() + t.norm(3).sum();
      });
}

TEST(KnownBugs, AllAndAnyAreNoSums) {  // 165923
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    for (int64_t zeros = 0; zeros <= 6; ++zeros) {
      auto value = at::ones({6, 2}, i64());
      value.slice(0, 0, zeros).zero_();
      for (const char* text : {"S(0)", "S(1)", "R"}) {
        const auto t = cut(value, mesh, text);
        EXPECT_TRUE(same(t.all(), value.all()));
        EXPECT_TRUE(same(t.all(0), value.all(0)));
        EXPECT_TRUE(same(t.any(), value.any()));
        EXPECT_TRUE(same(t.any(0), value.any(0)));
        EXPECT_TRUE(same(t.eq(1).all(0), value.eq(1).all(0)));
      }
    }
  });
}

TEST(KnownBugs, ClampInPlaceClampsTheSum) {  // 163374
  run_ranks(3, [&] {
    auto t = parts(mesh_of({3}), Partial(), [](int64_t r) {
      return counting({4}).add(static_cast<double>(r));
    });
    auto whole = counting({4}).mul(3).add(3);  // 3 6 9 12
    t.clamp_(std::nullopt, 7);
    EXPECT_TRUE(same(t, whole.clamp(std::nullopt, 7)));
    EXPECT_EQ(to_string(placements(t)), "P(sum)");
    EXPECT_TRUE(same(t.relu_(), whole.clamp(std::nullopt, 7)));
  });
}

TEST(KnownBugs, ReadingAPartialValueReducesIt) {
  // 144054, 152406, 166638, 167598
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const auto sum = parts(mesh, Partial(), [](int64_t r) {
      return at::full({}, static_cast<double>(r + 1), f64());
    });
    EXPECT_EQ(sum.item<double>(), 10);
    EXPECT_TRUE((sum > 9).item<bool>());
    EXPECT_TRUE(at::is_nonzero(sum));
    const auto top = parts(mesh, Partial(ReduceOp::kMax), [](int64_t r) {
      return at::full({}, static_cast<double>(r + 1), f64());
    });
    EXPECT_EQ(top.item<double>(), 4);
    const auto loss = cut(distinct({8, 2}), mesh, "S(0)").sum();
    EXPECT_NEAR(
        loss.item<double>(), distinct({8, 2}).sum().item<double>(), 1e-12);
    EXPECT_TRUE(at::equal(sum, cut(at::full({}, 10., f64()), mesh, "R")));
  });
}

TEST(KnownBugs, IndicesOfMaximaAreGlobalAndNeverCombined) {  // 168940, 173936
  const auto value = distinct({7, 5});
  for (const int64_t dim : {0, 1}) {
    expect_plain(
        3, {3}, value, {"S(0)", "S(1)", "P(sum)"}, [&](const at::Tensor& t) {
          return std::get<1>(t.max(dim)) * 10 + t.argmin(dim) +
                 std::get<1>(t.median(dim));
        });
    expect_plain(3, {3}, value, {"S(0)", "S(1)"}, [&](const at::Tensor& t) {
      return std::get<0>(t.max(dim)) + std::get<0>(t.kthvalue(2, dim));
    });
  }
  expect_plain(4, {2, 2}, value, {"S(0) S(1)", "S(0) S(0)"}, [](auto& t) {
    return t.argmax() + t.argmax(0).sum();
  });
}

TEST(KnownBugs, FillingASumFillsItsValue) {  // measured
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    for (const char* text : {"P(sum)", "P(avg)", "P(max)", "P(product)"}) {
      SCOPED_TRACE(text);
      const auto like = [&] { return cut(distinct({3, 2}), mesh, text); };
      EXPECT_TRUE(same(like().fill_(7), at::full({3, 2}, 7., f64())));
      EXPECT_TRUE(same(like().zero_(), at::zeros({3, 2}, f64())));
      EXPECT_TRUE(same(at::full_like(like(), 7), at::full({3, 2}, 7., f64())));
      EXPECT_TRUE(same(at::ones_like(like()), at::ones({3, 2}, f64())));
      auto t = like();
      t.select(0, 1).fill_(9);
      auto p = distinct({3, 2});
      p.select(0, 1).fill_(9);
      EXPECT_TRUE(close(t, p));
    }
  });
  expect_plain(
      2, {2}, distinct({4, 6}), {"P(sum)", "S(0)", "S(1)"},
      [](const at::Tensor& t) {
        const auto sign = at::ones_like(t.select(1, 0).detach());
        return at::cosine_embedding_loss(t, t.flip(1).detach(), sign) +
               at::cosine_embedding_loss(t, t.flip(1).detach(), -sign);
      });
}

TEST(KnownBugs, FillsOfPartsOfASumAreAddedOnce) {  // traps, 5
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto value = distinct({4, 3});
    const auto t = cut(value, mesh, "P(sum)");
    const auto index = at::tensor({2, 0}, i64());
    const auto rows = cut(index, mesh, "R");
    EXPECT_TRUE(close(t.index_fill(0, rows, 5), value.index_fill(0, index, 5)));
    EXPECT_TRUE(close(
        at::constant_pad_nd(t, {1, 1}, 3),
        at::constant_pad_nd(value, {1, 1}, 3)));
    EXPECT_TRUE(close(
        t.masked_fill(cut(value.gt(0.5), mesh, "R"), 4),
        value.masked_fill(value.gt(0.5), 4)));
    EXPECT_TRUE(close(
        t.scatter(0, rows.unsqueeze(1), 6),
        value.scatter(0, index.unsqueeze(1), 6)));
    EXPECT_TRUE(close(
        at::where(cut(value.gt(0.5), mesh, "R"), t, 4),
        at::where(value.gt(0.5), value, 4)));
  });
}

TEST(KnownBugs, PowersAreNotSummedBeforeTheirBases) {  // measured
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto value = distinct({4, 3}).abs().add(0.1);
    for (const char* text : {"P(sum)", "P(avg)", "S(0)", "S(1)"}) {
      const auto t = cut(value, mesh, text);
      EXPECT_TRUE(
          close(at::linalg__powsum(t, 3, 0), at::linalg__powsum(value, 3, 0)))
          << text;
      EXPECT_TRUE(close(t.square().sum(), value.square().sum())) << text;
    }
  });
}

TEST(KnownBugs, NansumSkipsWhatIsNaNInTheSum) {  // measured
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const double nan = std::nan("");
    // inf + -inf and nan + 1 are NaN in the sum only or in one part only.
    const auto a = at::tensor({1.0, nan, INFINITY, 4.0}, f64());
    const auto b = at::tensor({2.0, 1.0, -INFINITY, nan}, f64());
    const auto t =
        parts(mesh, Partial(), [&](int64_t r) { return r == 0 ? a : b; });
    EXPECT_TRUE(same(t.nansum(), (a + b).nansum()));
    EXPECT_TRUE(same(cut(a, mesh, "S(0)").nansum(), a.nansum()));
    EXPECT_TRUE(close(t.nan_to_num(9), (a + b).nan_to_num(9)));
    EXPECT_TRUE(same(t.isnan(), (a + b).isnan()));
  });
}

TEST(KnownBugs, ThresholdOfAMaximumIsThatOfTheWhole) {  // measured
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto low = at::tensor({-1.0, -2.0, 1.0, 3.0}, f64());
    const auto high = at::tensor({2.0, -1.0, 2.0, 4.0}, f64());
    for (const Placement& placement :
         {Partial(ReduceOp::kMax), Partial(ReduceOp::kMin)}) {
      const auto t = parts(
          mesh, placement, [&](int64_t r) { return r == 0 ? low : high; });
      const auto whole = full_tensor(t);
      EXPECT_TRUE(same(at::threshold(t, 0, 5), at::threshold(whole, 0, 5)));
      EXPECT_TRUE(same(at::threshold(t, 0, -5), at::threshold(whole, 0, -5)));
      EXPECT_TRUE(same(at::hardshrink(t, 1.5), at::hardshrink(whole, 1.5)));
      EXPECT_TRUE(close(t.mul(-2), whole.mul(-2)));
      EXPECT_TRUE(close(t.neg().exp(), whole.neg().exp()));
      EXPECT_TRUE(close(t.abs().sqrt(), whole.abs().sqrt()));
      EXPECT_TRUE(close(at::erfc(t), at::erfc(whole)));
    }
  });
}

TEST(KnownBugs, FourierTransformsReduceMaximaFirst) {  // measured
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    for (const Placement& placement :
         {Partial(ReduceOp::kMax), Partial(ReduceOp::kMin), Partial()}) {
      const auto t = parts(mesh, placement, [](int64_t r) {
        return distinct({3, 6}).mul(r == 0 ? 1 : -2);
      });
      const auto whole = full_tensor(t);
      EXPECT_TRUE(close(at::fft_fft(t), at::fft_fft(whole)));
      EXPECT_TRUE(close(at::fft_rfft(t), at::fft_rfft(whole)));
      EXPECT_TRUE(close(
          at::fft_irfft(at::fft_rfft(t)), at::fft_irfft(at::fft_rfft(whole))));
    }
  });
}

TEST(KnownBugs, SumsOverTwoMeshDimsAreBitEqualOnAllRanks) {  // 171916, 174630
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    const auto part =
        distinct({64}, f32()).mul(1.0 + 0.37 * static_cast<double>(rank()));
    const auto t = from_local(part, mesh, {Partial(), Partial()});
    from_local(
        full_tensor(t), mesh, {Replicate(), Replicate()}, {.run_check = true});
  });
}

// --- views, indexing, convolutions, caches

TEST(KnownBugs, WritesThroughSlicesArriveInTheTensor) {  // 139735
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    for (const char* text : {"S(0)", "S(1)", "R", "P(sum)", "SS(0,2)"}) {
      SCOPED_TRACE(text);
      auto t = cut(distinct({5, 4}), mesh, text);
      auto p = distinct({5, 4});
      for (at::Tensor* x : {&t, &p}) {
        x->slice(0, 1, 4).mul_(2);
        x->select(1, 2).add_(3);
        x->slice(1, 0, 4, 2).slice(0, 2, 5).neg_();
        x->t().slice(0, 0, 2).add_(1);
        x->view({4, 5}).select(0, 3).zero_();
      }
      EXPECT_TRUE(close(t, p));
    }
  });
}

TEST(KnownBugs, ANumberIsAssignedToARow) {  // x[0] = 1.0
  run_ranks(2, [&] {
    for (const char* text : {"S(0)", "S(1)", "R", "P(sum)"}) {
      auto t = cut(distinct({5, 4}), mesh_of({2}), text);
      auto p = distinct({5, 4});
      for (at::Tensor* x : {&t, &p}) {
        x->index_put_({0}, 1.0);
        x->index_put_({torch::indexing::Slice(), 2}, 7.0);
      }
      EXPECT_TRUE(close(t, p)) << text;
    }
  });
}

TEST(KnownBugs, ViewsMoveDataWhereTheShardCannotFollow) {  // 179502
  const auto value = distinct({8, 12});
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
           {16, 6}, {6, 16}, {96}, {4, 24}, {24, 4}, {2, 4, 12}, {8, 2, 6}}) {
    expect_plain(
        4, {4}, value, {"S(0)", "S(1)", "R", "P(sum)"},
        [&](const at::Tensor& t) { return t.view(shape).mul(2); });
    expect_plain(
        4, {2, 2}, value, {"S(0) S(1)", "S(1) S(0)", "S(1) S(1)", "S(0) S(0)"},
        [&](const at::Tensor& t) { return t.view(shape).mul(2); });
  }
}

TEST(KnownBugs, UnevenAndEmptyShardsCanBeFlattened) {  // 143372
  for (const int64_t rows : {1, 3, 5}) {
    expect_plain(
        4, {4}, distinct({rows, 3}), {"S(0)", "S(1)"},
        [](const at::Tensor& t) { return t.view(-1) * 2; });
    expect_plain(
        4, {4}, distinct({2, rows, 3}), {"S(0)", "S(1)", "S(2)"},
        [](const at::Tensor& t) { return t.flatten(1) * 2; });
  }
}

TEST(KnownBugs, ConvolutionsOfEveryPlacementEqualThePlainOne) {
  // 142058, 176446, 186129, 191926, measured: wrong for all but the batch
  struct Shape {
    int64_t stride, padding, dilation, groups;
  };
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto x = distinct({2, 4, 7, 6});
    for (const Shape& s :
         {Shape{1, 0, 1, 1}, Shape{1, 1, 1, 1}, Shape{2, 1, 1, 1},
          Shape{1, 2, 2, 1}, Shape{1, 1, 1, 2}, Shape{1, 1, 1, 4}}) {
      const auto w = distinct({4, 4 / s.groups, 3, 3}).add(0.1);
      const auto b = distinct({4}).add(1);
      for (const char* input : {"R", "S(0)", "S(1)", "S(2)", "S(3)"}) {
        for (const char* weight : {"R", "S(0)", "S(1)", "S(3)"}) {
          SCOPED_TRACE(std::string(input) + ", " + weight);
          std::vector<at::Tensor> got{
              leaf(x, mesh, input), leaf(w, mesh, weight),
              leaf(b, mesh, std::string(weight) == "S(0)" ? "S(0)" : "R")};
          std::vector<at::Tensor> want{
              x.clone().requires_grad_(), w.clone().requires_grad_(),
              b.clone().requires_grad_()};
          const auto run = [&](std::vector<at::Tensor>& t) {
            const auto y = at::conv2d(
                t[0], t[1], t[2], s.stride, s.padding, s.dilation, s.groups);
            y.square().sum().backward();
            return y;
          };
          EXPECT_TRUE(close(run(got), run(want)));
          for (size_t i = 0; i < 3; ++i) {
            EXPECT_TRUE(close(got[i].grad(), want[i].grad())) << i;
          }
        }
      }
    }
  });
}

TEST(KnownBugs, GatherTakesAnIndexOfAnySize) {  // measured
  const auto index = at::tensor({3, 0, 2, 1, 3, 1}, i64()).reshape({2, 3});
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto value = distinct({4, 6});
    for (const char* text : {"R", "S(0)", "S(1)", "P(sum)"}) {
      for (const char* where : {"R", "S(0)", "S(1)"}) {
        for (const int64_t dim : {0, 1}) {
          SCOPED_TRACE(std::string(text) + ", " + where);
          auto t = leaf(value, mesh, text);
          auto p = value.clone().requires_grad_();
          const auto got = t.gather(dim, cut(index, mesh, where));
          const auto want = p.gather(dim, index);
          EXPECT_TRUE(close(got, want));
          got.square().sum().backward();
          want.square().sum().backward();
          EXPECT_TRUE(close(t.grad(), p.grad()));
        }
      }
    }
  });
}

TEST(KnownBugs, ScatterTakesASourceLongerThanItsIndex) {  // measured
  const auto index = at::tensor({3, 0, 2, 1, 3, 1}, i64()).reshape({2, 3});
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    for (const char* self : {"R", "S(0)", "S(1)", "P(sum)"}) {
      for (const char* source : {"R", "S(0)", "S(1)"}) {
        for (const char* where : {"R", "S(0)", "S(1)"}) {
          for (const int64_t dim : {0, 1}) {
            SCOPED_TRACE(std::string(self) + ", " + where + ", " + source);
            const auto run = [&](const at::Tensor& t, const at::Tensor& i,
                                 const at::Tensor& s) {
              return t.scatter_add(dim, i, s) + t.scatter(dim, i, s) * 2 +
                     t.scatter_reduce(dim, i, s, "amax");
            };
            EXPECT_TRUE(close(
                run(cut(distinct({4, 6}), mesh, self), cut(index, mesh, where),
                    cut(distinct({5, 7}).add(2), mesh, source)),
                run(distinct({4, 6}), index, distinct({5, 7}).add(2))));
          }
        }
      }
    }
  });
}

TEST(KnownBugs, MasksIndexAndAreWrittenThrough) {  // 152717
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto value = distinct({5, 4});
    for (const char* text : {"S(0)", "S(1)", "R", "P(sum)"}) {
      SCOPED_TRACE(text);
      auto t = cut(value, mesh, text);
      auto p = value.clone();
      EXPECT_TRUE(close(t.index({t > 0.5}), p.index({p > 0.5})));
      t.index_put_({t > 0.5}, 3.0);
      p.index_put_({p > 0.5}, 3.0);
      EXPECT_TRUE(close(t, p));
      EXPECT_TRUE(same(t.eq(3).nonzero(), p.eq(3).nonzero()));
    }
  });
}

TEST(KnownBugs, TwoEmbeddingsOfCutTablesDoNotShareTheirMasks) {
  // 130725, 131264, 160697
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    std::vector<at::Tensor> tables, plain;
    const std::vector<std::vector<int64_t>> shapes = {{6, 4}, {6, 3}, {9, 4}};
    for (const auto& shape : shapes) {
      tables.push_back(leaf(distinct(shape), mesh, "S(0)"));
      plain.push_back(distinct(shape).requires_grad_());
    }
    const auto first = at::tensor({5, 0, 3, 3}, i64());
    const auto second = at::tensor({1, 5, 2, 0}, i64());
    const auto run = [](std::vector<at::Tensor>& t, const at::Tensor& a,
                        const at::Tensor& b) {
      // All pending before the first is read.
      const auto x = at::embedding(t[0], a);
      const auto y = at::embedding(t[1], a);
      const auto z = at::embedding(t[2], b);
      const auto again = at::embedding(t[0], b);
      return (x + z + again * 2).sum(1) + y.sum(1) + (x * x).sum(1);
    };
    const auto got = run(tables, cut(first, mesh, "R"), cut(second, mesh, "R"));
    const auto want = run(plain, first, second);
    EXPECT_TRUE(close(got, want));
    got.square().sum().backward();
    want.square().sum().backward();
    for (size_t i = 0; i < tables.size(); ++i) {
      EXPECT_TRUE(close(tables[i].grad(), plain[i].grad())) << i;
    }
  });
}

TEST(KnownBugs, NoneIsNotATensorInTheKeyOfACall) {  // 176974
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto x = distinct({4, 4}), b = distinct({4}).mul(0.3).add(0.5);
    const auto t = cut(x, mesh, "S(0)"), c = cut(b, mesh, "R");
    for (int round = 0; round < 3; ++round) {
      EXPECT_TRUE(close(at::clamp(t, c, {}), at::clamp(x, b, {})));
      EXPECT_TRUE(close(at::clamp(t, {}, c), at::clamp(x, {}, b)));
      EXPECT_TRUE(
          close(at::layer_norm(t, {4}, c, {}), at::layer_norm(x, {4}, b, {})));
      EXPECT_TRUE(
          close(at::layer_norm(t, {4}, {}, c), at::layer_norm(x, {4}, {}, b)));
    }
  });
}

TEST(KnownBugs, DtypesAndStridesArePartOfTheKey) {  // 107181
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    for (int round = 0; round < 2; ++round) {
      for (const auto dtype : {at::kDouble, at::kFloat, at::kLong}) {
        for (const bool turned : {false, true}) {
          auto value = counting({4, 6}).to(dtype);
          if (turned) {
            value = value.t().contiguous().t();
          }
          const auto t = cut(value, mesh, "S(0)");
          EXPECT_TRUE(same(t.add(t).clone(), value.add(value)));
          EXPECT_EQ(t.add(t).strides(), value.add(value).strides());
          EXPECT_TRUE(same(t.sum(1), value.sum(1)));
          EXPECT_TRUE(same(t.reshape({24}), value.reshape({24})));
        }
      }
    }
  });
}

TEST(KnownBugs, ARowCutTwiceIsMultipliedInTheOrderOfItsCuts) {  // 166598
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    const auto a = distinct({4, 8}), b = distinct({8, 3});
    const std::vector<const char*> twice = {
        "S(0) S(0)", "S(0)[1] S(0)[0]", "SS(0,2) S(0)"};
    const std::vector<const char*> columns = {
        "S(1) S(1)", "S(1)[1] S(1)[0]", "SS(1,2) S(1)"};
    for (const char* left : columns) {
      for (const char* right : twice) {
        EXPECT_TRUE(close(cut(a, mesh, left).mm(cut(b, mesh, right)), a.mm(b)))
            << left << ", " << right;
      }
    }
  });
}

// --- gradients

TEST(KnownBugs, ARoundTripThroughLocalKeepsTheGradient) {
  // 172932, 173454, 175867
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto value = distinct({4, 3});
    for (const char* text : {"P(sum)", "S(0)", "R"}) {
      SCOPED_TRACE(text);
      auto t = leaf(value, mesh, text);
      const auto again = from_local(
          to_local(t), mesh, placements(t), {.shape = t.sizes().vec()});
      (again * again).sum().backward();
      EXPECT_TRUE(close(t.grad(), value * 2));
    }
  });
}

TEST(KnownBugs, GradientsOfReplicatedInputsCountOnce) {
  // torchtitan 2416, NeMo-RL 3788
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto x = leaf(distinct({4, 3}), mesh, "R");
    auto p = distinct({4, 3}).requires_grad_();
    const auto w = cut(distinct({3, 6}), mesh, "S(1)");
    x.mm(w).square().sum().backward();
    p.mm(distinct({3, 6})).square().sum().backward();
    EXPECT_EQ(to_string(placements(x.grad())), "R");
    EXPECT_TRUE(close(x.grad(), p.grad()));
    EXPECT_NEAR(
        x.grad().norm().item<double>(), p.grad().norm().item<double>(), 1e-9);
  });
}

TEST(KnownBugs, ARestridedGradientStaysASum) {  // 180486
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    // The gradient of w arrives transposed and is a sum over ranks: one
    // reduction, by the leaf, and none before.
    auto w = leaf(distinct({3, 4}), mesh, "R");
    const auto x = cut(distinct({6, 4}), mesh, "S(0)");
    const auto y = x.mm(w.t()).square().sum();
    const CommLog log;
    y.backward();
    EXPECT_EQ(log.count(), 1) << log;
  });
}

// --- groups, meshes, random numbers

TEST(KnownBugs, EqualAsksOnlyTheRanksOfTheMesh) {  // measured: hangs
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2}, {"a", "b"})["b"];
    const auto t = cut(counting({5}), mesh, "S(0)");
    if (rank() < 2) {  // the other row of the mesh does not ask
      EXPECT_TRUE(at::equal(t, cut(counting({5}), mesh, "S(0)")));
    }
  });
}

TEST(
    KnownBugs, RandomNumbersDependOnNeitherCutNorRankCount) {  // 146190, 168058
  std::mutex mutex;
  std::vector<at::Tensor> all;
  for (const int ranks : {1, 2, 4}) {
    for (const char* text : {"S(0)", "S(1)", "R"}) {
      run_ranks(ranks, [&] {
        manual_seed(7);
        const auto mesh = mesh_of({ranks});
        auto t = zeros({6, 5}, mesh, parse_placements(text), f64());
        t.normal_();
        const auto whole =
            full_tensor(t + at::rand_like(t) + at::dropout(t, 0.5, true));
        const std::lock_guard<std::mutex> lock(mutex);
        all.push_back(whole.cpu());
      });
    }
  }
  for (const at::Tensor& t : all) {
    EXPECT_TRUE(at::equal(t, all[0]));
  }
}

TEST(KnownBugs, EachLayerDrawsNumbersOfItsOwn) {  // torchtitan 3106
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    std::set<double> seen;
    for (int layer = 0; layer < 3; ++layer) {
      auto t = zeros({4, 4}, mesh, {Shard(0)}, f64());
      torch::nn::init::normal_(t);
      const auto whole = full_tensor(t).cpu();
      for (int64_t i = 0; i < 16; ++i) {
        seen.insert(whole.view(-1)[i].item<double>());
      }
    }
    EXPECT_EQ(seen.size(), 48U);
  });
}

TEST(KnownBugs, NormsOverSeveralMeshesNameThem) {  // 180346, 180501
  run_ranks(4, [&] {
    std::vector<at::Tensor> parameters;
    for (const char* name : {"x", "y"}) {
      auto t = leaf(distinct({4}), mesh_of({4}, {name}), "S(0)");
      t.mutable_grad() = cut(distinct({4}), mesh_of({4}, {name}), "S(0)");
      parameters.push_back(t);
    }
    EXPECT_ERROR(
        "different meshes", torch::nn::utils::clip_grad_norm_(parameters, 1.0));
  });
}

// --- operators that had no rule: values and gradients, cut in every way

TEST(KnownBugs, OperatorsThatWereMissingGiveThePlainValues) {  // 124990, 3.8
  using Op = std::function<at::Tensor(const at::Tensor&)>;
  const std::vector<std::pair<const char*, Op>> ops = {
      {"addbmm",
       [](auto& t) { return at::addbmm(t, t.unsqueeze(0), t.unsqueeze(0)); }},
      {"block_diag",
       [](auto& t) {
         return at::block_diag({t, t * 2});
       }},
      {"cdist", [](auto& t) { return at::cdist(t, t.detach() + 1); }},
      {"complex",
       [](auto& t) { return at::real(at::complex(t, t).square()) + t; }},
      {"polar", [](auto& t) { return at::real(at::polar(t.abs(), t)); }},
      {"isin",
       [](auto& t) {
         return at::isin(t, t.detach().select(0, 1)).to(at::kDouble) + t;
       }},
      {"nanquantile", [](auto& t) { return at::nanquantile(t, 0.4, 0); }},
      {"reflect pad",
       [](auto& t) {
         return at::reflection_pad1d(t, {1, 2});
       }},
      {"replicate pad",
       [](auto& t) {
         return at::replication_pad1d(t, {1, 2});
       }},
      {"pdist", [](auto& t) { return at::pdist(t); }},
      {"im2col",
       [](auto& t) {
         return at::im2col(
             t.unsqueeze(0).unsqueeze(0), {2, 2}, {1, 1}, {0, 0}, {1, 1});
       }},
      {"renorm", [](auto& t) { return at::renorm(t, 2, 0, 0.5); }},
      {"take",
       [](auto& t) { return at::take(t, t.detach().argsort(0, false) * 5); }},
      {"put",
       [](auto& t) {
         return at::put(t, t.detach().argsort(0, false), t * 2, true);
       }},
      {"unfold", [](auto& t) { return t.unfold(0, 2, 2); }},
      {"searchsorted",
       [](auto& t) {
         return at::searchsorted(std::get<0>(t.detach().sort(1)), t.detach())
                    .to(at::kDouble) +
                t;
       }},
      {"as_strided_scatter",
       [](auto& t) {
         return at::as_strided_scatter(
             t, t.slice(0, 0, 2).slice(1, 0, 2) * 2, {2, 2}, {6, 1}, 1);
       }},
      {"scatter_reduce",
       [](auto& t) {
         return t.scatter_reduce(
             0, t.detach().argsort(0, false), t * 2, "mean");
       }},
      {"masked_scatter",
       [](auto& t) { return at::masked_scatter(t, t.detach() > 0.3, t * 2); }},
      {"stft",
       [](auto& t) {
         return at::stft(t, 4, 2, 4, {}, false, true, true).abs();
       }},
      {"multi_margin_loss",
       [](auto& t) { return at::multi_margin_loss(t, t.detach().argmax(1)); }},
      {"unbind", [](auto& t) { return t.unbind(0)[1] + t.unbind(0)[2]; }},
      {"tensor_split", [](auto& t) { return t.tensor_split(3, 1)[1]; }},
      {"squeeze_copy",
       [](auto& t) { return at::squeeze_copy(t.unsqueeze(0)); }},
      {"transpose_copy", [](auto& t) { return at::transpose_copy(t, 0, 1); }},
      {"matrix_power", [](auto& t) { return at::matrix_power(t.mul(0.3), 3); }},
      {"quantile", [](auto& t) { return at::quantile(t, 0.4, 1); }},
      {"conv_transpose",
       [](auto& t) {
         return at::conv_transpose1d(
             t.unsqueeze(0), t.unsqueeze(2).expand({6, 6, 2}), {}, 2);
       }},
      {"unique",
       [](auto& t) { return std::get<0>(at::_unique(t.detach())) + 0; }},
      {"masked_select",
       [](auto& t) { return t.masked_select(t.detach() > 0.4); }},
      {"repeat_interleave",
       [](auto& t) {
         return at::repeat_interleave(
             t, t.detach().argsort(0, false).select(1, 0), 0);
       }},
      {"histc", [](auto& t) { return at::histc(t.detach(), 5, -2, 2); }},
      {"bilinear",
       [](auto& t) { return at::bilinear(t, t * 2, t.unsqueeze(0), {}); }},
  };
  for (const auto& [name, op] : ops) {
    SCOPED_TRACE(name);
    expect_plain(2, {2}, distinct({6, 6}), {"S(0)", "S(1)", "R", "P(sum)"}, op);
  }
}

}  // namespace
}  // namespace tessera
