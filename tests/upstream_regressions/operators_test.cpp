// Wrong answers that another implementation of sharded tensors gave, one test
// each: convolutions, products, and operators that had no rule. Numbers are
// issues of github.com/pytorch/pytorch unless another repository is named;
// "measured" were found by running it.
#include <upstream_regressions/expect_plain.h>

#include <functional>

namespace tessera {
namespace {

using testing::close;
using testing::cut;
using testing::distinct;
using testing::expect_plain;
using testing::leaf;
using testing::mesh_of;

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
