// Layer norm whose normalized dims are cut: the statistics of all ranks by two
// small all_reduces, the two sums of the gradient by one.
#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/table.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// Dims, cuts and types of one call.
struct NormalizedDims {
  NormalizedDims(DecomposedCall& decomposed, const SpecPtr& input)
      : leading(
            static_cast<int64_t>(input->shape().size()) -
            static_cast<int64_t>(
                decomposed.argument("normalized_shape").toDimVector().size())),
        computed(sum_type(input->dtype())) {
    std::vector<bool> dims(input->shape().size(), false);
    for (size_t d = static_cast<size_t>(leading); d < dims.size(); ++d) {
      dims[d] = true;
    }
    normalized = reduced(*input, dims, computed);
    dims.flip();
    batch = reduced(*input, dims, input->dtype());
    count = static_cast<double>(normalized.count);
  }

  int64_t leading;
  c10::ScalarType computed;
  Reduced normalized;  // what is left are statistics
  Reduced batch;       // what is left has the shape of the weight
  double count = 1;
};

// On the CPU statistics have the type of the weight, else that of sums.
c10::ScalarType statistics_type(
    const at::Tensor& input, const at::Tensor& weight,
    c10::ScalarType computed) {
  if (!input.device().is_cpu()) {
    return computed;
  }
  return weight.defined() ? weight.scalar_type() : input.scalar_type();
}

void layer_norm(const OpCall& call) {
  DecomposedCall decomposed(call);
  const at::Tensor input = decomposed.tensor("input");
  const at::Tensor weight = decomposed.optional_tensor("weight");
  const NormalizedDims dims(decomposed, decomposed.spec(input));
  const Reduced& r = dims.normalized;
  const Placements& of_weight = dims.batch.dropped->placements();
  const at::Tensor x =
      as_type(decomposed.shard("input", input, r.operand), dims.computed);
  const at::Tensor w =
      as_type(decomposed.shard("weight", weight, of_weight), dims.computed);
  const at::Tensor b = as_type(
      decomposed.shard("bias", decomposed.optional_tensor("bias"), of_weight),
      dims.computed);
  at::Tensor mean = decomposed.all_reduce(r.kept, r.over, ReduceOp::kSum, [&] {
    return x.sum(r.dims, /*keepdim=*/true).div_(dims.count);
  });
  at::Tensor rest;
  at::Tensor rstd = decomposed.all_reduce(r.kept, r.over, ReduceOp::kSum, [&] {
    rest = x - mean;
    return rest.square().sum(r.dims, /*keepdim=*/true).div_(dims.count);
  });
  if (decomposed.computes()) {
    rstd = rstd.add(decomposed.argument("eps").toDouble()).rsqrt_();
  }
  const SpecPtr statistics =
      r.kept->with_dtype(statistics_type(input, weight, dims.computed));
  const auto statistic = [&](const at::Tensor& t) {
    return decomposed.wrap(
        statistics, [&] { return t.to(statistics->dtype()); });
  };
  decomposed.finish(
      {decomposed.wrap(
           decomposed.spec(input)->contiguous(r.operand, input.scalar_type()),
           [&] {
             rest.mul_(rstd);
             rest = w.defined() ? rest.mul_(w) : rest;
             rest = b.defined() ? rest.add_(b) : rest;
             return rest.to(input.scalar_type());
           }),
       statistic(mean), statistic(rstd)});
}

// The gradients of weight and bias: what is left of the leading dims, whose
// cuts leave partial values.
at::Tensor weight_gradient(
    const DecomposedCall& decomposed, const Reduced& batch,
    c10::ScalarType dtype, const at::Tensor& product) {
  Placements placements = batch.dropped->placements();
  for (const int64_t m : batch.over) {
    placements[static_cast<size_t>(m)] = Partial();
  }
  return decomposed.wrap(batch.dropped->contiguous(placements, dtype), [&] {
    const at::Tensor sum =
        batch.dims.empty() ? product : product.sum(batch.dims);
    return sum.to(dtype);
  });
}

