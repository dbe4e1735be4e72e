// The other views: each rank's local call, with the arguments that the rule
// gives it, on the shard that the definition gives it, must return the rank's
// shard of what ATen returns for the whole tensor.
#include <gtest/gtest.h>

#include <numeric>

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

#include "rules/view_call.h"

namespace tessera::view_tests {
namespace {

using Arguments = std::vector<c10::IValue>;

struct Call {
  std::string name;
  Arguments arguments;
};

std::vector<at::Tensor> run(
    const Call& call, const at::Tensor& self, const Arguments& arguments) {
  const size_t dot = call.name.find('.');
  const std::string overload =
      dot == std::string::npos ? "" : call.name.substr(dot + 1);
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
      call.name.substr(0, dot).c_str(), overload.c_str());
  torch::jit::Stack stack{self};
  stack.insert(stack.end(), arguments.begin(), arguments.end());
  while (stack.size() < op.schema().arguments().size()) {
    stack.push_back(*op.schema().arguments()[stack.size()].default_value());
  }
  op.callBoxed(&stack);
  return stack[0].isTensor() ? std::vector<at::Tensor>{stack[0].toTensor()}
                             : stack[0].toTensorVector();
}

// Runs a call on a shard of `whole` as its rule says: by the operator, or by
// RunBy::kSqueeze, which drops the dims that have one index in the whole.
std::vector<at::Tensor> run_on_shard(
    const Call& call, const at::Tensor& whole, const at::Tensor& mine,
    const Arguments& arguments) {
  const auto kernel = rule_of(call.name).local;
  if (kernel == detail::RunBy::kOperator) {
    return run(call, mine, arguments);
  }
  EXPECT_EQ(kernel, detail::RunBy::kSqueeze) << call.name;
  List dims;
  for (int64_t d = 0; d < whole.dim(); ++d) {
    const bool named =
        arguments.empty() || wrap_dim(arguments[0].toInt(), whole.dim()) == d;
    if (named && whole.size(d) == 1) {
      dims.push_back(d);
    }
  }
  return {mine.squeeze(dims)};
}

// What a rank shows that holds the indices `held` of the dim that a call works
// on, by RunBy::kSelect and RunBy::kSplit.
std::vector<at::Tensor> picked_on_shard(
    detail::RunBy kernel, const at::Tensor& mine, const List& held, int64_t dim,
    int64_t argument, int64_t size) {
  const auto of = [&](const auto& wanted) {
    List found;
    for (size_t i = 0; i < held.size(); ++i) {
      if (wanted(held[i])) {
        found.push_back(static_cast<int64_t>(i));
      }
    }
    return mine.index_select(dim, at::tensor(found, at::kLong));
  };
  if (kernel == detail::RunBy::kSelect) {
    const int64_t index = argument < 0 ? argument + size : argument;
    const at::Tensor one = of([&](int64_t i) { return i == index; });
    if (one.size(dim) == 1) {
      return {one.squeeze(dim)};
    }
    return {at::Tensor()};  // an empty one
  }
  EXPECT_EQ(kernel, detail::RunBy::kSplit);
  std::vector<at::Tensor> pieces;
  for (int64_t begin = 0; begin < size; begin += argument) {
    pieces.push_back(
        of([&](int64_t i) { return i / argument == begin / argument; }));
  }
  return pieces;
}

Arguments with_defaults(const Call& call) {
  Arguments arguments = call.arguments;
  const auto& all = schema_of(call.name).arguments();
  while (arguments.size() + 1 < all.size()) {
    arguments.push_back(*all[arguments.size() + 1].default_value());
  }
  return arguments;
}

at::Tensor shard(
    const at::Tensor& whole, const List& mesh, const Placements& placements,
    const List& coordinate) {
  at::Tensor part = whole;
  for (int64_t d = 0; d < whole.dim(); ++d) {
    part = part.index_select(
        d, at::tensor(
               reference::held(whole.size(d), d, mesh, placements, coordinate),
               at::kLong));
  }
  return part;
}

// A shard with dense memory in the dim order of the whole.
at::Tensor dense_shard(
    const at::Tensor& base, const List& order, const List& mesh,
    const Placements& placements, const List& coordinate) {
  List inverse(order.size());
  for (size_t d = 0; d < order.size(); ++d) {
    inverse[static_cast<size_t>(order[d])] = static_cast<int64_t>(d);
  }
  return shard(base.permute(order), mesh, placements, coordinate)
      .permute(inverse)
      .contiguous()
      .permute(order);
}

struct Count {
  int64_t cases = 0;
  int64_t cuts = 0;
  int64_t kept = 0;
};

void check(
    const Call& call, const at::Tensor& base, const List& order,
    const List& mesh, const Placements& placements, Count& count) {
  const at::Tensor whole = base.permute(order);
  const std::vector<at::Tensor> expected = run(call, whole, call.arguments);
  const Case c{call.name,  whole.sizes().vec(), whole.strides().vec(), mesh,
               placements, with_defaults(call), whole.scalar_type()};
  const ViewLayout layout = layout_of(c, nullptr);
  ASSERT_EQ(layout.results.size(), expected.size()) << describe(c);
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(layout.results[i].shape, expected[i].sizes().vec())
        << describe(c);
    ASSERT_EQ(layout.results[i].strides, expected[i].strides().vec())
        << describe(c);
  }
  for (const List& coordinate : reference::coordinates(mesh)) {
    const ViewLayout local = layout_of(c, &coordinate);
    Arguments arguments = c.arguments;
    for (const auto& [number, value] : local.local_arguments) {
      arguments.at(number - 1) = value;
    }
    const at::Tensor mine =
        dense_shard(base, order, mesh, kept(c, layout), coordinate);
    std::vector<at::Tensor> got;
    if (local.local == detail::RunBy::kOperator) {
      got = run_on_shard(call, whole, mine, arguments);
    } else {
      const bool selects = local.local == detail::RunBy::kSelect;
      const int64_t dim =
          wrap_dim(arguments.at(selects ? 0 : 1).toInt(), whole.dim());
      // unbind() names no index and selects each.
      List given(1, 0);
      if (selects && arguments.size() == 1) {
        given.resize(expected.size());
        std::iota(given.begin(), given.end(), 0);
      } else {
        given[0] = arguments.at(selects ? 1 : 0).toInt();
      }
      for (const int64_t argument : given) {
        const auto found = picked_on_shard(
            local.local, mine,
            reference::held(
                whole.size(dim), dim, mesh, kept(c, layout), coordinate),
            dim, argument, whole.size(dim));
        got.insert(got.end(), found.begin(), found.end());
      }
    }
    ASSERT_EQ(got.size(), expected.size()) << describe(c);
    for (size_t i = 0; i < expected.size(); ++i) {
      const at::Tensor wanted =
          shard(expected[i], mesh, layout.results[i].placements, coordinate);
      if (!got[i].defined()) {
        ASSERT_EQ(wanted.numel(), 0) << describe(c);
        continue;
      }
      ASSERT_EQ(got[i].sizes(), wanted.sizes())
          << describe(c) << " -> " << to_string(layout.results[i].placements);
      ASSERT_TRUE(at::equal(got[i], wanted))
          << describe(c) << " -> " << to_string(layout.results[i].placements);
    }
  }
  ++count.cases;
  for (size_t m = 0; m < mesh.size(); ++m) {
    count.cuts += placements[m].is_shard();
    count.kept += placements[m].is_shard() && layout.keeps[m];
  }
}

