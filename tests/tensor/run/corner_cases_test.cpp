// Operators and arguments that general rules get wrong: results that are
// numbers, out arguments of other shapes, value-reading composites, hooks,
// strides, conjugates, ranks without data.
#include <harness/sharded_test.h>
#include <torch/library.h>

namespace tessera {
namespace {

using testing::close;
using testing::counting;
using testing::device;
using testing::distinct;
using testing::error_of;
using testing::f64;
using testing::i64;
using testing::mesh_of;
using testing::same;

constexpr const char* kCornerLayouts[] = {"R",      "S(0)",    "S(1)",
                                          "P(sum)", "SS(0,2)", "P(avg)"};

TEST(Operators, CompareAllShardsInEqual) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    for (const char* layout : kCornerLayouts) {
      SCOPED_TRACE(layout);
      const auto on = parse_placements(layout);
      const auto a = distribute_tensor(counting({6, 4}), mesh, on);
      auto other = counting({6, 4});
      other[5][3] = -1;
      EXPECT_FALSE(at::equal(a, distribute_tensor(other, mesh, on)));
      EXPECT_TRUE(at::equal(a, a.clone()));
    }
  });
  run_ranks(3, [&] {
    const auto t = distribute_tensor(counting({4}), mesh_of({2}), {Shard(0)});
    if (rank() == 2) {
      EXPECT_ERROR("outside the mesh", at::equal(t, t));
    }
  });
}

TEST(Operators, ResizeAnOutArgumentToTheShapeOfScalars) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto two =
        distribute_tensor(at::scalar_tensor(2.0, f64()), mesh, {Replicate()});
    auto out = zeros({4}, mesh, {Shard(0)}, f64());
    at::add_out(out, two, two);
    EXPECT_TRUE(same(out, at::scalar_tensor(4.0, f64())));
    const auto x = distribute_tensor(counting({5}), mesh, {Shard(0)});
    out = zeros({0}, mesh, {Shard(0)}, f64());
    at::add_out(out, two, x);
    EXPECT_TRUE(same(out, counting({5}) + 2));
  });
}

TEST(Operators, WriteIntoSeveralOutArguments) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto p = distinct({4, 6});
    const auto t = distribute_tensor(p, mesh, {Shard(1)});
    for (const char* layout : {"R", "S(0)", "S(1)", "P(sum)", "SS(0,2)"}) {
      SCOPED_TRACE(layout);
      const auto on = parse_placements(layout);
      auto values = zeros({4, 6}, mesh, on, f64());
      auto indices = zeros({4, 6}, mesh, on, i64());
      const auto result = at::sort_out(values, indices, t, 0);
      EXPECT_TRUE(std::get<1>(result).is_same(indices));
      EXPECT_TRUE(same(values, std::get<0>(p.sort(0))));
      EXPECT_TRUE(same(indices, std::get<1>(p.sort(0))));
    }
  });
}

TEST(Operators, WorkOnListsOfTensorsInPlace) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const char* layouts[] = {"S(0)", "P(sum)", "R"};
    std::vector<at::Tensor> p = {
        distinct({5}), distinct({4, 2}), distinct({3})};
    std::vector<at::Tensor> t;
    for (size_t i = 0; i < 3; ++i) {
      t.push_back(distribute_tensor(p[i], mesh, parse_placements(layouts[i])));
    }
    at::_foreach_add_(t, at::_foreach_mul(t, 2.0), 3);
    at::_foreach_add_(p, at::_foreach_mul(p, 2.0), 3);
    const auto norms = at::_foreach_norm(t);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(close(t[i], p[i]));
      EXPECT_EQ(to_string(placements(t[i])), layouts[i]);
      EXPECT_TRUE(close(norms[i], p[i].norm()));
    }
  });
}

TEST(Operators, ReadTheValuesOfShardedLengths) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto cut = [&](const at::Tensor& t) {
      return distribute_tensor(t, mesh, {Shard(0)});
    };
    auto p = distinct({8, 2, 5}).log_softmax(2).requires_grad_();
    auto t = cut(p.detach()).requires_grad_();
    const auto targets = at::tensor({1, 2, 3, 1, 4, 2}, i64()).view({2, 3});
    const auto in = at::tensor({8, 7}, i64());
    const auto out = at::tensor({3, 2}, i64());
    auto loss = at::ctc_loss(t, cut(targets), cut(in), cut(out));
    auto plain_loss = at::ctc_loss(p, targets, in, out);
    EXPECT_TRUE(close(loss, plain_loss));
    loss.backward(), plain_loss.backward();
    EXPECT_TRUE(close(t.grad(), p.grad()));
    const auto parts =
        at::tensor_split(cut(counting({6})), cut(at::tensor({2, 3}, i64())), 0);
    EXPECT_TRUE(same(parts[1], counting({6}).slice(0, 2, 3)));
  });
}

