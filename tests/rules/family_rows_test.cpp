// Every row of indexing, joins, lookups, convolution and pooling rules:
// operands cut or split into addends as the row says, the operator run on each
// rank's part, and the parts put together again, against the operator on the
// whole.
#include <gtest/gtest.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include "rules/view_call.h"

namespace tessera::view_tests {
namespace {

using at::Tensor;
using Values = std::vector<c10::IValue>;

const c10::IValue kNone;

Tensor numbers(const List& shape, int64_t seed = 0) {
  int64_t numel = 1;
  for (const int64_t size : shape) {
    numel *= size;
  }
  return at::arange(seed, seed + numel, at::kLong)
      .mul(7)
      .remainder(23)
      .sub(9)
      .to(at::kDouble)
      .reshape(shape);
}

Tensor indices(const List& values) {
  return at::tensor(values, at::kLong);
}

// The tensors of a call in schema order, numbered as in a rule.
template <class F>
void for_each_operand(Values& values, F f) {
  for (c10::IValue& value : values) {
    if (value.isTensor()) {
      Tensor t = value.toTensor();
      f(t);
      value = t;
    } else if (value.isTensorList()) {
      auto list = value.toTensorVector();
      for (Tensor& t : list) {
        f(t);
      }
      value = c10::List<Tensor>(list);
    } else if (
        value.isList() &&
        value.toList().elementType()->kind() == c10::TypeKind::OptionalType) {
      c10::List<std::optional<Tensor>> list;
      for (const c10::IValue& element : value.toListRef()) {
        Tensor t = element.isTensor() ? element.toTensor() : Tensor();
        f(t);
        list.push_back(t.defined() ? std::optional<Tensor>(t) : std::nullopt);
      }
      value = list;
    }
  }
}

struct Call {
  std::string name;
  Values values;
};

std::vector<Tensor> run(const Call& call, Values values) {
  const size_t dot = call.name.find('.');
  const std::string overload =
      dot == std::string::npos ? "" : call.name.substr(dot + 1);
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
      call.name.substr(0, dot).c_str(), overload.c_str());
  torch::jit::Stack stack(values.begin(), values.end());
  op.callBoxed(&stack);
  std::vector<Tensor> results;
  for (const c10::IValue& result : stack) {
    results.push_back(result.toTensor());
  }
  return results;
}

// Addends that reduce to something, one per rank.
Tensor addend(const Tensor& whole, int64_t r) {
  return whole.add(3 * r).remainder(5).sub(1).to(whole.scalar_type());
}

Tensor reduce(const std::vector<Tensor>& parts, ReduceOp op) {
  const Tensor all = at::stack(parts);
  switch (op) {
    case ReduceOp::kSum:
      return all.sum(0);
    case ReduceOp::kAvg:
      return all.mean(0);
    case ReduceOp::kMax:
      return all.amax(0);
    case ReduceOp::kMin:
      return all.amin(0);
    case ReduceOp::kProduct:
      break;
  }
  return all.prod(0);
}

struct Count {
  int64_t rows = 0;
  int64_t cuts = 0;
};

class RowCheck {
 public:
  RowCheck(const Call& call, int64_t ranks) : call_(call), ranks_(ranks) {}

  void all_rows(Count& count) {
    const c10::FunctionSchema& schema = schema_of(call_.name);
    while (call_.values.size() < schema.arguments().size()) {
      call_.values.push_back(
          *schema.arguments()[call_.values.size()].default_value());
    }
    std::vector<Operand> operands;
    std::vector<Tensor> kept;
    for (size_t a = 0; a < call_.values.size(); ++a) {
      const auto kind = schema.arguments()[a].type()->kind();
      if (call_.values[a].isNone() && kind == c10::TypeKind::OptionalType &&
          schema.arguments()[a].type()->str().rfind("Tensor", 0) == 0) {
        operands.emplace_back();
        absent_.push_back(operands.size() - 1);
        continue;
      }
      Values one{call_.values[a]};
      for_each_operand(one, [&](Tensor& t) {
        Operand operand;
        operand.defined = t.defined();
        if (t.defined()) {
          operand.shape = t.sizes();
          operand.strides = t.strides();
          operand.dtype = t.scalar_type();
        }
        operands.push_back(operand);
        kept.push_back(t);
      });
    }
    rule_ = detail::find_rule(rules(), schema, [](const std::string&) {
              return std::vector<const c10::FunctionSchema*>{};
            }).rule;
    ASSERT_NE(rule_, nullptr) << call_.name;
    Rows rows;
    detail::add_rows(*rule_, RuleCall(schema, call_.values, operands), rows);
    for (const Rows::Row& row : rows.rows()) {
      if (row.local == detail::RunBy::kOperator && fits(row, operands)) {
        one_row(row);
        ++count.rows;
      }
    }
    count.cuts += static_cast<int64_t>(rows.rows().size()) > 1;
  }