Placements cuts_of(const List& shape, int64_t parts) {
  Placements found{Replicate()};
  for (size_t d = 0; d < shape.size(); ++d) {
    const auto dim = static_cast<int64_t>(d);
    found.push_back(Shard(dim));
    found.push_back(StridedShard(dim, 2));
    found.push_back(StridedShard(dim, 3));
    List sizes(static_cast<size_t>(parts), 0);
    sizes.back() = shape[d] / 2;
    sizes.front() += shape[d] - shape[d] / 2;
    found.push_back(RaggedShard(dim, sizes));
  }
  return found;
}

// All placements on meshes of 2, 3, 4 and 2 x 2, in two orders of memory.
Count check_placements(const Call& call, const at::Tensor& whole) {
  Count count;
  const int64_t ndim = whole.dim();
  const List shape = whole.sizes().vec();
  List straight, turned;
  for (int64_t d = 0; d < ndim; ++d) {
    straight.push_back(d);
    turned.push_back(ndim - 1 - d);
  }
  for (const List& order : {straight, turned}) {
    // Either order is its own inverse.
    const at::Tensor base = whole.permute(order).contiguous();
    for (const int64_t parts : {2, 3, 4}) {
      for (const Placement& p : cuts_of(shape, parts)) {
        check(call, base, order, {parts}, {p}, count);
      }
    }
    for (const Placement& p : cuts_of(shape, 2)) {
      for (const Placement& q : cuts_of(shape, 2)) {
        const bool nested_ragged = p.is_shard() && q.is_shard() &&
                                   p.dim() == q.dim() &&
                                   q.kind() == Placement::Kind::kRaggedShard;
        if (!nested_ragged) {
          check(call, base, order, {2, 2}, {p, q}, count);
        }
      }
    }
    if (ndim == 0 || straight == turned) {
      break;
    }
  }
  return count;
}

