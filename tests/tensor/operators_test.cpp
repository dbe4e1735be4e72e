// Every operator works on sharded tensors: values, gradients, results' layouts;
// what may be mixed and what may not.
#include <harness/sharded_test.h>
#include <torch/library.h>

#include <functional>

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

using Op = std::function<at::Tensor(const std::vector<at::Tensor>&)>;
struct Case {
  const char* name;
  std::vector<std::vector<int64_t>> shapes;
  Op op;
};

namespace F = torch::nn::functional;

// A cross-section of ATen: each kind of schema at least once.
std::vector<Case> cases() {
  return {
      {"add", {{5, 4}, {5, 4}}, [](auto& x) { return x[0] + x[1]; }},
      {"add broadcast", {{5, 4}, {4}}, [](auto& x) { return x[0] + x[1]; }},
      {"mul scalar", {{5, 4}}, [](auto& x) { return x[0] * 3.5; }},
      {"rsub", {{5, 4}}, [](auto& x) { return 1.0 - x[0]; }},
      {"pow", {{5, 4}}, [](auto& x) { return x[0].abs().add(1).pow(1.5); }},
      {"where",
       {{5, 4}, {5, 4}},
       [](auto& x) { return at::where(x[0] > x[1], x[0], x[1]); }},
      {"clamp", {{5, 4}}, [](auto& x) { return x[0].clamp(-0.5, 0.5); }},
      {"gelu", {{5, 4}}, [](auto& x) { return at::gelu(x[0]); }},
      {"sum", {{5, 4}}, [](auto& x) { return x[0].sum(); }},
      {"sum dim",
       {{5, 4, 3}},
       [](auto& x) {
         return x[0].sum(at::IntArrayRef({0, 2}));
       }},
      {"mean keepdim", {{5, 4}}, [](auto& x) { return x[0].mean(1, true); }},
      {"prod", {{5, 4}}, [](auto& x) { return x[0].add(3).prod(0); }},
      {"max dim", {{5, 4}}, [](auto& x) { return std::get<0>(x[0].max(1)); }},
      {"amax", {{5, 4}}, [](auto& x) { return x[0].amax(0); }},
      {"sort", {{5, 4}}, [](auto& x) { return std::get<0>(x[0].sort(0)); }},
      {"topk", {{5, 4}}, [](auto& x) { return std::get<0>(x[0].topk(2, 0)); }},
      {"cumsum", {{5, 4}}, [](auto& x) { return x[0].cumsum(0); }},
      {"var", {{5, 4}}, [](auto& x) { return x[0].var(0); }},
      {"norm", {{5, 4}}, [](auto& x) { return x[0].norm(); }},
      {"logsumexp", {{5, 4}}, [](auto& x) { return x[0].logsumexp(1); }},
      {"mm", {{5, 4}, {4, 3}}, [](auto& x) { return x[0].mm(x[1]); }},
      {"bmm", {{2, 5, 4}, {2, 4, 3}}, [](auto& x) { return x[0].bmm(x[1]); }},
      {"matmul",
       {{2, 5, 4}, {4, 3}},
       [](auto& x) { return at::matmul(x[0], x[1]); }},
      {"linear",
       {{5, 4}, {3, 4}, {3}},
       [](auto& x) { return at::linear(x[0], x[1], x[2]); }},
      {"F::linear",
       {{2, 5, 4}, {3, 4}, {3}},
       [](auto& x) { return F::linear(x[0], x[1], x[2]); }},
      {"einsum",
       {{5, 4}, {4, 3}},
       [](auto& x) {
         return at::einsum("ij,jk->ki", {x[0], x[1]});
       }},
      {"softmax", {{5, 4}}, [](auto& x) { return x[0].softmax(1); }},
      {"log_softmax", {{5, 4}}, [](auto& x) { return x[0].log_softmax(0); }},
      {"layer_norm",
       {{5, 4}, {4}, {4}},
       [](auto& x) { return at::layer_norm(x[0], {4}, x[1], x[2]); }},
      {"batch_norm",
       {{5, 4}},
       [](auto& x) {
         return at::batch_norm(x[0], {}, {}, {}, {}, true, 0.1, 1e-5, false);
       }},
      {"group_norm",
       {{2, 4, 3}},
       [](auto& x) { return at::group_norm(x[0], 2); }},
      {"conv2d",
       {{2, 3, 6, 6}, {4, 3, 3, 3}, {4}},
       [](auto& x) { return at::conv2d(x[0], x[1], x[2], 1, 1); }},
      {"max_pool2d",
       {{2, 3, 6, 6}},
       [](auto& x) { return at::max_pool2d(x[0], 2); }},
      {"upsample",
       {{2, 3, 4, 4}},
       [](auto& x) {
         return at::upsample_nearest2d(x[0], {8, 8});
       }},
      {"embedding",
       {{7, 4}},
       [](auto& x) {
         return at::embedding(x[0], x[0].sum(1).argsort(0, false));
       }},
      {"cross_entropy",
       {{5, 4}},
       [](auto& x) { return at::cross_entropy_loss(x[0], x[0].argmax(1)); }},
      {"mse_loss",
       {{5, 4}, {5, 4}},
       [](auto& x) { return at::mse_loss(x[0], x[1]); }},
      {"view",
       {{6, 4}},
       [](auto& x) {
         return x[0].view({3, 8});
       }},
      {"reshape",
       {{6, 4}},
       [](auto& x) {
         return x[0].t().reshape({8, 3});
       }},
      {"permute",
       {{2, 3, 4}},
       [](auto& x) {
         return x[0].permute({2, 0, 1});
       }},
      {"expand",
       {{1, 4}},
       [](auto& x) {
         return x[0].expand({3, 4});
       }},
      {"slice", {{6, 4}}, [](auto& x) { return x[0].slice(0, 1, 5, 2); }},
      {"select", {{6, 4}}, [](auto& x) { return x[0].select(1, 2); }},
      {"split",
       {{6, 4}},
       [](auto& x) { return x[0].split(2)[1] * x[0].split(2)[2]; }},
      {"unbind", {{3, 4}}, [](auto& x) { return x[0].unbind(0)[1]; }},
      {"diagonal", {{4, 4}}, [](auto& x) { return x[0].diagonal(); }},
      {"unfold", {{6}}, [](auto& x) { return x[0].unfold(0, 3, 1); }},
      {"as_strided",
       {{4, 4}},
       [](auto& x) {
         return x[0].as_strided({3, 2}, {4, 2}, 1);
       }},
      {"tensor_split",
       {{6, 4}},
       [](auto& x) {
         return at::tensor_split(x[0], at::tensor({1, 3}, at::kLong), 0)[1];
       }},
      {"cat",
       {{2, 4}, {3, 4}},
       [](auto& x) {
         return at::cat({x[0], x[1]});
       }},
      {"stack",
       {{3, 4}, {3, 4}},
       [](auto& x) {
         return at::stack({x[0], x[1]}, 1);
       }},
      {"flip", {{5, 4}}, [](auto& x) { return x[0].flip(0); }},
      {"roll", {{5, 4}}, [](auto& x) { return x[0].roll(2, 0); }},
      {"gather",
       {{5, 4}},
       [](auto& x) { return x[0].gather(0, x[0].argsort(0, false)); }},
      {"index",
       {{5, 4}},
       [](auto& x) {
         return x[0].index({x[0].argsort(0, false).select(1, 0)});
       }},
      {"index_put",
       {{5, 4}, {5, 4}},
       [](auto& x) {
         return x[0].index_put({x[0].argsort(0, false).select(1, 1)}, x[1]);
       }},
      {"index_select",
       {{5, 4}},
       [](auto& x) {
         return x[0].index_select(0, x[0].argsort(0, false).select(1, 0));
       }},
      {"scatter_add",
       {{5, 4}, {5, 4}},
       [](auto& x) {
         return x[0].scatter_add(0, x[0].argsort(0, false), x[1]);
       }},
      {"masked_fill",
       {{5, 4}},
       [](auto& x) { return x[0].masked_fill(x[0] > 0, 2.0); }},
      {"masked_select",
       {{5, 4}},
       [](auto& x) { return x[0].masked_select(x[0] > 0); }},
      {"tril", {{4, 4}}, [](auto& x) { return x[0].tril(); }},
      {"sdpa",
       {{2, 2, 4, 3}, {2, 2, 4, 3}, {2, 2, 4, 3}},
       [](auto& x) {
         return at::scaled_dot_product_attention(
             x[0], x[1], x[2], {}, 0.0, true);
       }},
      {"sdpa mask",
       {{2, 2, 4, 3}, {2, 2, 4, 3}, {2, 2, 4, 3}},
       [](auto& x) {
         return at::scaled_dot_product_attention(
             x[0], x[1], x[2], x[0].matmul(x[1].transpose(-1, -2)) > 0.1);
       }},
      {"inverse",
       {{4, 4}},
       [](auto& x) { return at::inverse(at::matrix_exp(x[0] * 0.1)); }},
      {"fft", {{6, 4}}, [](auto& x) { return at::fft_rfft(x[0]).abs(); }},
      {"conj",
       {{4, 4}},
       [](auto& x) {
         return at::real(
             at::complex(x[0], x[0] * 2).conj() * at::complex(x[0], x[0]));
       }},
      {"matrix_exp",
       {{3, 3}},
       [](auto& x) { return at::matrix_exp(x[0] * 0.1); }},
      {"pad",
       {{5, 4}},
       [](auto& x) {
         return at::constant_pad_nd(x[0], {1, 2}, 0.5);
       }},
      {"repeat_interleave",
       {{3, 4}},
       [](auto& x) { return x[0].repeat_interleave(2, 0); }},
      {"clone", {{5, 4}}, [](auto& x) { return x[0].clone(); }},
      {"to dtype",
       {{5, 4}},
       [](auto& x) { return x[0].to(at::kFloat).to(at::kDouble); }},
      {"zeros_like",
       {{5, 4}},
       [](auto& x) { return at::zeros_like(x[0]) + x[0]; }},
      {"cdist",
       {{5, 4}, {3, 4}},
       [](auto& x) { return at::cdist(x[0], x[1]); }},
  };
}

