// distribute_tensor, from_local, to_local, full_tensor, redistribute,
// chunk_list, to_string: values, memory, options and errors.
#include <harness/sharded_test.h>

namespace tessera {
namespace {

using testing::close;
using testing::counting;
using testing::device;
using testing::distinct;
using testing::error_of;
using testing::f64;
using testing::mesh_of;
using testing::same;

const std::vector<std::string> kOneDim = {"R",       "S(0)",   "S(1)",
                                          "SS(0,2)", "P(sum)", "P(avg)",
                                          "P(max)",  "P(min)", "P(product)"};
const std::vector<std::string> kTwoDims = {
    "R R",         "S(0) R",      "R S(0)",       "S(0) S(1)",
    "S(1) S(0)",   "S(0) S(0)",   "S(1) S(1)",    "S(0)[1] S(0)[0]",
    "P(sum) S(0)", "S(1) P(max)", "SS(0,2) S(0)", "P(sum) P(avg)",
    "S(0) SS(1,3)"};

// Checks one tensor in one layout: every element lands where the layout says.
void check_layout(
    const at::Tensor& whole, const DeviceMesh& mesh, const std::string& text) {
  SCOPED_TRACE(text + " of " + shape_to_string(whole.sizes().vec()));
  const at::Tensor t = distribute_tensor(whole, mesh, parse_placements(text));
  EXPECT_EQ(t.sizes(), whole.sizes());
  EXPECT_EQ(to_local(t).sizes(), at::IntArrayRef(spec(t).local_shape()));
  EXPECT_TRUE(same(full_tensor(t), whole));
  if (spec(t).layout().has_partial()) {
    return;
  }
  at::Tensor rebuilt = at::zeros_like(whole);
  const at::Tensor local = to_local(t);
  int64_t seen = 0;
  for (const auto& chunk : chunk_list(t)) {
    at::Tensor piece = whole;
    int64_t numel = 1;
    for (size_t d = 0; d < chunk.sizes.size(); ++d) {
      piece = piece.narrow(
          static_cast<int64_t>(d), chunk.offsets[d], chunk.sizes[d]);
      numel *= chunk.sizes[d];
    }
    seen += numel;
    for (const at::Tensor& value : piece.reshape({-1}).split(1)) {
      EXPECT_TRUE(local.eq(value).any().item<bool>());
    }
  }
  EXPECT_EQ(seen, local.numel());
}

TEST(DistributeTensor, PutsEveryElementWhereTheLayoutSays) {
  for (int n = 1; n <= 4; ++n) {
    run_ranks(n, [&] {
      const auto mesh = mesh_of({n});
      for (const auto& text : kOneDim) {
        for (const auto& shape : std::vector<std::vector<int64_t>>{
                 {4, 4}, {5, 3}, {1, 2}, {0, 3}, {7, 1}}) {
          check_layout(counting(shape), mesh, text);
        }
      }
    });
  }
}

TEST(DistributeTensor, NestsCutsOnTwoDimMeshes) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2}, {"dp", "tp"});
    for (const auto& text : kTwoDims) {
      for (const auto& shape : std::vector<std::vector<int64_t>>{
               {4, 4}, {5, 3}, {3, 2}, {1, 7}, {6, 5}}) {
        check_layout(counting(shape), mesh, text);
      }
    }
  });
}

TEST(DistributeTensor, TakesRaggedSizes) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    const auto whole = counting({5, 2});
    const auto t = distribute_tensor(whole, mesh, {RaggedShard(0, {4, 0, 1})});
    const int64_t sizes[] = {4, 0, 1};
    EXPECT_EQ(to_local(t).size(0), sizes[rank()]);
    EXPECT_TRUE(same(full_tensor(t), whole));
  });
}

TEST(DistributeTensor, UsesTheSourceRanksData) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    const auto mine = counting({4, 3}).add(100.0 * static_cast<double>(rank()));
    for (int64_t src = 0; src < 2; ++src) {
      const auto t = distribute_tensor(
          mine, mesh, {Shard(0), Replicate()}, {.src_data_rank = src});
      const auto want =
          counting({4, 3}).add(100.0 * static_cast<double>(src * 2 + src));
      EXPECT_TRUE(same(full_tensor(t), want));
    }
    const auto own = distribute_tensor(
        mine, mesh, {Shard(0), Replicate()}, {.src_data_rank = std::nullopt});
    const int64_t begin = rank() / 2 * 2;
    EXPECT_TRUE(same(to_local(own), mine.narrow(0, begin, 2)));
  });
}

TEST(DistributeTensor, KeepsRequiresGradAndIsALeaf) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto t =
        distribute_tensor(counting({4}).requires_grad_(), mesh, {Shard(0)});
    EXPECT_TRUE(t.requires_grad());
    EXPECT_TRUE(t.is_leaf());
  });
}