std::tuple<at::Tensor, int64_t, at::Tensor> draw(const at::Tensor& x) {
  return {at::rand_like(x), 7, at::Tensor()};
}

// As fused attention does: tensors, numbers and undefined tensors.
TEST(Operators, ShareTheNumbersOfRandomOperators) {
  static auto* kept = new torch::Library(
      torch::Library::DEF, "tessera_corner", std::nullopt, __FILE__, __LINE__);
  kept->def(
      "draw(Tensor x) -> (Tensor, int, Tensor)",
      {at::Tag::nondeterministic_seeded});
  kept->impl("draw", torch::dispatch(c10::DispatchKey::CPU, &draw));
  kept->impl("draw", torch::dispatch(c10::DispatchKey::CUDA, &draw));
  run_ranks(2, [&] {
    const auto t = distribute_tensor(distinct({4}), mesh_of({2}), {Shard(0)});
    const auto [drawn, number, nothing] =
        c10::Dispatcher::singleton()
            .findSchemaOrThrow("tessera_corner::draw", "")
            .typed<std::tuple<at::Tensor, int64_t, at::Tensor>(
                const at::Tensor&)>()
            .call(t);
    EXPECT_EQ(number, 7);
    EXPECT_FALSE(nothing.defined());
    EXPECT_EQ(drawn.sizes(), t.sizes());
  });
}

TEST(Operators, KeepConjugatesAndNegatives) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto z = at::complex(distinct({4, 3}), distinct({4, 3}).flip(0));
    for (const char* layout : kCornerLayouts) {
      SCOPED_TRACE(layout);
      auto t = distribute_tensor(z, mesh, parse_placements(layout));
      auto p = z.clone();
      EXPECT_TRUE(t.conj().is_conj());
      EXPECT_TRUE(close(t.conj() * 2, z.conj() * 2));
      EXPECT_TRUE(close(redistribute(t.conj(), {Shard(0)}), z.conj()));
      t.conj().add_(c10::complex<double>(1, 2));
      p.conj().add_(c10::complex<double>(1, 2));
      at::imag(t.conj()).mul_(3), at::imag(p.conj()).mul_(3);
      at::view_as_real(t).select(-1, 0).mul_(2);
      at::view_as_real(p).select(-1, 0).mul_(2);
      EXPECT_TRUE(close(t, p));
      EXPECT_TRUE(close(t.mm(t.mH()), p.mm(p.mH())));
    }
    const auto local = z.slice(0, 0, 2).conj();
    auto t = from_local(local, mesh, {Shard(0)});
    const auto whole = at::cat({local, local}).resolve_conj();
    EXPECT_TRUE(close(t + 1, whole + 1));
    t.mul_(2).t_();
    EXPECT_TRUE(close(t + 0, whole.t() * 2));
  });
}

TEST(Operators, TakeInputsOfAnyStridesAndDtypes) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    const auto base = counting({5, 4});
    const std::vector<at::Tensor> inputs = {
        base.t(),
        counting({4}).expand({5, 4}),
        base.slice(1, 1, 4, 2),
        counting({2, 3, 4}).permute({2, 0, 1}),
        counting({0, 3}),
        counting({3, 0}),
        counting({1, 1}),
        base.to(at::kHalf)};
    for (const char* layout : kCornerLayouts) {
      for (const at::Tensor& p : inputs) {
        SCOPED_TRACE(::testing::Message() << layout << ' ' << p.strides());
        const auto t = distribute_tensor(p, mesh, parse_placements(layout));
        EXPECT_TRUE(same(t, p));
        EXPECT_TRUE(same(t * t, p * p));
        EXPECT_TRUE(same(t.transpose(0, 1).contiguous(), p.transpose(0, 1)));
      }
    }
    const auto e = from_local(counting({4}).expand({2, 4}), mesh, {Shard(0)});
    EXPECT_TRUE(same(e.t() + 1, counting({4}).expand({6, 4}).t() + 1));
  });
}