// dx = rstd * (g - mean(g) - y * mean(g * y)), with g = gradient * weight and y
// the normalized input.
void layer_norm_backward(const OpCall& call) {
  DecomposedCall decomposed(call);
  const at::Tensor input = decomposed.tensor("input");
  const at::Tensor weight = decomposed.optional_tensor("weight");
  const at::Tensor bias = decomposed.optional_tensor("bias");
  const auto mask = decomposed.argument("output_mask").toBoolList();
  const NormalizedDims dims(decomposed, decomposed.spec(input));
  const Reduced& r = dims.normalized;
  const auto operand = [&](const char* name, const at::Tensor& t,
                           const Placements& placements) {
    return as_type(decomposed.shard(name, t, placements), dims.computed);
  };
  const at::Tensor dy =
      operand("grad_out", decomposed.tensor("grad_out"), r.operand);
  const at::Tensor x = operand("input", input, r.operand);
  const at::Tensor mean =
      operand("mean", decomposed.tensor("mean"), r.kept->placements());
  const at::Tensor rstd =
      operand("rstd", decomposed.tensor("rstd"), r.kept->placements());
  const at::Tensor w =
      operand("weight", weight, dims.batch.dropped->placements());
  at::Tensor y, g;
  if (decomposed.computes()) {
    y = (x - mean).mul_(rstd);
    g = w.defined() ? dy * w : dy;
  }
  std::vector<c10::IValue> results(3, at::Tensor());
  if (mask[0]) {
    std::vector<int64_t> shape = r.kept->shape();
    shape.push_back(2);
    const SpecPtr both = DTensorSpec::make(
        decomposed.mesh(), r.kept->placements(), shape, dims.computed);
    const at::Tensor means =
        decomposed.all_reduce(both, r.over, ReduceOp::kSum, [&] {
          return at::stack(
                     {g.sum(r.dims, /*keepdim=*/true),
                      (g * y).sum(r.dims, /*keepdim=*/true)},
                     -1)
              .div_(dims.count);
        });
    results[0] = decomposed.wrap(
        decomposed.spec(input)->contiguous(r.operand, input.scalar_type()),
        [&] {
          return (g - means.select(-1, 0) - y * means.select(-1, 1))
              .mul_(rstd)
              .to(input.scalar_type());
        });
  }
  if (mask[1] && weight.defined()) {
    results[1] = weight_gradient(
        decomposed, dims.batch, weight.scalar_type(), y.defined() ? dy * y : y);
  }
  if (mask[2] && bias.defined()) {
    results[2] =
        weight_gradient(decomposed, dims.batch, bias.scalar_type(), dy);
  }
  decomposed.finish(std::move(results));
}

// `input` says which operand that is.
bool shards_normalized_dim(const RuleCall& call, size_t input) {
  const Operand& x = call.operand(input);
  const auto leading =
      x.ndim() - static_cast<int64_t>(call.integers("normalized_shape").size());
  for (const Placement& p : *x.placements) {
    if (p.is_shard() && p.dim() >= leading) {
      return leading >= 0 && c10::isFloatingType(x.dtype);
    }
  }
  return false;
}

bool layer_norm_is_sharded(const RuleCall& call) {
  return shards_normalized_dim(call, 0);
}
bool layer_norm_backward_is_sharded(const RuleCall& call) {
  return shards_normalized_dim(call, 1);
}

}  // namespace

void add_layer_norm_decompositions(OpRegistry& ops) {
  ops.at("aten::native_layer_norm").decomposition = {
      layer_norm_is_sharded, layer_norm};
  ops.at("aten::native_layer_norm_backward").decomposition = {
      layer_norm_backward_is_sharded, layer_norm_backward};
}

}  // namespace tessera::detail::inline tensor_layer
