// Norms over cut dims: each rank's norm, to the power, summed over ranks.
//
// Worked row, p = 2: parts (3 | 4) -> 9 + 16 = 25 -> 5.
#include <cmath>
#include <map>

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/table.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/state/replicated.h>

namespace tessera::detail::inline tensor_layer {

namespace {

double order_of(const c10::IValue& p) {
  return p.isNone() ? 2 : p.toScalar().toDouble();
}

double order_of(const DecomposedCall& decomposed) {
  return order_of(
      decomposed.argument(decomposed.has_argument("ord") ? "ord" : "p"));
}

double order_of(const RuleCall& call) {
  return order_of(call.argument(call.has_argument("ord") ? "ord" : "p"));
}

// Norms of these orders are themselves parts of the norm, so that rows of a
// rule serve them.
bool is_its_own_part(double order) {
  return order == 0 || order == 1 || std::isinf(order);
}

// Of a shard without elements every sum of powers is 0.
at::Tensor power_sum(
    const at::Tensor& x, double order, const Reduced& r,
    c10::ScalarType dtype) {
  for (const int64_t d : r.dims) {
    if (x.size(d) == 0) {
      return at::zeros(
          r.kept->local_shape(), x.options().dtype(r.kept->dtype()));
    }
  }
  return at::linalg_vector_norm(x, order, r.dims, /*keepdim=*/true, dtype)
      .pow(order);
}

void vector_norm(const OpCall& call) {
  DecomposedCall decomposed(call);
  const at::Tensor self = decomposed.tensor("self");
  const double order = order_of(decomposed);
  const bool keepdim = decomposed.has_argument("keepdim") &&
                       decomposed.argument("keepdim").toBool();
  const bool casts = decomposed.has_argument("dtype") &&
                     !decomposed.argument("dtype").isNone();
  const c10::ScalarType dtype =
      casts ? decomposed.argument("dtype").toScalarType() : self.scalar_type();
  const Reduced r = reduced_by_call(
      decomposed, spec_of(self), sum_type(c10::toRealValueType(dtype)));
  const at::Tensor x = decomposed.shard("self", self, r.operand);
  const at::Tensor sum = decomposed.all_reduce(
      r.kept, r.over, ReduceOp::kSum,
      [&] { return power_sum(x, order, r, sum_type(dtype)); });
  const SpecPtr result =
      r.spec(keepdim)->with_dtype(c10::toRealValueType(dtype));
  decomposed.finish({decomposed.wrap(result, [&] {
    return sum.pow(1 / order)
        .to(result->dtype())
        .reshape(result->local_shape());
  })});
}

bool norm_applies(const RuleCall& call) {
  const bool computes = c10::isFloatingType(call.self().dtype) ||
                        c10::isComplexType(call.self().dtype);
  return computes && !is_its_own_part(order_of(call)) && shards_named_dim(call);
}

// The norms of a list whose shards are spread over the same mesh dims.
struct NormGroup {
  MeshDims over;
  c10::ScalarType dtype;  // of the sums
  std::vector<size_t> members;
};

std::vector<NormGroup> group_norms(
    const std::vector<at::Tensor>& list, const DecomposedCall& decomposed,
    const std::optional<c10::ScalarType>& dtype) {
  std::map<std::pair<MeshDims, int>, size_t> numbers;
  std::vector<NormGroup> groups;
  for (size_t i = 0; i < list.size(); ++i) {
    const SpecPtr spec = decomposed.spec(list[i]);
    MeshDims over;
    for (size_t m = 0; m < spec->placements().size(); ++m) {
      if (spec->placements()[m].is_shard()) {
        over.push_back(static_cast<int64_t>(m));
      }
    }
    const c10::ScalarType type =
        sum_type(c10::toRealValueType(dtype.value_or(spec->dtype())));
    const auto [found, fresh] =
        numbers.try_emplace({over, static_cast<int>(type)}, groups.size());
    if (fresh) {
      groups.push_back({over, type, {}});
    }
    groups[found->second].members.push_back(i);
  }
  return groups;
}

// Parts of the norms of all tensors of a group, one after the other. A shard
// without elements counts as one zero.
at::Tensor norm_parts(
    const std::vector<at::Tensor>& shards, const NormGroup& group,
    double order) {
  std::vector<at::Tensor> members;
  for (const size_t i : group.members) {
    const at::Tensor& x = shards[i];
    members.push_back(x.numel() == 0 ? at::zeros({1}, x.options()) : x);
  }
  std::vector<at::Tensor> norms =
      at::_foreach_norm(members, order, std::nullopt);
  for (at::Tensor& norm : norms) {
    norm = norm.to(group.dtype);
  }
  const at::Tensor all = at::stack(norms);
  return is_its_own_part(order) ? all : all.pow(order);
}

// Sums are taken in f32 at least, so that a f16 norm does not overflow early.
at::Tensor widened(
    const at::Tensor& x, const std::optional<c10::ScalarType>& dtype) {
  return x.defined() ? x.to(sum_type(dtype.value_or(x.scalar_type()))) : x;
}

// One all_reduce per group serves all tensors of the list.
void foreach_norm(const OpCall& call) {
  DecomposedCall decomposed(call);
  const std::vector<at::Tensor> list =
      decomposed.argument("self").toTensorVector();
  const double order = order_of(decomposed);
  std::optional<c10::ScalarType> dtype;
  if (!decomposed.argument("dtype").isNone()) {
    dtype = decomposed.argument("dtype").toScalarType();
  }
  std::vector<at::Tensor> shards;
  for (const at::Tensor& t : list) {
    shards.push_back(widened(
        decomposed.shard(
            "self", t, without_partials(decomposed.spec(t)->placements())),
        dtype));
  }
  const Placements unsharded = replicated(decomposed.mesh());
  std::vector<at::Tensor> results(list.size());
  for (const NormGroup& group : group_norms(list, decomposed, dtype)) {
    const auto count = static_cast<int64_t>(group.members.size());
    const at::Tensor sums = decomposed.all_reduce(
        DTensorSpec::make(decomposed.mesh(), unsharded, {count}, group.dtype),
        group.over, std::isinf(order) ? ReduceOp::kMax : ReduceOp::kSum,
        [&] { return norm_parts(shards, group, order); });
    const at::Tensor norms = !decomposed.computes() || is_its_own_part(order)
                                 ? sums
                                 : sums.pow(1 / order);
    for (int64_t k = 0; k < count; ++k) {
      const size_t i = group.members[static_cast<size_t>(k)];
      const SpecPtr result = DTensorSpec::make(
          decomposed.mesh(), unsharded, {},
          c10::toRealValueType(dtype.value_or(list[i].scalar_type())));
      results[i] = decomposed.wrap(result, [&] {
        return norms.select(0, k).to(result->dtype()).clone();
      });
    }
  }
  decomposed.finish({c10::List<at::Tensor>(results)});
}

bool foreach_norm_applies(const RuleCall& call) {
  const double order = order_of(call);
  if (order < 0) {
    return false;
  }
  bool sharded = false;
  for (const Operand& operand : call.operands()) {
    if (!c10::isFloatingType(operand.dtype) &&
        !c10::isComplexType(operand.dtype)) {
      return false;
    }
    sharded = sharded || shards_any(*operand.placements);
  }
  return sharded;
}

}  // namespace

void add_norm_decompositions(OpRegistry& ops) {
  for (const char* name :
       {"aten::linalg_vector_norm", "aten::norm.ScalarOpt_dim",
        "aten::norm.ScalarOpt_dim_dtype", "aten::norm.Scalar",
        "aten::norm.ScalarOpt_dtype"}) {
    ops.at(name).decomposition = {norm_applies, vector_norm};
  }
  ops.at("aten::_foreach_norm.Scalar").decomposition = {
      foreach_norm_applies, foreach_norm};
}

}  // namespace tessera::detail::inline tensor_layer