at::Tensor numbers(const List& shape) {
  int64_t numel = 1;
  for (const int64_t size : shape) {
    numel *= size;
  }
  return at::arange(numel, at::kLong).reshape(shape);
}

int64_t expect_right(
    const std::vector<Call>& calls, const std::vector<List>& shapes) {
  Count sum;
  for (const Call& call : calls) {
    for (const List& shape : shapes) {
      const Count count = check_placements(call, numbers(shape));
      sum.cases += count.cases;
      sum.cuts += count.cuts;
      sum.kept += count.kept;
    }
  }
  std::printf(
      "%lld cases, %lld cuts, %lld kept\n", static_cast<long long>(sum.cases),
      static_cast<long long>(sum.cuts), static_cast<long long>(sum.kept));
  return sum.kept;
}

const c10::IValue kNone;

TEST(ViewOpsTest, DimsChangePlaces) {
  EXPECT_GT(
      expect_right(
          {{"aten::permute", {List{2, 0, 1}}},
           {"aten::permute", {List{-1, 1, 0}}},
           {"aten::permute_copy", {List{2, 0, 1}}},
           {"aten::transpose.int", {0, -1}},
           {"aten::unsqueeze", {0}},
           {"aten::unsqueeze", {-1}},
           {"aten::unsqueeze", {2}},
           {"aten::unsqueeze_copy", {1}}},
          {{5, 4, 3}, {2, 7, 1}}),
      0);
  EXPECT_GT(expect_right({{"aten::t", {}}}, {{5, 4}, {3}}), 0);
}

TEST(ViewOpsTest, OnlyDimsThatAreOneEverywhereAreSqueezed) {
  EXPECT_GT(
      expect_right(
          {{"aten::squeeze", {}},
           {"aten::squeeze.dim", {1}},
           {"aten::squeeze.dim", {-1}},
           {"aten::squeeze.dims", {List{0, 2}}},
           {"aten::squeeze.dims", {List{}}},
           {"aten::squeeze_copy.dims", {List{0, 1}}}},
          {{4, 1, 2}, {3, 3, 1}, {1, 8, 6}}),
      0);
}

TEST(ViewOpsTest, DimsOfOneGrow) {
  EXPECT_GT(
      expect_right(
          {{"aten::expand", {List{2, -1, 4, 3}}},
           {"aten::expand", {List{-1, 4, 3}}},
           {"aten::expand", {List{1, 1, -1, 4, 3}}}},
          {{5, 1, 3}, {1, 4, 3}, {2, 4, 3}}),
      0);
}