const std::vector<const char*> kPlacements = {"R", "S(0)", "S(1)", "P(sum)"};

bool fits(const char* text, const std::vector<int64_t>& shape) {
  return std::string(text) != "S(1)" || shape.size() > 1;
}

// Runs one case with arguments laid out as the texts say, and compares values
// and gradients with plain tensors.
void check_case(
    const Case& c, const DeviceMesh& mesh,
    const std::vector<std::string>& layouts) {
  std::vector<at::Tensor> sharded, plain;
  std::string trace = c.name;
  for (size_t i = 0; i < c.shapes.size(); ++i) {
    const at::Tensor value =
        distinct(c.shapes[i]).add(0.1 * static_cast<double>(i));
    plain.push_back(value.clone().requires_grad_());
    sharded.push_back(
        distribute_tensor(value, mesh, parse_placements(layouts[i]))
            .requires_grad_());
    trace += " " + layouts[i];
  }
  SCOPED_TRACE(trace);
  const at::Tensor want = c.op(plain);
  const at::Tensor got = c.op(sharded);
  ASSERT_TRUE(is_dtensor(got));
  EXPECT_EQ(got.strides(), want.strides());
  EXPECT_TRUE(close(got, want));
  if (!want.requires_grad()) {
    return;
  }
  const at::Tensor weight = distinct(want.sizes()).add(1.5);
  (want * weight).sum().backward();
  (got *
   distribute_tensor(
       weight, mesh, Placements(static_cast<size_t>(mesh.ndim()), Replicate())))
      .sum()
      .backward();
  for (size_t i = 0; i < plain.size(); ++i) {
    ASSERT_EQ(plain[i].grad().defined(), sharded[i].grad().defined());
    if (plain[i].grad().defined()) {
      EXPECT_TRUE(close(sharded[i].grad(), plain[i].grad()));
      EXPECT_EQ(placements(sharded[i].grad()), placements(sharded[i]));
    }
  }
}