TEST(FromLocal, RefusesStridesThatOverlap) {
  run_ranks(2, [&] {
    for (const std::vector<int64_t>& stride :
         {std::vector<int64_t>{0, 1}, {1, 1}, {2, 1}, {1}}) {
      EXPECT_ERROR(
          "memory of its own",
          from_local(
              counting({2, 3}), mesh_of({2}), {Shard(0)},
              {.shape = std::vector<int64_t>{4, 3}, .stride = stride}));
    }
    const auto t = from_local(
        counting({2, 3}), mesh_of({2}), {Shard(0)},
        {.shape = std::vector<int64_t>{4, 3},
         .stride = std::vector<int64_t>{1, 5}});
    EXPECT_TRUE(same(t.t(), at::cat({counting({2, 3}), counting({2, 3})}).t()));
  });
}

TEST(DistributeTensor, RefusesAnAverageOfIntegers) {
  run_ranks(2, [&] {
    EXPECT_ERROR(
        "use P(sum), or convert first",
        distribute_tensor(
            counting({4}, i64()), mesh_of({2}), parse_placements("P(avg)")));
  });
}

TEST(MakeDtensor, ChangesNothingWhenTheGradientCannotFollow) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto w = distinct({4}).requires_grad_();
    w.mutable_grad() = counting({8}).slice(0, 0, 4);
    EXPECT_ERROR("gradient is a view", make_dtensor_(w, mesh, {Shard(0)}));
    w.mutable_grad() = counting({4}).to_sparse();
    EXPECT_ERROR("strided", make_dtensor_(w, mesh, {Shard(0)}));
    EXPECT_FALSE(is_dtensor(w));
    w.mutable_grad().reset();
    make_dtensor_(w, mesh, {Shard(0)});
    EXPECT_TRUE(same(w, distinct({4})));
  });
}

TEST(Gradients, HaveTheLeafsPlacementsWithoutAnyOperator) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto w =
        distribute_tensor(distinct({4}), mesh, {Replicate()}).requires_grad_();
    const auto local = to_local(w, {.grad_placements = Placements{Partial()}});
    (local * static_cast<double>(rank() + 1)).sum().backward();
    EXPECT_EQ(to_string(placements(w.grad())), "R");
    EXPECT_TRUE(same(w.grad(), at::full({4}, 3.0, f64())));
  });
}

TEST(Hooks, OfTheUserMayComeAfterTheForwardPass) {
  run_ranks(2, [&] {
    for (const char* layout : kCornerLayouts) {
      SCOPED_TRACE(layout);
      auto t = distribute_tensor(
                   distinct({4, 4}), mesh_of({2}), parse_placements(layout))
                   .requires_grad_();
      auto y = t.mm(t);
      t.register_hook([](const at::Tensor& g) { return g + 1; });
      y.sum().backward();
      auto p = distinct({4, 4}).requires_grad_();
      p.mm(p).sum().backward();
      EXPECT_TRUE(close(t.grad(), p.grad() + 1));
      EXPECT_EQ(to_string(placements(t.grad())), layout);
    }
  });
}

TEST(RanksOutsideTheMesh, FollowAllShapes) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({2});
    auto x = distribute_tensor(counting({4, 6}), mesh, {Shard(0)});
    EXPECT_EQ(x.new_zeros({}).dim(), 0);
    EXPECT_EQ(to_string(placements(x.new_zeros({4, 6}))), "S(0)");
    EXPECT_EQ(to_string(placements(x.new_zeros({4, 5}))), "R");
    x.t_();
    EXPECT_EQ(x.sizes(), at::IntArrayRef({6, 4}));
    EXPECT_EQ(to_string(placements(x)), "S(1)");
    x.unsqueeze_(0);
    EXPECT_EQ(to_string(placements(x)), "S(2)");
    auto out = zeros({0}, mesh, {Replicate()}, f64());
    at::mm_out(out, x.squeeze(0), x.squeeze(0).t());
    EXPECT_EQ(out.sizes(), at::IntArrayRef({6, 6}));
    x.copy_(counting({1, 6, 4}));
    EXPECT_EQ(x.split(2, 1).size(), 3u);
    EXPECT_EQ(at::rand_like(x).sizes(), x.sizes());
    if (rank() < 2) {
      EXPECT_TRUE(same(x, counting({1, 6, 4})));
    }
  });
}

TEST(Operators, RefuseShapesThatDoNotFitBeforeAnythingMoves) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    auto a = distribute_tensor(counting({4, 3}), mesh, {Shard(0)});
    auto b = distribute_tensor(counting({5, 2}), mesh, {Shard(1)});
    CommLog log;
    EXPECT_ERROR(
        c10::str(
            "aten::mm(f64[4, 3] S(0), f64[5, 2] S(1)) on mesh(tp=2), rank ",
            rank(), ": dims 'k' of the operands must match; got 3 and 5"),
        at::mm(a, b));
    EXPECT_ERROR("must broadcast; got sizes 4 and 5 of dim 0", a + b);
    EXPECT_ERROR("dim must be in [-2, 1]; got 2", a.sum(2));
    EXPECT_EQ(log.count(), 0);
  });
}