TEST(DistributeTensor, NeverSharesMemoryWithItsInput) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    for (const auto& placement : {Replicate(), Shard(0), Partial()}) {
      for (const auto src :
           {std::optional<int64_t>(), std::optional<int64_t>(0)}) {
        auto whole = counting({4});
        const auto t =
            distribute_tensor(whole, mesh, {placement}, {.src_data_rank = src});
        whole.fill_(-1);
        EXPECT_TRUE(same(full_tensor(t), counting({4})));
      }
    }
  });
}

TEST(DistributeTensor, KeepsDenseStrides) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto t = distribute_tensor(counting({4, 6}).t(), mesh, {Shard(0)});
    EXPECT_EQ(t.strides(), at::IntArrayRef({1, 6}));
    EXPECT_TRUE(same(full_tensor(t), counting({4, 6}).t()));
  });
}

TEST(DistributeTensor, RefusesWhatDoesNotFit) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto x = counting({4, 4});
    EXPECT_ERROR("placement", distribute_tensor(x, mesh, {}));
    EXPECT_ERROR("dim", distribute_tensor(x, mesh, {Shard(2)}));
    EXPECT_ERROR("dim", distribute_tensor(x, mesh, {Shard(-3)}));
    EXPECT_ERROR(
        "src_data_rank",
        distribute_tensor(x, mesh, {Shard(0)}, {.src_data_rank = 2}));
    EXPECT_ERROR(
        "undefined", distribute_tensor(at::Tensor(), mesh, {Shard(0)}));
    EXPECT_ERROR(
        "leaf",
        distribute_tensor(x.clone().requires_grad_().mul(2), mesh, {Shard(0)}));
    const auto t = distribute_tensor(x, mesh, {Shard(0)});
    EXPECT_TRUE(distribute_tensor(t, mesh, {Shard(0)}).is_same(t));
    EXPECT_ERROR("redistribute()", distribute_tensor(t, mesh, {Shard(1)}));
    EXPECT_ERROR(
        "add up", distribute_tensor(x, mesh, {RaggedShard(0, {1, 1})}));
    if (device() == at::kCPU) {
      EXPECT_ERROR(
          "to_dense", distribute_tensor(x.to_sparse(), mesh, {Shard(0)}));
    }
  });
}

TEST(FromLocal, MultipliesEvenShards) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    const auto t = from_local(counting({2, 3}), mesh, {Shard(0), Shard(1)});
    EXPECT_EQ(t.sizes(), at::IntArrayRef({4, 6}));
    EXPECT_ERROR("sharded already", from_local(t, mesh, {Shard(0), Shard(1)}));
  });
}

TEST(FromLocal, TakesUnevenShardsWithAShape) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    const auto whole = counting({4, 2});
    const int64_t begin[] = {0, 2, 4};
    const int64_t size[] = {2, 2, 0};
    const auto local = whole.narrow(0, begin[rank()], size[rank()]);
    const auto t = from_local(
        local, mesh, {Shard(0)}, {.shape = std::vector<int64_t>{4, 2}});
    EXPECT_TRUE(same(full_tensor(t), whole));
    EXPECT_ERROR(
        "expected",
        from_local(
            local, mesh, {Shard(0)}, {.shape = std::vector<int64_t>{9, 2}}));
    EXPECT_ERROR("one placement per mesh dim", from_local(local, mesh, {}));
    EXPECT_ERROR("does not fit", from_local(local, mesh, {Shard(2)}));
    EXPECT_ERROR(
        "stride is given",
        from_local(
            local, mesh, {Shard(0)}, {.stride = std::vector<int64_t>{2, 1}}));
  });
}

TEST(FromLocal, SharesMemory) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto local = counting({2});
    const auto t = from_local(local, mesh, {Shard(0)});
    local.fill_(7);
    EXPECT_TRUE(same(full_tensor(t), at::full({4}, 7.0, f64())));
    to_local(t).fill_(9);
    EXPECT_TRUE(same(local, at::full({2}, 9.0, f64())));
  });
}