TEST(ViewOpsTest, RangesOfDims) {
  EXPECT_GT(
      expect_right(
          {{"aten::slice.Tensor", {0, kNone, kNone, 1}},
           {"aten::slice.Tensor", {0, 2, 5, 1}},
           {"aten::slice.Tensor", {0, -3, 100, 1}},
           {"aten::slice.Tensor", {0, 1, kNone, 3}},
           {"aten::slice.Tensor", {0, 0, -1, 2}},
           {"aten::slice.Tensor", {1, 3, 3, 1}},
           {"aten::slice.Tensor", {1, 3, 1, 1}},
           {"aten::slice_copy.Tensor", {-1, 1, kNone, 1}}},
          {{10, 4}, {6, 5}, {4, 2, 3}}),
      0);
}

TEST(ViewOpsTest, PiecesOfDims) {
  EXPECT_GT(
      expect_right(
          {{"aten::split.Tensor", {3, 0}},
           {"aten::split.Tensor", {4, 1}},
           {"aten::split.Tensor", {2, -1}},
           {"aten::unsafe_split.Tensor", {6, 0}},
           {"aten::split_copy.Tensor", {3, 0}}},
          {{12, 6}, {6, 9}}),
      0);
  EXPECT_GT(
      expect_right(
          {{"aten::split_with_sizes", {List{4, 0, 2}, 0}},
           {"aten::split_with_sizes", {List{3, 3}, 1}},
           {"aten::split_with_sizes_copy", {List{2, 2, 2}, 1}}},
          {{6, 6}}),
      0);
  EXPECT_GT(
      expect_right(
          {{"aten::select.int", {0, 2}},
           {"aten::select.int", {-1, -1}},
           {"aten::unbind.int", {0}},
           {"aten::unbind_copy.int", {1}}},
          {{5, 4}, {3, 2, 6}}),
      0);
}

TEST(ViewOpsTest, WindowsAndDiagonals) {
  EXPECT_GT(
      expect_right(
          {{"aten::unfold", {0, 2, 1}},
           {"aten::unfold", {-1, 3, 2}},
           {"aten::diagonal", {0, 0, 1}},
           {"aten::diagonal", {-1, -1, 0}},
           {"aten::diagonal", {2, 1, 0}},
           {"aten::diagonal", {-9, 0, 1}}},
          {{5, 4}, {3, 4, 6}}),
      0);
}

TEST(ViewOpsTest, OtherShapesAndMemory) {
  EXPECT_GT(
      expect_right(
          {{"aten::_unsafe_view", {List{6, 2, -1}}},
           {"aten::view_copy", {List{12, -1}}},
           {"aten::_reshape_copy", {List{-1}}}},
          {{12, 12}}),
      0);
}

TEST(ViewOpsTest, OtherElements) {
  Count sum;
  const at::Tensor real = numbers({6, 4, 2}).to(at::kDouble);
  for (const auto& [call, base] : std::vector<std::pair<Call, at::Tensor>>{
           {{"aten::view.dtype", {static_cast<int64_t>(at::kDouble)}},
            numbers({6, 4})},
           {{"aten::view_as_real", {}}, at::complex(real, real.add(100))}}) {
    const Count count = check_placements(call, base);
    sum.kept += count.kept;
  }
  // Pairs and wider elements need the last dim without gaps: one order only.
  for (const List& mesh : {List{2}, List{3}}) {
    for (const Placement& p : cuts_of({6, 4, 2}, mesh[0])) {
      check({"aten::view_as_complex", {}}, real, {0, 1, 2}, mesh, {p}, sum);
      check(
          {"aten::view.dtype", {static_cast<int64_t>(at::kInt)}}, real,
          {0, 1, 2}, mesh, {p}, sum);
      check(
          {"aten::view.dtype", {static_cast<int64_t>(at::kComplexDouble)}},
          real, {0, 1, 2}, mesh, {p}, sum);
    }
  }
  EXPECT_GT(sum.kept, 0);
}

