// Every operator works on sharded tensors: values, gradients and strides of a
// cross-section of ATen in many layouts.
#include <harness/sharded_test.h>

#include <functional>

namespace tessera {
namespace {

using testing::close;
using testing::distinct;
using testing::mesh_of;

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

}  // namespace
}  // namespace tessera