TEST(FromLocal, RunCheckReportsDifferencesOnEveryRank) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    const auto good = counting({2, 2});
    EXPECT_EQ(
        error_of([&] {
          from_local(good, mesh, {Shard(0), Replicate()}, {.run_check = true});
        }),
        "");
    const auto odd = rank() == 3 ? good + 1 : good;
    EXPECT_ERROR(
        "replicated shards differ: rank 3",
        from_local(odd, mesh, {Shard(0), Replicate()}, {.run_check = true}));
    const auto longer = rank() == 1 ? counting({3, 2}) : good;
    EXPECT_ERROR(
        "rank 1 has",
        from_local(longer, mesh, {Shard(0), Replicate()}, {.run_check = true}));
    const auto other = rank() == 2 ? good.to(at::kFloat) : good;
    EXPECT_ERROR(
        "rank 2 has f32",
        from_local(other, mesh, {Shard(0), Replicate()}, {.run_check = true}));
    const auto leaf = good.clone().set_requires_grad(rank() == 3);
    EXPECT_ERROR(
        "rank 3 has f64[4, 2] S(0) R @ mesh(2, 2), strides [2, 1], requires "
        "grad; pass the same",
        from_local(leaf, mesh, {Shard(0), Replicate()}, {.run_check = true}));
    const std::vector<int64_t> stride =
        rank() == 1 ? std::vector<int64_t>{1, 4} : std::vector<int64_t>{2, 1};
    EXPECT_ERROR(
        "rank 1 has f64[4, 2] S(0) R @ mesh(2, 2), strides [1, 4]",
        from_local(
            good, mesh, {Shard(0), Replicate()},
            {.run_check = true,
             .shape = std::vector<int64_t>{4, 2},
             .stride = stride}));
  });
}

// The text of such a spec is longer than 511 bytes, and differs at its end.
TEST(FromLocal, RunCheckReadsLongSpecsToTheirEnd) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    std::vector<int64_t> shape(200, 1);
    shape[0] = 2;
    shape.back() = rank() == 0 ? 3 : 4;
    std::vector<int64_t> local = shape;
    local[0] = 1;
    EXPECT_ERROR(
        "the ranks mean different tensors",
        from_local(
            at::zeros(local), mesh, {Shard(0)},
            {.run_check = true, .shape = shape}));
  });
}

TEST(Redistribute, ReachesEveryPlacementFromEveryOther) {
  for (int n : {2, 3}) {
    run_ranks(n, [&] {
      const auto mesh = mesh_of({n});
      for (const auto& shape :
           std::vector<std::vector<int64_t>>{{6, 4}, {5, 3}, {1, 2}, {0, 2}}) {
        const auto whole = counting(shape).add(1);
        for (const auto& from : kOneDim) {
          for (const auto& to : kOneDim) {
            SCOPED_TRACE(from + " -> " + to);
            const auto t =
                distribute_tensor(whole, mesh, parse_placements(from));
            const auto moved = redistribute(t, parse_placements(to));
            EXPECT_EQ(to_string(placements(moved)), to);
            EXPECT_TRUE(same(full_tensor(moved), whole));
            const auto direct =
                distribute_tensor(whole, mesh, parse_placements(to));
            EXPECT_TRUE(same(to_local(moved), to_local(direct)));
          }
        }
      }
    });
  }
}

TEST(Redistribute, ReachesEveryPairOnTwoDimMeshes) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    for (const auto& shape :
         std::vector<std::vector<int64_t>>{{4, 6}, {5, 3}, {3, 1}}) {
      const auto whole = counting(shape).add(1);
      for (const auto& from : kTwoDims) {
        for (const auto& to : kTwoDims) {
          SCOPED_TRACE(from + " -> " + to);
          const auto t = distribute_tensor(whole, mesh, parse_placements(from));
          const auto moved = redistribute(t, parse_placements(to));
          const auto direct =
              distribute_tensor(whole, mesh, parse_placements(to));
          EXPECT_TRUE(same(to_local(moved), to_local(direct)));
        }
      }
    }
  });
}

TEST(Redistribute, KeepsTheSignOfZeroThroughPartial) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    const auto whole = at::full({3}, -0.0, f64());
    const auto t = distribute_tensor(whole, mesh, {Replicate()});
    const auto back = full_tensor(redistribute(t, {Partial()}));
    EXPECT_TRUE(at::signbit(back).all().item<bool>());
  });
}

TEST(Redistribute, KeepsIntegersAndBools) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    const auto whole = counting({5}, testing::i64()).add(int64_t{1} << 53);
    const auto t = distribute_tensor(whole, mesh, {Shard(0)});
    EXPECT_TRUE(same(full_tensor(redistribute(t, {Partial()})), whole));
    const auto flags = counting({5}).remainder(2).eq(1);
    const auto f = distribute_tensor(flags, mesh, {Shard(0)});
    EXPECT_TRUE(same(full_tensor(redistribute(f, {Partial()})), flags));
  });
}

TEST(FullTensor, IsAnErrorOutsideTheMesh) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({2});
    const auto t = distribute_tensor(counting({4}), mesh, {Shard(0)});
    if (rank() == 2) {
      EXPECT_ERROR("outside the mesh", full_tensor(t));
      EXPECT_EQ(to_local(t).numel(), 0);
    } else {
      EXPECT_TRUE(same(full_tensor(t), counting({4})));
    }
  });
}