Case with_partial(const std::string& name, ReduceOp op, Arguments arguments) {
  return {
      name,
      {4, 2},
      {2, 1},
      {2},
      {Partial(op)},
      std::move(arguments),
      c10::ScalarType::Double};
}

TEST(ViewOpsTest, PartialStaysUnlessElementsChangeTheirMeaning) {
  for (const ReduceOp op :
       {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin,
        ReduceOp::kProduct}) {
    const bool linear = op == ReduceOp::kSum || op == ReduceOp::kAvg;
    const auto keeps = [&](const std::string& name,
                           Arguments arguments) -> bool {
      return layout_of(with_partial(name, op, std::move(arguments)), nullptr)
          .keeps[0];
    };
    EXPECT_TRUE(keeps("aten::view", {List{8}}));
    EXPECT_TRUE(keeps("aten::slice.Tensor", {0, 1, 2, 1}));
    EXPECT_TRUE(keeps("aten::select.int", {0, 1}));
    EXPECT_EQ(keeps("aten::view_as_complex", {}), linear);
    EXPECT_EQ(keeps("aten::view_as_real", {}), linear);
    EXPECT_FALSE(keeps("aten::view.dtype", {static_cast<int64_t>(at::kLong)}));
    EXPECT_TRUE(keeps("aten::view.dtype", {static_cast<int64_t>(at::kDouble)}));
  }
}

TEST(ViewOpsTest, ANumberOfAShardedDimStaysOnItsCoordinate) {
  const Case c{"aten::select.int", {10, 6}, {6, 1}, {4}, {Shard(0)}, {0, 7}};
  EXPECT_EQ(
      layout_of(c, nullptr).results[0].placements,
      Placements{RaggedShard(0, {0, 0, 6, 0})});
}

TEST(ViewOpsTest, ARangeOfACutDimStaysWhereItLies) {
  const Case c{"aten::slice.Tensor", {10}, {1}, {4}, {Shard(0)}, {0, 2, 8, 1}};
  EXPECT_EQ(
      layout_of(c, nullptr).results[0].placements,
      Placements{RaggedShard(0, {1, 3, 2, 0})});
}

void expect_error(const Case& c, const std::string& text) {
  try {
    layout_of(c, nullptr);
    ADD_FAILURE() << "no error that says: " << text;
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos)
        << error.what();
  }
}

TEST(ViewOpsTest, WrongArgumentsAreErrors) {
  const auto call = [](const std::string& name, Arguments arguments) {
    return Case{name, {4, 3}, {3, 1}, {2}, {Shard(0)}, std::move(arguments)};
  };
  expect_error(call("aten::permute", {List{0, 0}}), "named once");
  expect_error(call("aten::expand", {List{3}}), "at least the 2 dims");
  expect_error(
      call("aten::expand", {List{8, 3}, false}), "only dims of size 1 grow");
  expect_error(call("aten::slice.Tensor", {0, 0, 2, 0}), "must be positive");
  expect_error(
      call("aten::split_with_sizes", {List{1, 1}, 0}), "must add up to");
  expect_error(
      call("aten::split_with_sizes", {List{5, -1}, 0}), "not be negative");
  expect_error(call("aten::split.Tensor", {0, 0}), "must be positive");
  expect_error(call("aten::unfold", {0, 9, 1}), "windows must fit");
  expect_error(call("aten::diagonal", {0, 1, 1}), "dims must differ");
  expect_error(call("aten::view_as_complex", {}), "must have size 2");
  expect_error(
      call("aten::view.dtype", {static_cast<int64_t>(at::kComplexDouble)}),
      "wants a last dim without gaps");
  expect_error(
      Case{"aten::select.int", {}, {}, {2}, {Replicate()}, {0, 0}},
      "a 0-d tensor has no dim");
  expect_error(
      Case{"aten::t", {2, 2, 2}, {4, 2, 1}, {2}, {Replicate()}, {}},
      "at most 2 dims");
}

}  // namespace
}  // namespace tessera::view_tests