TEST(Operators, GiveThePlainValuesAndGradients) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    for (const Case& c : cases()) {
      for (const char* first : kPlacements) {
        for (const char* rest : {"R", "S(0)"}) {
          std::vector<std::string> layouts(c.shapes.size(), rest);
          layouts[0] = first;
          if (fits(first, c.shapes[0])) {
            check_case(c, mesh, layouts);
          }
          if (c.shapes.size() == 1) {
            break;
          }
        }
      }
    }
  });
}

TEST(Operators, WorkOnTwoDimMeshes) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    for (const Case& c : cases()) {
      for (const char* first :
           {"S(0) R", "R S(0)", "S(0) S(0)", "S(0)[1] S(0)[0]",
            "P(sum) S(0)"}) {
        std::vector<std::string> layouts(c.shapes.size(), "R S(0)");
        layouts[0] = first;
        check_case(c, mesh, layouts);
      }
    }
  });
}

TEST(Operators, StayLocalWhereLayoutsAreEqual) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    const auto a = distribute_tensor(distinct({5, 4}), mesh, {Shard(0)});
    const auto b = distribute_tensor(distinct({5, 4}), mesh, {Shard(0)});
    for (const at::Tensor& t :
         {a + b, a * 2, a.exp(), at::where(a > b, a, b), a.clone(),
          at::zeros_like(a), a.to(at::kFloat), a.detach(), a.new_zeros({5, 4}),
          a.new_empty_strided({5, 4}, {4, 1}).fill_(1)}) {
      EXPECT_EQ(to_string(placements(t)), "S(0)");
      EXPECT_EQ(to_local(t).size(0), rank() == 2 ? 1 : 2);
    }
    EXPECT_EQ(to_string(placements(a.new_zeros({2}))), "R");
    EXPECT_EQ(a.to(at::kFloat).scalar_type(), at::kFloat);
  });
}