 private:
  // As the engine does: cut dims of one size, and no empty shard where the
  // rule forbids that.
  bool fits(const Rows::Row& row, const std::vector<Operand>& operands) {
    int64_t size = -1;
    for (size_t i = 0; i < operands.size(); ++i) {
      const Rows::Cell& cell = row.operands[i];
      if (!operands[i].defined) {
        continue;
      }
      if (cell.is_partial() && operands[i].dtype == at::kLong) {
        return false;
      }
      if (cell.is_shard()) {
        const int64_t d =
            cell.dim() < 0 ? cell.dim() + operands[i].ndim() : cell.dim();
        if (d < 0 || d >= operands[i].ndim()) {
          return false;
        }
        const int64_t here = operands[i].shape[static_cast<size_t>(d)];
        if (size >= 0 && size != here) {
          return false;
        }
        size = here;
      }
    }
    size_ = size;
    return !rule_->not_empty || size < 0 || length(ranks_ - 1) > 0;
  }

  int64_t length(int64_t r) const {
    return total_length(cut_runs(Shard(0), size_, ranks_, r));
  }
  Tensor part(const Tensor& whole, int64_t dim, int64_t r) const {
    const Layout::Runs runs = cut_runs(Shard(0), size_, ranks_, r);
    return whole.narrow(
        dim, runs.empty() ? 0 : runs[0].begin, total_length(runs));
  }

  Values local_values(const Rows::Row& row, int64_t r) {
    Values values = call_.values;
    size_t i = 0;
    for_each_present(values, i, [&](Tensor& t, size_t n) {
      const Rows::Cell& cell = row.operands[n];
      if (t.defined() && cell.is_shard()) {
        t = part(t, cell.dim(), r).contiguous();
      } else if (t.defined() && cell.is_partial()) {
        t = addend(t, r);
      }
    });
    const Rows::Cell& output = row.outputs[0];
    if (!rule_->shape_argument.empty() && output.is_shard()) {
      const auto at =
          *schema_of(call_.name).argumentIndexWithName(rule_->shape_argument);
      List shape = values[static_cast<size_t>(at)].toIntVector();
      shape[static_cast<size_t>(output.dim())] = length(r);
      values[static_cast<size_t>(at)] = shape;
    }
    return values;
  }

  // The whole operands whose addends those of local_values() are.
  Values whole_values(const Rows::Row& row) {
    Values values = call_.values;
    size_t i = 0;
    for_each_present(values, i, [&](Tensor& t, size_t n) {
      if (t.defined() && row.operands[n].is_partial()) {
        std::vector<Tensor> parts;
        for (int64_t r = 0; r < ranks_; ++r) {
          parts.push_back(addend(t, r));
        }
        t = reduce(parts, row.operands[n].op());
      }
    });
    return values;
  }

  template <class F>
  void for_each_present(Values& values, size_t& i, F f) {
    for_each_operand(values, [&](Tensor& t) {
      while (std::find(absent_.begin(), absent_.end(), i) != absent_.end()) {
        ++i;
      }
      f(t, i++);
    });
  }