TEST(Gradients, OfConversionsHaveTheRightValues) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    const auto whole = distinct({5, 3});
    const auto weight = distinct({5, 3}).add(2);
    for (const auto& from : {"R", "S(0)", "S(1)"}) {
      for (const auto& to : {"R", "S(0)", "S(1)"}) {
        SCOPED_TRACE(std::string(from) + " -> " + to);
        auto t = distribute_tensor(whole, mesh, parse_placements(from))
                     .requires_grad_();
        const auto w = distribute_tensor(weight, mesh, parse_placements(to));
        redistribute(t, parse_placements(to)).mul(w).sum().backward();
        EXPECT_TRUE(close(t.grad(), weight));
        EXPECT_EQ(to_string(placements(t.grad())), from);
      }
    }
    auto local = distinct({2, 3}).requires_grad_();
    auto t = from_local(local, mesh, {Shard(0)});
    const auto w = distinct({6, 3});
    full_tensor(t).mul(w).sum().backward();
    EXPECT_TRUE(close(local.grad(), w.narrow(0, 2 * rank(), 2)));
  });
}

TEST(Gradients, FollowGradPlacements) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto t =
        distribute_tensor(counting({3}), mesh, {Replicate()}).requires_grad_();
    // Every rank uses the local value in its own way: the gradient is an
    // addend.
    to_local(t, {.grad_placements = Placements{Partial()}})
        .mul(static_cast<double>(rank() + 1))
        .sum()
        .backward();
    EXPECT_TRUE(same(t.grad(), at::full({3}, 3.0, f64())));
    auto local = counting({3}).requires_grad_();
    auto s = from_local(
        local, mesh, {Replicate()}, {.grad_placements = Placements{Partial()}});
    s.sum().backward();
    EXPECT_TRUE(same(
        local.grad(),
        rank() == 0 ? at::ones({3}, f64()) : at::full({3}, -0.0, f64())));
  });
}

TEST(Gradients, OfSecondOrderExist) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto t =
        distribute_tensor(distinct({4, 2}), mesh, {Shard(0)}).requires_grad_();
    const auto y = redistribute(t, {Shard(1)}).pow(3).sum();
    const auto g = torch::autograd::grad({y}, {t}, {}, true, true)[0];
    g.pow(2).sum().backward();
    auto p = distinct({4, 2}).requires_grad_();
    const auto gp =
        torch::autograd::grad({p.pow(3).sum()}, {p}, {}, true, true)[0];
    gp.pow(2).sum().backward();
    EXPECT_TRUE(close(t.grad(), p.grad()));
  });
}

TEST(ChunkList, ListsTheBoxesOfAStridedShard) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto t = distribute_tensor(counting({8}), mesh, {StridedShard(0, 2)});
    const int64_t first = rank() * 2;
    const std::vector<ChunkStorageMetadata> want = {
        {{first}, {2}}, {{first + 4}, {2}}};
    EXPECT_EQ(chunk_list(t), want);
    EXPECT_ERROR("Partial", chunk_list(redistribute(t, {Partial()})));
  });
}

TEST(ToString, ShowsTheSpecAndTheShard) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    const auto t = distribute_tensor(counting({4}), mesh, {Shard(0)});
    const std::string text = to_string(t);
    EXPECT_NE(text.find("f64[4] S(0) @ mesh(tp=2"), std::string::npos) << text;
    EXPECT_NE(text.find(rank() == 0 ? "[0:2]" : "[2:4]"), std::string::npos)
        << text;
    EXPECT_ERROR("not sharded", spec(counting({2})));
  });
}

TEST(Print, WritesWhatToStringReturnsAndMovesNothing) {
  run_ranks(1, [&] {
    const auto t =
        distribute_tensor(counting({3, 2}), mesh_of({1}, {"tp"}), {Shard(0)});
    CommLog log;
    ::testing::internal::CaptureStdout();
    tessera::print(t);
    tessera::print(counting({2}));
    EXPECT_EQ(
        ::testing::internal::GetCapturedStdout(),
        to_string(t) + "\n" + to_string(counting({2})) + "\n");
    EXPECT_EQ(log.count(), 0);
  });
}

TEST(Print, IsNamedByTheErrorOfStreams) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto became = counting({5});
    make_dtensor_(became, mesh, {Shard(0)});
    for (const at::Tensor& t :
         {distribute_tensor(counting({5}), mesh, {Shard(0)}), became}) {
      std::ostringstream stream;
      EXPECT_ERROR("tessera::print(t) or tessera::to_string(t)", stream << t);
    }
  });
}

}  // namespace
}  // namespace tessera
