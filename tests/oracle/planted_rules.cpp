// Rules that are wrong on purpose: the oracle must find every one of them.
#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <oracle/oracle.h>

namespace tessera::oracle {
namespace {

struct Planted {
  const char* what;
  const char* op;
  void (*add)(RuleTable&);
};

const Rows::Cell kR;
const Rows::Cell kSum = Rows::Cell::partial(ReduceOp::kSum);

Rows::Cell cut(int64_t d) {
  return Rows::Cell::shard(d);
}

// Cuts every dim of operand 0 and all others alike, outputs too.
void cut_all(const RuleCall& call, Rows& rows) {
  for (int64_t d = 0; d < call.self().ndim(); ++d) {
    rows.add(
        Rows::Cells(call.output_count(), cut(d)),
        Rows::Cells(call.operands().size(), cut(d)));
  }
}

// Cuts every dim of operand 0 alone; the result is Partial(op).
template <ReduceOp op>
void reduce_all(const RuleCall& call, Rows& rows) {
  for (int64_t d = 0; d < call.self().ndim(); ++d) {
    Rows::Cells operands(call.operands().size(), kR);
    operands[0] = cut(d);
    rows.add(
        Rows::Cells(call.output_count(), Rows::Cell::partial(op)), operands);
  }
}

void cut_first_of_first(const RuleCall& call, Rows& rows) {
  Rows::Cells operands(call.operands().size(), kR);
  operands[0] = cut(0);
  rows.add(Rows::Cells(call.output_count(), cut(0)), operands);
}

// A view that changes nothing about the placements, whatever it does.
ViewLayout unchanged(
    const RuleCall& call, const MeshShape& mesh, const std::vector<int64_t>*) {
  ViewLayout layout;
  layout.keeps.assign(static_cast<size_t>(mesh.ndim()), true);
  const auto strides = call.self().strides.vec();
  layout.results.push_back(
      {call.self().shape.vec(), strides, *call.self().placements});
  return layout;
}

const std::vector<Planted>& planted() {
  static const std::vector<Planted> all = {
      {"a sum plus a constant on every rank", "aten::add.Tensor",
       [](RuleTable& t) {
         t.pointwise({"aten::add.Tensor"}).also("sum: PR->P");
       }},
      {"a product of sums", "aten::mul.Tensor",
       [](RuleTable& t) {
         t.pointwise({"aten::mul.Tensor"}).also("sum: PP->P");
       }},
      {"relu of addends", "aten::relu",
       [](RuleTable& t) { t.pointwise({"aten::relu"}).also("sum: P->P"); }},
      {"exp of addends", "aten::exp",
       [](RuleTable& t) { t.pointwise({"aten::exp"}).also("sum: P->P"); }},
      {"a square keeps no maximum", "aten::square",
       [](RuleTable& t) { t.pointwise({"aten::square"}).also("max: P->P"); }},
      {"maxima do not add up", "aten::amax",
       [](RuleTable& t) { t.reduction({"aten::amax"}, ReduceOp::kSum); }},
      {"a mean of means of uneven parts", "aten::mean.dim",
       [](RuleTable& t) { t.reduction({"aten::mean.dim"}, ReduceOp::kAvg); }},
      {"columns of the left factor", "aten::mm",
       [](RuleTable& t) {
         t.rows("aten::mm", {{Shard(1), Shard(1), Replicate()}});
       }},
      {"letters the other way round", "aten::mm",
       [](RuleTable& t) { t.factors("aten::mm", "mk,kn->nm"); }},
      {"letters of a batch the other way round", "aten::bmm",
       [](RuleTable& t) { t.factors("aten::bmm", "bmk,bkn->bnm"); }},
      {"a product of Partial factors", "aten::dot",
       [](RuleTable& t) {
         t.factors("aten::dot", "k,k->").also("sum: PP->P");
       }},
      {"a bias on every rank", "aten::addmm",
       [](RuleTable& t) { t.factors("aten::addmm", "mn,mk,kn->mn"); }},
      {"softmax along the cut", "aten::_softmax",
       [](RuleTable& t) { t.pointwise({"aten::_softmax"}); }},
      {"a running sum along the cut", "aten::cumsum",
       [](RuleTable& t) { t.pointwise({"aten::cumsum"}); }},
      {"indices of maxima of parts", "aten::argmax",
       [](RuleTable& t) { t.reduction({"aten::argmax"}, ReduceOp::kMax); }},
      {"dims of the result are not shifted", "aten::sum.dim_IntList",
       [](RuleTable& t) {
         t.rows("aten::sum.dim_IntList", [](const RuleCall& call, Rows& rows) {
           rows.add(
               {cut(call.self().ndim() - 1)}, {cut(call.self().ndim() - 1)});
         });
       }},
      {"normalised dims are cut", "aten::native_layer_norm",
       [](RuleTable& t) {
         t.rows(
             "aten::native_layer_norm", [](const RuleCall& call, Rows& rows) {
               const int64_t d = call.self().ndim() - 1;
               rows.add({cut(d), kR, kR}, {cut(d), cut(0), cut(0)});
             });
       }},
      {"a lookup without a mask", "aten::embedding",
       [](RuleTable& t) {
         t.rows("aten::embedding", {{Partial(), Shard(0), Replicate()}});
       }},
      {"a view that moves dims", "aten::permute",
       [](RuleTable& t) { t.view({"aten::permute"}, unchanged); }},
      {"a view without one of the dims", "aten::select.int",
       [](RuleTable& t) { t.view({"aten::select.int"}, unchanged); }},
      {"a join along the cut", "aten::cat",
       [](RuleTable& t) { t.rows("aten::cat", cut_all); }},
      {"all() as a sum", "aten::all",
       [](RuleTable& t) { t.reduction({"aten::all"}, ReduceOp::kSum); }},
      {"a mean of variances", "aten::var.correction",
       [](RuleTable& t) {
         t.reduction({"aten::var.correction"}, ReduceOp::kAvg);
       }},
      {"bounds of addends", "aten::clamp",
       [](RuleTable& t) { t.pointwise({"aten::clamp"}).also("sum: P->P"); }},
      {"a threshold that lifts the losers", "aten::threshold",
       [](RuleTable& t) {
         t.pointwise({"aten::threshold"}).also("max: P->P");
       }},
      {"negation keeps the order", "aten::neg",
       [](RuleTable& t) { t.pointwise({"aten::neg"}).also("max: P->P"); }},
      {"indices into the whole, data of a part", "aten::gather",
       [](RuleTable& t) { t.rows("aten::gather", cut_first_of_first); }},
      {"every rank adds its part to a copy", "aten::scatter_add",
       [](RuleTable& t) {
         t.rows("aten::scatter_add", [](const RuleCall&, Rows& rows) {
           rows.add({kR}, {kR, cut(0), cut(0)});
         });
       }},
      {"output channels become samples", "aten::convolution",
       [](RuleTable& t) {
         t.rows("aten::convolution", [](const RuleCall& call, Rows& rows) {
           rows.add(
               {cut(0)}, {kR, cut(0), call.operand(2).defined ? cut(0) : kR});
         });
       }},
      {"a convolution without its neighbours", "aten::convolution",
       [](RuleTable& t) {
         t.rows("aten::convolution", [](const RuleCall&, Rows& rows) {
           rows.add({cut(2)}, {cut(2), kR, kR});
         });
       }},
      {"a mean loss as a sum", "aten::nll_loss_forward",
       [](RuleTable& t) {
         t.rows("aten::nll_loss_forward", [](const RuleCall&, Rows& rows) {
           rows.add({kSum, kSum}, {cut(0), cut(0), kR});
         });
       }},
      {"euclidean norms add up", "aten::linalg_vector_norm",
       [](RuleTable& t) {
         t.reduction({"aten::linalg_vector_norm"}, ReduceOp::kSum);
       }},
      {"a sort along the cut", "aten::sort",
       [](RuleTable& t) { t.rows("aten::sort", cut_all); }},
      {"the largest of parts", "aten::topk",
       [](RuleTable& t) { t.rows("aten::topk", cut_all); }},
      {"parts turned round in place", "aten::flip",
       [](RuleTable& t) { t.rows("aten::flip", cut_all); }},
      {"parts shifted in place", "aten::roll",
       [](RuleTable& t) { t.rows("aten::roll", cut_all); }},
      {"the shape of the whole for a part", "aten::select_backward",
       [](RuleTable& t) {
         t.rows("aten::select_backward", [](const RuleCall&, Rows& rows) {
           rows.add({cut(1)}, {cut(0)});
         });
       }},
      {"the number of samples of the whole", "aten::native_group_norm",
       [](RuleTable& t) {
         t.rows("aten::native_group_norm", [](const RuleCall&, Rows& rows) {
           rows.add({cut(0), cut(0), cut(0)}, {cut(0), kR, kR});
         });
       }},
      {"products add up", "aten::prod.dim_int",
       [](RuleTable& t) {
         t.reduction({"aten::prod.dim_int"}, ReduceOp::kSum);
       }},
      {"minus a maximum is a maximum", "aten::sub.Tensor",
       [](RuleTable& t) {
         t.pointwise({"aten::sub.Tensor"}).also("max: RP->P");
       }},
      {"a constant picked on every rank", "aten::where.self",
       [](RuleTable& t) {
         t.pointwise({"aten::where.self"}).also("sum: RPR->P");
       }},
      {"a sum in the denominator", "aten::div.Tensor",
       [](RuleTable& t) {
         t.pointwise({"aten::div.Tensor"}).also("sum: RP->P");
       }},
      {"logarithms of sums are no maxima", "aten::logsumexp",
       [](RuleTable& t) { t.reduction({"aten::logsumexp"}, ReduceOp::kMax); }},
      {"a filling on every rank", "aten::masked_fill.Scalar",
       [](RuleTable& t) {
         t.pointwise({"aten::masked_fill.Scalar"}).also("sum: PR->P");
       }},
      {"windows across the cut", "aten::max_pool2d_with_indices",
       [](RuleTable& t) {
         t.rows(
             "aten::max_pool2d_with_indices", [](const RuleCall&, Rows& rows) {
               rows.add({cut(2), cut(2)}, {cut(2)});
             });
       }},
      {"statistics of a part of the batch", "aten::native_batch_norm",
       [](RuleTable& t) {
         t.rows("aten::native_batch_norm", [](const RuleCall&, Rows& rows) {
           rows.add({cut(0), kR, kR}, {cut(0), kR, kR, kR, kR});
         });
       }},
      {"halves of a part are no part of the halves", "aten::glu",
       [](RuleTable& t) { t.rows("aten::glu", cut_all); }},
      {"counts of addends", "aten::count_nonzero",
       [](RuleTable& t) {
         t.reduction({"aten::count_nonzero"}, ReduceOp::kSum).also("sum: P->P");
       }},
      {"the greater of addends", "aten::maximum",
       [](RuleTable& t) { t.pointwise({"aten::maximum"}).also("sum: PP->P"); }},
      {"picked rows without a mask", "aten::index_select",
       [](RuleTable& t) {
         t.rows("aten::index_select", reduce_all<ReduceOp::kSum>);
       }},
      {"the diagonal of a part", "aten::tril",
       [](RuleTable& t) { t.leading({"aten::tril"}, 1); }},
      {"a sum that the result replicates", "aten::sum",
       [](RuleTable& t) {
         t.rows("aten::sum", [](const RuleCall& call, Rows& rows) {
           if (call.self().ndim() > 0) {
             rows.add({kR}, {cut(0)});
           }
         });
       }},
  };
  return all;
}

TEST(PlantedRules, AreAllFound) {
  at::set_num_threads(1);
  EXPECT_GE(planted().size(), 40u);
  for (const Planted& wrong : planted()) {
    RuleTable table;
    wrong.add(table);
    const auto ruled = find_ruled(table, wrong.op);
    ASSERT_TRUE(ruled) << wrong.op;
    const Report report = check_operator(ruled->op, ruled->found, 600);
    EXPECT_GT(report.wrong, 0)
        << wrong.what << " (" << wrong.op << ") was not found in "
        << report.cases << " cases; " << report.refusal;
  }
}

TEST(PlantedRules, RightRulesOfTheSameOperatorsPass) {
  at::set_num_threads(1);
  RuleTable table;
  table.factors("aten::mm", "mk,kn->mn");
  table.factors("aten::addmm", "mn,mk,kn->mn").bias(0);
  table.pointwise({"aten::neg"}).also("max,min: P->Q");
  for (const char* name : {"aten::mm", "aten::addmm"}) {
    const auto ruled = find_ruled(table, name);
    const Report report = check_operator(ruled->op, ruled->found, 600);
    EXPECT_EQ(report.wrong, 0) << report.problems.front();
    EXPECT_GT(report.cases, 300) << name;
  }
}

}  // namespace
}  // namespace tessera::oracle