  void one_row(const Rows::Row& row) {
    const std::vector<Tensor> whole = run(call_, whole_values(row));
    std::vector<std::vector<Tensor>> parts(whole.size());
    for (int64_t r = 0; r < ranks_; ++r) {
      const std::vector<Tensor> mine = run(call_, local_values(row, r));
      for (size_t o = 0; o < whole.size(); ++o) {
        parts[o].push_back(mine[o]);
      }
    }
    for (size_t o = 0; o < whole.size(); ++o) {
      if (!whole[o].defined()) {
        continue;
      }
      const Rows::Cell& cell =
          row.outputs.size() == 1 ? row.outputs[0] : row.outputs[o];
      const Tensor got = cell.is_shard()     ? at::cat(parts[o], cell.dim())
                         : cell.is_partial() ? reduce(parts[o], cell.op())
                                             : parts[o][0];
      ASSERT_EQ(got.sizes(), whole[o].sizes())
          << call_.name << " " << to_string(row) << " on " << ranks_;
      ASSERT_TRUE(got.allclose(whole[o], 1e-9, 1e-9))
          << call_.name << " " << to_string(row) << " output " << o << " on "
          << ranks_ << "\n"
          << got << "\n"
          << whole[o];
    }
  }

  Call call_;
  int64_t ranks_;
  const detail::Rule* rule_ = nullptr;
  std::vector<size_t> absent_;
  int64_t size_ = -1;
};

void expect_right(const std::vector<Call>& calls) {
  Count count;
  for (const Call& call : calls) {
    for (const int64_t ranks : {2, 3, 4}) {
      RowCheck(call, ranks).all_rows(count);
    }
  }
  std::printf("%lld rows\n", static_cast<long long>(count.rows));
  EXPECT_EQ(count.cuts, static_cast<int64_t>(3 * calls.size()));
}

c10::IValue list(const std::vector<Tensor>& tensors) {
  return c10::List<Tensor>(tensors);
}
c10::IValue optional_list(const std::vector<Tensor>& tensors) {
  c10::List<std::optional<Tensor>> values;
  for (const Tensor& t : tensors) {
    values.push_back(t.defined() ? std::optional<Tensor>(t) : std::nullopt);
  }
  return values;
}

TEST(FamilyRowsTest, Joins) {
  const Tensor a = numbers({4, 6}), b = numbers({4, 6}, 3);
  expect_right(
      {{"aten::cat", {list({a, numbers({4, 3}, 5)}), 1}},
       {"aten::cat",
        {list({a, at::zeros_like(a).reshape({-1}).narrow(0, 0, 0)}), -2}},
       {"aten::stack", {list({a, b}), 1}},
       {"aten::stack", {list({a, b}), -1}},
       {"aten::repeat", {a, List{2, 1, 3}}},
       {"aten::roll", {a, List{1}, List{1}}},
       {"aten::roll", {a, List{1}, List{}}},
       {"aten::flip", {a, List{0}}},
       {"aten::rot90", {numbers({3, 4, 5}), 1, List{0, 2}}},
       {"aten::narrow_copy", {a, 1, 2, 3}},
       {"aten::constant_pad_nd", {a, List{1, 2}, 0}},
       {"aten::constant_pad_nd", {a, List{0, 0, -1, 2}, 3}},
       {"aten::constant_pad_nd", {a, List{-1, -2}, 3}},
       {"aten::diag_embed", {a, 1, 0, -1}},
       {"aten::select_backward", {a, List{4, 5, 6}, 1, 2}},
       {"aten::slice_backward", {a, List{4, 9}, 1, 1, 7, 1}},
       {"aten::diagonal_backward", {a, List{6, 4, 7}, 0, 0, 2}},
       {"aten::unfold_backward", {numbers({4, 5, 2}), List{4, 6}, 1, 2, 1}},
       {"aten::slice_scatter", {a, numbers({4, 3}), 1, 1, 4, 1}},
       {"aten::select_scatter", {a, numbers({6}), 0, 2}},
       {"aten::diagonal_scatter",
        {numbers({4, 5, 6}), numbers({5, 4}), 0, 0, 2}}});
}

TEST(FamilyRowsTest, Indexing) {
  const Tensor t = numbers({5, 4, 6}), i = indices({3, 0, 2, 3, 1});
  const Tensor wide = indices({0, 3, 1, 2, 0, 1, 3, 3, 2, 1}).reshape({5, 2});
  const Tensor cube = wide.unsqueeze(2).expand({5, 2, 6}).contiguous();
  const Tensor mask = numbers({5, 4}).gt(0);
  expect_right(
      {{"aten::gather", {t, 1, cube, false}},
       {"aten::gather", {t, 1, cube.narrow(0, 0, 3).contiguous(), false}},
       {"aten::index_select", {t, 1, i}},
       {"aten::index.Tensor", {t, optional_list({Tensor(), i})}},
       {"aten::index.Tensor", {t, optional_list({i, Tensor(), i})}},
       {"aten::index.Tensor", {t, optional_list({wide, wide.narrow(0, 0, 1)})}},
       {"aten::index.Tensor", {t, optional_list({mask})}},
       {"aten::index_put",
        {t, optional_list({Tensor(), indices({3, 1})}), numbers({5, 2, 6}),
         false}},
       {"aten::index_put",
        {t, optional_list({Tensor(), i}), numbers({5, 5, 6}), true}},
       {"aten::index_put", {t, optional_list({i, i}), numbers({6}), true}},
       {"aten::index_put", {t, optional_list({mask}), numbers({1}), false}},
       {"aten::index_add", {t, 1, i, numbers({5, 5, 6}, 4), 2}},
       {"aten::index_copy", {t, 1, indices({2, 0}), numbers({5, 2, 6}, 4)}},
       {"aten::index_reduce", {t, 1, i, numbers({5, 5, 6}, 4), "amax", true}},
       {"aten::index_fill.int_Scalar", {t, 1, indices({2, 0}), 0}},
       {"aten::index_fill.int_Scalar", {t, 1, indices({2, 0}), 5}},
       {"aten::index_fill.int_Tensor", {t, 1, indices({2, 0}), numbers({})}},
       {"aten::scatter.value", {t, 1, cube.narrow(1, 0, 1).contiguous(), 2}},
       {"aten::scatter.src",
        {t, 1, cube.narrow(1, 0, 1).contiguous(), numbers({5, 3, 6}, 2)}},
       {"aten::scatter_add", {t, 1, cube, numbers({5, 2, 6}, 2)}},
       {"aten::scatter_add", {t, 1, cube, numbers({7, 3, 6}, 2)}},
       {"aten::scatter.reduce", {t, 1, cube, numbers({5, 2, 6}, 2), "add"}},
       {"aten::scatter.value_reduce", {t, 1, cube, 2, "multiply"}},
       {"aten::scatter_reduce.two",
        {t, 1, cube, numbers({5, 2, 6}, 2), "sum", true}},
       {"aten::scatter_reduce.two",
        {t, 1, cube, numbers({5, 2, 6}, 2), "sum", false}},
       {"aten::scatter_reduce.two",
        {t, 1, cube, numbers({5, 2, 6}, 2), "amax", true}},
       {"aten::scatter_reduce.two",
        {t, 1, cube, numbers({5, 2, 6}, 2), "amin", false}},
       {"aten::scatter_reduce.two",
        {t, 1, cube, numbers({5, 2, 6}, 2), "prod", true}},
       {"aten::take", {t, wide}},
       {"aten::put", {t, wide, numbers({5, 2}), true}},
       {"aten::put", {t, indices({3, 9}), numbers({2}), false}},
       {"aten::masked_scatter", {t, mask.unsqueeze(2), numbers({120})}}});
}

TEST(FamilyRowsTest, Lookups) {
  const Tensor table = numbers({7, 4});
  const Tensor i = indices({3, 0, 2, 3, 1, 6}).reshape({3, 2});
  const Tensor bags = indices({0, 2, 2});
  const Tensor flat = i.reshape({-1});
  expect_right(
      {{"aten::embedding", {table, i, 3, false, false}},
       {"aten::embedding_dense_backward", {numbers({3, 2, 4}), i, 7, 3, false}},
       {"aten::embedding_dense_backward", {numbers({3, 2, 4}), i, 7, -1, true}},
       {"aten::_embedding_bag",
        {table, flat, bags, false, 0, false, kNone, false, -1}},
       {"aten::_embedding_bag",
        {table, flat, bags, false, 1, false, kNone, false, -1}},
       {"aten::_embedding_bag",
        {table, flat, bags, false, 2, false, kNone, false, -1}},
       {"aten::_embedding_bag_per_sample_weights_backward",
        {numbers({3, 4}), table, flat, bags, indices({0, 0, 2, 2, 2, 2}), 0,
         -1}}});
}

TEST(FamilyRowsTest, Convolutions) {
  const Tensor x = numbers({3, 4, 5, 6}), w = numbers({5, 4, 3, 1});
  const Tensor up = numbers({4, 5, 3, 1}), deep = numbers({4, 1, 3, 1});
  const Tensor b = numbers({5});
  const List ones{1, 1}, zeros{0, 0}, pad{1, 0};
  expect_right(
      {{"aten::convolution", {x, w, b, ones, pad, ones, false, zeros, 1}},
       {"aten::convolution",
        {x, w, kNone, List{2, 1}, zeros, ones, false, zeros, 1}},
       {"aten::convolution", {x, up, b, ones, pad, ones, true, zeros, 1}},
       {"aten::convolution",
        {x, deep, kNone, ones, pad, ones, false, zeros, 4}},
       {"aten::convolution_backward",
        {numbers({3, 5, 5, 6}), x, w, List{5}, ones, pad, ones, false, zeros, 1,
         c10::List<bool>({true, true, true})}},
       {"aten::convolution_backward",
        {numbers({3, 5, 5, 6}), x, up, List{5}, ones, pad, ones, true, zeros, 1,
         c10::List<bool>({true, true, false})}},
       {"aten::conv_tbc", {numbers({5, 3, 4}), numbers({3, 4, 5}), b, 1}}});
}

TEST(FamilyRowsTest, Pools) {
  const Tensor x = numbers({4, 3, 6, 6}), small = numbers({4, 3, 3, 3}, 2);
  const List two{2, 2}, zero{0, 0}, one{1, 1};
  const Tensor at =
      run({"aten::max_pool2d_with_indices", {}},
          {x, two, two, zero, one, false})[1];
  const Tensor grid = numbers({4, 2, 3, 2}).div(16);
  expect_right(
      {{"aten::avg_pool2d", {x, two, two, one, false, true, kNone}},
       {"aten::avg_pool2d",
        {x.select(0, 1), two, two, one, false, true, kNone}},
       {"aten::avg_pool2d_backward",
        {small, x, two, two, zero, false, true, kNone}},
       {"aten::_adaptive_avg_pool2d", {x, List{2, 3}}},
       {"aten::_adaptive_avg_pool2d_backward", {small, x}},
       {"aten::max_pool2d_with_indices", {x, two, two, zero, one, false}},
       {"aten::max_pool2d_with_indices_backward",
        {small, x, two, two, zero, one, false, at}},
       {"aten::adaptive_max_pool2d", {x, List{2, 3}}},
       {"aten::max_unpool2d", {small, at, List{6, 6}}},
       {"aten::fractional_max_pool2d",
        {x, two, List{3, 3}, numbers({4, 3, 2}).abs().div(30)}},
       {"aten::upsample_nearest2d", {small, List{6, 6}, kNone, kNone}},
       {"aten::upsample_nearest2d_backward",
        {x, List{6, 6}, List{4, 3, 3, 3}, kNone, kNone}},
       {"aten::upsample_bilinear2d", {small, List{5, 7}, true, kNone, kNone}},
       {"aten::upsample_bicubic2d_backward",
        {x, List{6, 6}, List{4, 3, 3, 3}, true, kNone, kNone}},
       {"aten::upsample_linear1d", {x.select(0, 0), List{9}, false, kNone}},
       {"aten::upsample_trilinear3d",
        {numbers({2, 4, 2, 3, 2}), List{4, 3, 5}, false, kNone, kNone, kNone}},
       {"aten::reflection_pad2d", {x, List{1, 2, 2, 1}}},
       {"aten::reflection_pad2d_backward",
        {numbers({4, 3, 9, 9}), x, List{1, 2, 2, 1}}},
       {"aten::replication_pad1d", {x.select(0, 0), List{1, 2}}},
       {"aten::pixel_shuffle", {numbers({3, 4, 2, 3}), 2}},
       {"aten::pixel_unshuffle", {numbers({3, 2, 4, 6}), 2}},
       {"aten::channel_shuffle", {numbers({3, 6, 4, 3}), 2}},
       {"aten::im2col", {x, two, one, one, two}},
       {"aten::col2im", {numbers({3, 8, 9}), List{6, 6}, two, one, zero, two}},
       {"aten::grid_sampler_2d", {x, grid, 0, 0, true}},
       {"aten::grid_sampler_2d_backward",
        {numbers({4, 3, 2, 3}), x, grid, 0, 0, true,
         c10::List<bool>({true, true})}}});
}

}  // namespace
}  // namespace tessera::view_tests