TEST(Operators, RefuseAMixByTheUser) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    const auto t = distribute_tensor(distinct({4, 4}), mesh, {Shard(0)});
    const auto p = distinct({4, 4});
    EXPECT_ERROR("plain and sharded tensors are mixed", t + p);
    EXPECT_ERROR("plain and sharded tensors are mixed", p.mm(t));
    EXPECT_ERROR("plain and sharded tensors are mixed", at::matmul(t, p));
    EXPECT_ERROR("plain and sharded tensors are mixed", at::cat({t, p}));
    EXPECT_ERROR(
        "aten::add.Tensor(f64[4, 4] S(0), f64[4, 4] plain, 1) on mesh(tp=2",
        t + p);
    EXPECT_ERROR("rank " + std::to_string(rank()), t + p);
    EXPECT_ERROR("distribute_optimizer()", t.clone().add_(p));
    EXPECT_EQ(error_of([&] { (t + at::scalar_tensor(2.0, f64())) * 3; }), "");
    const ImplicitReplication guard;
    EXPECT_TRUE(same(t + p, p + p));
  });
}

TEST(Operators, AcceptAtensOwnMixes) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto t =
        distribute_tensor(distinct({4, 4}), mesh, {Shard(0)}).requires_grad_();
    std::get<0>(t.max(1)).sum().backward();
    std::get<0>(t.sort(1)).sum().backward();
    std::get<0>(t.topk(2, 1)).sum().backward();
    auto p = distinct({4, 4}).requires_grad_();
    (std::get<0>(p.max(1)).sum() + p.sum() + std::get<0>(p.topk(2, 1)).sum())
        .backward();
    EXPECT_TRUE(close(t.grad(), p.grad()));
  });
}

TEST(Operators, RefuseDifferentMeshes) {
  run_ranks(4, [&] {
    const auto a =
        distribute_tensor(distinct({4}), mesh_of({4}, {"x"}), {Shard(0)});
    const auto b = distribute_tensor(
        distinct({4}), mesh_of({2, 2}, {"y", "z"}), {Shard(0), Replicate()});
    EXPECT_ERROR("mesh(x=4", a + b);
    EXPECT_ERROR("mesh(y=2, z=2", a + b);
    EXPECT_ERROR("different meshes", at::cat({a, b}));
  });
}

TEST(Operators, WriteInPlaceIntoTheSameShard) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    for (const char* text : {"R", "S(0)", "S(1)", "P(sum)", "SS(0,2)"}) {
      SCOPED_TRACE(text);
      const auto start = distinct({5, 4});
      auto t = distribute_tensor(start, mesh, parse_placements(text));
      const auto memory = to_local(t).const_data_ptr();
      auto p = start.clone();
      const auto other = distribute_tensor(distinct({4}), mesh, {Replicate()});
      t.mul_(2).add_(other).cumsum_(0).clamp_(-1, 1);
      p.mul_(2).add_(distinct({4})).cumsum_(0).clamp_(-1, 1);
      EXPECT_TRUE(close(t, p));
      EXPECT_EQ(to_string(placements(t)), text);
      EXPECT_EQ(to_local(t).const_data_ptr(), memory);
    }
  });
}

