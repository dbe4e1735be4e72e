// Variances over cut dims: the mean of all ranks first, then the squares of
// what is left, so that no digits cancel. Two small all_reduces.
#include <algorithm>

#include <ATen/TensorOperators.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/table.h>
#include <tensor/impl/sharded_impl.h>

namespace tessera::detail::inline tensor_layer {

namespace {

void variance_of(const OpCall& call, bool takes_root, bool returns_mean) {
  DecomposedCall decomposed(call);
  const at::Tensor self = decomposed.tensor("self");
  const bool keepdim = decomposed.argument("keepdim").toBool();
  const c10::IValue& given = decomposed.argument("correction");
  const double correction = given.isNone() ? 1 : given.toScalar().toDouble();
  const c10::ScalarType dtype = self.scalar_type();
  const Reduced r = reduced_by_call(decomposed, spec_of(self), sum_type(dtype));
  at::Tensor x = decomposed.shard("self", self, r.operand);
  x = x.defined() ? x.to(sum_type(dtype)) : x;
  const auto count = static_cast<double>(r.count);
  at::Tensor mean = decomposed.all_reduce(r.kept, r.over, ReduceOp::kSum, [&] {
    return x.sum(r.dims, /*keepdim=*/true);
  });
  mean = mean.defined() ? mean.div(count) : mean;
  const at::Tensor squares = decomposed.all_reduce(
      r.kept, r.over, ReduceOp::kSum,
      [&] { return (x - mean).square_().sum(r.dims, /*keepdim=*/true); });
  const SpecPtr result = r.spec(keepdim)->with_dtype(dtype);
  std::vector<c10::IValue> results{decomposed.wrap(result, [&] {
    const at::Tensor variance = squares.div(std::max(count - correction, 0.0));
    return (takes_root ? variance.sqrt() : variance)
        .to(dtype)
        .reshape(result->local_shape());
  })};
  if (returns_mean) {
    results.emplace_back(decomposed.wrap(
        result, [&] { return mean.to(dtype).reshape(result->local_shape()); }));
  }
  decomposed.finish(std::move(results));
}

void var(const OpCall& call) {
  variance_of(call, /*takes_root=*/false, /*returns_mean=*/false);
}
void std_deviation(const OpCall& call) {
  variance_of(call, /*takes_root=*/true, /*returns_mean=*/false);
}
void var_mean(const OpCall& call) {
  variance_of(call, /*takes_root=*/false, /*returns_mean=*/true);
}
void std_mean(const OpCall& call) {
  variance_of(call, /*takes_root=*/true, /*returns_mean=*/true);
}

// Complex values have a real variance, and integers none.
bool is_floating_and_sharded(const RuleCall& call) {
  return c10::isFloatingType(call.self().dtype) && shards_named_dim(call);
}

}  // namespace

void add_variance_decompositions(OpRegistry& ops) {
  ops.at("aten::var.correction").decomposition = {is_floating_and_sharded, var};
  ops.at("aten::std.correction").decomposition = {
      is_floating_and_sharded, std_deviation};
  ops.at("aten::var_mean.correction").decomposition = {
      is_floating_and_sharded, var_mean};
  ops.at("aten::std_mean.correction").decomposition = {
      is_floating_and_sharded, std_mean};
}

}  // namespace tessera::detail::inline tensor_layer