TEST(Operators, WriteToOutWhateverARankRuns) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const auto p = counting({3, 2});  // rank 3 has no row
    auto x = distribute_tensor(p, mesh, {Shard(0)});
    auto out = distribute_tensor(counting({2}), mesh, {Replicate()});
    at::mean_out(out, x, {0});
    EXPECT_TRUE(same(out, p.mean(0)));
    at::amax_out(out, x, {0});
    EXPECT_TRUE(same(out, p.amax(0)));
    const auto half = at::ones({200000}, at::kHalf);
    EXPECT_EQ(
        distribute_tensor(half, mesh, {Shard(0)}).mean().item<float>(), 1);
  });
}

TEST(Operators, KeepTheOrderOfNumbersThatDoNotWrapOnly) {
  run_ranks(2, [&] {
    const auto p = at::tensor({3, 10}, f64().dtype(at::kByte));
    auto x = distribute_tensor(p, mesh_of({2}), {Shard(0)});
    EXPECT_TRUE(same(x.amax(0) - 5, p.amax(0) - 5));
  });
}

TEST(Operators, GiveCutTensorsAnotherShapeInPlace) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto x = distribute_tensor(counting({4, 4}), mesh, {Shard(0)});
    auto like = distribute_tensor(counting({6, 4}), mesh, {Replicate()});
    x.resize_as_(like);
    EXPECT_EQ(x.sizes(), like.sizes());
    EXPECT_EQ(to_local(x).size(0), 3);
  });
}

TEST(Operators, PriceCallsWithoutElementsByTensorsThatAreThere) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    const auto none = at::zeros({0}, f64());
    for (const char* layout : {"R", "S(0)", "P(sum)"}) {
      SCOPED_TRACE(layout);
      const auto on = parse_placements(layout);
      const auto sorted = distribute_tensor(none, mesh, {Partial()});
      const auto values = distribute_tensor(none, mesh, on);
      EXPECT_TRUE(
          same(at::searchsorted(sorted, values), at::searchsorted(none, none)));
      auto x = distribute_tensor(at::zeros({0, 2}, f64()), mesh, on);
      x.requires_grad_();
      full_tensor(at::layer_norm(x, {2})).sum().backward();
      EXPECT_EQ(x.grad().sizes(), x.sizes());
    }
  });
}

TEST(Operators, GiveGradientsOfOneShapeWhereSomeShardsAreEmpty) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto p = distinct({1, 1, 2}).requires_grad_();
    auto q = distinct({2, 1, 2, 2}).requires_grad_();
    at::cdist(p, q, 3).sum().backward();
    auto x = distribute_tensor(distinct({1, 1, 2}), mesh, {Shard(0)});
    auto y = distribute_tensor(distinct({2, 1, 2, 2}), mesh, {Shard(3)});
    x.requires_grad_();
    y.requires_grad_();
    full_tensor(at::cdist(x, y, 3)).sum().backward();
    EXPECT_TRUE(close(x.grad(), p.grad()));
    EXPECT_TRUE(close(y.grad(), q.grad()));
    const auto gradient = at::zeros({2, 1, 1, 2}, f64());
    const auto cut = [&](const at::Tensor& t, const Placement& placement) {
      return distribute_tensor(t.detach(), mesh, {placement});
    };
    EXPECT_EQ(
        at::_cdist_backward(
            cut(gradient, Shard(2)), cut(p, Shard(1)), cut(q, Replicate()), 3,
            cut(gradient, Shard(2)))
            .sizes(),
        at::IntArrayRef({2, 1, 1, 2}));
  });
}

// silu_backward has a composite kernel and one for every backend.
TEST(Operators, DecomposeWhereABackendKernelExistsToo) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    auto p = distinct({5, 4}).requires_grad_();
    at::silu(p).sum().backward();
    for (const char* layout : kCornerLayouts) {
      SCOPED_TRACE(layout);
      auto x =
          distribute_tensor(distinct({5, 4}), mesh, parse_placements(layout));
      x.requires_grad_();
      for (int time = 0; time < 2; ++time) {
        x.mutable_grad() = at::Tensor();
        full_tensor(at::silu(x)).sum().backward();
        EXPECT_TRUE(close(x.grad(), p.grad()));
      }
    }
  });
}

}  // namespace
}  // namespace tessera