TEST(Operators, WriteIntoOutArguments) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    const auto a = distribute_tensor(distinct({5, 4}), mesh, {Shard(0)});
    const auto b = distribute_tensor(distinct({4, 3}), mesh, {Replicate()});
    auto out = zeros({5, 3}, mesh, {Shard(1)}, f64());
    at::mm_out(out, a, b);
    EXPECT_TRUE(close(out, distinct({5, 4}).mm(distinct({4, 3}))));
    EXPECT_EQ(to_string(placements(out)), "S(1)");
    auto grown = zeros({0}, mesh, {Shard(0)}, f64());
    at::mm_out(grown, a, b);
    EXPECT_TRUE(close(grown, distinct({5, 4}).mm(distinct({4, 3}))));
    auto values = zeros({5}, mesh, {Shard(0)}, f64());
    auto indices = zeros({5}, mesh, {Replicate()}, i64());
    at::max_out(values, indices, a, 1);
    EXPECT_TRUE(same(values, std::get<0>(distinct({5, 4}).max(1))));
    EXPECT_TRUE(same(indices, std::get<1>(distinct({5, 4}).max(1))));
  });
}

TEST(Operators, ChangeShapesInPlaceAndKeepTheShard) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    auto t = distribute_tensor(counting({5, 1, 4}), mesh, {Shard(0)});
    auto p = counting({5, 1, 4});
    t.squeeze_(1).t_().unsqueeze_(0).transpose_(0, 2);
    p.squeeze_(1).t_().unsqueeze_(0).transpose_(0, 2);
    EXPECT_TRUE(same(t, p));
    EXPECT_EQ(t.sizes(), p.sizes());
    EXPECT_EQ(to_string(placements(t)), "S(0)");
    auto one = distribute_tensor(counting({1, 4}), mesh, {Shard(0)});
    EXPECT_ERROR("would vanish", one.squeeze_(0));
    EXPECT_ERROR("cannot change its memory", one.as_strided_({2, 2}, {2, 1}));
    EXPECT_TRUE(same(one.resize_({1, 4}), counting({1, 4})));
  });
}

TEST(Operators, ResizeCutTensorsAndKeepTheFirstElements) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    for (const char* layout : {"R", "S(0)", "S(1)", "SS(0,2)", "P(sum)"}) {
      SCOPED_TRACE(layout);
      const auto x =
          distribute_tensor(counting({5, 4}), mesh, parse_placements(layout));
      EXPECT_TRUE(same(x.clone().resize_({2, 5, 2}), counting({2, 5, 2})));
      EXPECT_TRUE(same(x.clone().resize_({3}), counting({3})));
      const auto grown = x.clone().resize_({6, 4});
      EXPECT_EQ(grown.sizes(), at::IntArrayRef({6, 4}));
      EXPECT_TRUE(same(grown.slice(0, 0, 5), counting({5, 4})));
      auto like = x.clone();
      like.resize_as_(distribute_tensor(counting({4, 5}), mesh, {Shard(1)}));
      EXPECT_TRUE(same(like, counting({4, 5})));
    }
    auto turned =
        distribute_tensor(counting({5, 4}), mesh, {Shard(0)}).t().clone();
    EXPECT_FALSE(turned.is_contiguous());
    EXPECT_ERROR("only a contiguous", turned.resize_({3}));
  });
}

TEST(Operators, DrawTheSameRandomNumbersOnAllRanks) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    const auto x = zeros({64}, mesh, {Shard(0)}, f64());
    const auto whole = full_tensor(at::rand_like(x));
    const auto check =
        from_local(whole, mesh, {Replicate()}, {.run_check = true});
    EXPECT_GT(whole.std().item<double>(), 0.1);
    auto y = zeros({64}, mesh, {Shard(0)}, f64());
    y.normal_();
    const auto drawn = full_tensor(y);
    from_local(drawn, mesh, {Replicate()}, {.run_check = true});
    EXPECT_GT(drawn.std().item<double>(), 0.5);
    const auto kept =
        at::dropout(ones({400}, mesh, {Shard(0)}, f64()), 0.5, true);
    EXPECT_NEAR(full_tensor(kept).mean().item<double>(), 1.0, 0.3);
    from_local(full_tensor(kept), mesh, {Replicate()}, {.run_check = true});
  });
}

TEST(Operators, ReportAFailedRandomCallOnAllRanks) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    const auto x = ones({2, 3}, mesh, {Replicate()}, f64());
    EXPECT_NE(error_of([&] { at::multinomial(x, 7, false); }), "");
    EXPECT_TRUE(same(full_tensor(x), at::ones({2, 3}, f64())));
  });
}

TEST(Operators, ReadValuesOfPartialTensorsReduced) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    const auto p = from_local(at::ones({}, f64()), mesh, {Partial()});
    EXPECT_EQ(p.item<double>(), 3.0);
    EXPECT_TRUE(at::equal(
        distribute_tensor(counting({5}), mesh, {Shard(0)}),
        distribute_tensor(counting({5}), mesh, {Replicate()})));
    EXPECT_FALSE(at::equal(
        distribute_tensor(counting({5}), mesh, {Shard(0)}),
        distribute_tensor(counting({5}) + 1, mesh, {Replicate()})));
  });
}

TEST(Operators, RefuseSparseResults) {
  run_ranks(2, [&] {
    const auto t =
        distribute_tensor(counting({4, 4}), mesh_of({2}), {Shard(0)});
    EXPECT_ERROR("strided", t.to_sparse());
  });
}

TEST(Operators, GiveEmptyResultsOutsideTheMesh) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({2});
    auto a =
        distribute_tensor(distinct({5, 4}), mesh, {Shard(0)}).requires_grad_();
    const auto b = distribute_tensor(distinct({4, 3}), mesh, {Replicate()});
    auto y = a.mm(b).relu().sum(0);
    auto z = a * 2;
    EXPECT_EQ(y.sizes(), at::IntArrayRef({3}));
    EXPECT_EQ(to_string(placements(z)), "S(0)");
    y.sum().backward();
    EXPECT_EQ(a.grad().sizes(), a.sizes());
    if (rank() == 2) {
      EXPECT_ERROR("outside the mesh", y.sum().item());
    } else {
      auto p = distinct({5, 4}).requires_grad_();
      p.mm(distinct({4, 3})).relu().sum().backward();
      EXPECT_TRUE(close(a.grad(), p.grad()));
    }
  });
}

at::Tensor late_op(const at::Tensor& x) {
  // Reads a pointer, as custom kernels do: it must only ever see plain tensors.
  static_cast<void>(x.const_data_ptr());
  return x * 2 + 1;
}
at::Tensor late_composite(const at::Tensor& x) {
  return x.mm(at::ones({x.size(1), 2}, x.options()));
}

TEST(Operators, DefinedLaterAreServedToo) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto t = distribute_tensor(distinct({4, 4}), mesh, {Shard(0)});
    if (rank() == 0) {
      static auto* kept = new torch::Library(
          torch::Library::DEF, "tessera_test", std::nullopt, __FILE__,
          __LINE__);
      kept->def(
          "late(Tensor x) -> Tensor",
          torch::dispatch(
              c10::DispatchKey::CompositeExplicitAutograd, &late_op));
      kept->def("late_cpu(Tensor x) -> Tensor");
      kept->impl("late_cpu", torch::dispatch(c10::DispatchKey::CPU, &late_op));
      kept->impl("late_cpu", torch::dispatch(c10::DispatchKey::CUDA, &late_op));
      kept->def("late_composite(Tensor x) -> Tensor", &late_composite);
    }
    init().communicator().barrier();
    auto find = [](const char* name) {
      return c10::Dispatcher::singleton()
          .findSchemaOrThrow(name, "")
          .typed<at::Tensor(const at::Tensor&)>();
    };
    for (const char* name : {"tessera_test::late", "tessera_test::late_cpu"}) {
      EXPECT_TRUE(close(find(name).call(t), distinct({4, 4}) * 2 + 1));
    }
    EXPECT_TRUE(close(
        find("tessera_test::late_composite").call(t),
        distinct({4, 4}).mm(at::ones({4, 2}, f64()))));
  });
}

}  // namespace
}  // namespace tessera
