// Softmax and its kin along a cut dim: the largest value and the sum of
// exponentials of all ranks, each one all_reduce of what is left of the dim.
#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/Exception.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/table.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/move/view_copies.h>
#include <tensor/state/value_limits.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// The largest value along dims of a shard, which may hold none.
at::Tensor largest_along(
    const at::Tensor& x, const std::vector<int64_t>& dims) {
  std::vector<int64_t> shape = x.sizes().vec();
  bool empty = false;
  for (const int64_t d : dims) {
    empty = empty || x.size(d) == 0;
    shape[static_cast<size_t>(d)] = 1;
  }
  return empty ? at::full(shape, smallest_value(x.scalar_type()), x.options())
               : at::amax(x, dims, /*keepdim=*/true);
}

// The shard's exponentials over the largest value, and the sums of all ranks.
struct Exponentials {
  at::Tensor shifted;  // x - top
  at::Tensor top;
  at::Tensor sum;  // of exp(shifted)
};

// An infinite `top` would make x - top NaN; where `finite`, it counts as 0.
Exponentials exponentials(
    DecomposedCall& decomposed, const Reduced& r, const at::Tensor& x,
    bool finite) {
  Exponentials e;
  e.top = decomposed.all_reduce(
      r.kept, r.over, ReduceOp::kMax, [&] { return largest_along(x, r.dims); });
  if (decomposed.computes()) {
    if (finite) {
      e.top = at::where(e.top.abs().eq(INFINITY), 0, e.top);
    }
    e.shifted = x - e.top;
  }
  e.sum = decomposed.all_reduce(r.kept, r.over, ReduceOp::kSum, [&] {
    return e.shifted.exp().sum(r.dims, /*keepdim=*/true);
  });
  return e;
}

// What all three kinds of softmax share; value(e) is the result's shard.
template <class F>
void softmax_of(const OpCall& call, c10::ScalarType dtype, F value) {
  DecomposedCall decomposed(call);
  const at::Tensor self = decomposed.tensor("self");
  const c10::ScalarType computed = sum_type(dtype);
  const Reduced r = reduced_by_call(decomposed, spec_of(self), computed);
  at::Tensor x = decomposed.shard("self", self, r.operand);
  x = x.defined() ? x.to(computed) : x;
  const Exponentials e = exponentials(decomposed, r, x, /*finite=*/false);
  decomposed.finish(
      {decomposed.wrap(spec_of(self).contiguous(r.operand, dtype), [&] {
        return value(e).to(dtype);
      })});
}

c10::ScalarType softmax_type(const OpCall& call) {
  return call.argument(2).toBool() ? at::kFloat
                                   : call.argument(0).toTensor().scalar_type();
}

void softmax(const OpCall& call) {
  softmax_of(call, softmax_type(call), [](const Exponentials& e) {
    return e.shifted.exp_().div_(e.sum);
  });
}

void log_softmax(const OpCall& call) {
  softmax_of(call, softmax_type(call), [](const Exponentials& e) {
    return e.shifted.sub_(e.sum.log());
  });
}

// A row of nothing but -inf gives zeros.
void safe_softmax(const OpCall& call) {
  const c10::IValue& dtype = call.argument(2);
  softmax_of(
      call,
      dtype.isNone() ? call.argument(0).toTensor().scalar_type()
                     : dtype.toScalarType(),
      [](const Exponentials& e) {
        return at::where(e.top.eq(-INFINITY), 0, e.shifted.exp().div_(e.sum));
      });
}

void logsumexp(const OpCall& call) {
  DecomposedCall decomposed(call);
  const at::Tensor self = decomposed.tensor("self");
  const bool keepdim = decomposed.argument("keepdim").toBool();
  const c10::ScalarType dtype =
      c10::isIntegralType(self.scalar_type(), /*includeBool=*/true)
          ? c10::get_default_dtype_as_scalartype()
          : self.scalar_type();
  const c10::ScalarType computed = sum_type(dtype);
  const Reduced r = reduced_by_call(decomposed, spec_of(self), computed);
  at::Tensor x = decomposed.shard("self", self, r.operand);
  x = x.defined() ? x.to(computed) : x;
  const Exponentials e = exponentials(decomposed, r, x, /*finite=*/true);
  const SpecPtr result = r.spec(keepdim)->with_dtype(dtype);
  decomposed.finish({decomposed.wrap(result, [&] {
    return e.sum.log().add_(e.top).to(dtype).reshape(result->local_shape());
  })});
}

// What both gradients start from: shards of the gradient and of the result, cut
// alike.
struct GradientShards {
  explicit GradientShards(const OpCall& call)
      : decomposed(call),
        gradient(decomposed.tensor("grad_output")),
        dtype(decomposed.argument("input_dtype").toScalarType()) {
    const at::Tensor output = decomposed.tensor("output");
    const c10::ScalarType computed = sum_type(output.scalar_type());
    const SpecPtr of_output = decomposed.spec(output);
    const bool by_output =
        !reduced_by_call(decomposed, *of_output, computed).over.empty();
    like = by_output ? of_output : decomposed.spec(gradient);
    r = reduced_by_call(decomposed, *like, computed);
    g = as_type(decomposed.shard("grad_output", gradient, r.operand), computed);
    y = as_type(decomposed.shard("output", output, r.operand), computed);
  }

  // The sums of part() along the dim, of all ranks.
  template <class F>
  at::Tensor sum_of(F part) {
    return decomposed.all_reduce(r.kept, r.over, ReduceOp::kSum, [&] {
      return part().sum(r.dims, /*keepdim=*/true);
    });
  }

  // The sums of the gradient; others are asked only where this rank neither
  // knows them nor has the whole dim.
  at::Tensor sum_of_gradient() {
    const Placements& given = decomposed.spec(gradient)->placements();
    if (is_sharded(gradient) && given == r.operand) {
      const at::Tensor known = known_sums(gradient, r.dims[0]);
      if (known.defined()) {
        return known;
      }
    }
    if (given != r.kept->placements()) {
      return sum_of([&] { return g; });
    }
    const at::Tensor unsharded = as_type(
        decomposed.shard("grad_output", gradient, given), r.kept->dtype());
    return decomposed.computes() ? unsharded.sum(r.dims, /*keepdim=*/true)
                                 : unsharded;
  }

  template <class F>
  void finish(F value) const {
    decomposed.finish({decomposed.wrap(like->contiguous(r.operand, dtype), [&] {
      return value().to(dtype);
    })});
  }

  DecomposedCall decomposed;
  at::Tensor gradient;
  c10::ScalarType dtype;
  SpecPtr like;
  Reduced r;
  at::Tensor g, y;
};

void softmax_backward(const OpCall& call) {
  GradientShards s(call);
  const at::Tensor sum = s.sum_of([&] { return s.g * s.y; });
  s.finish([&] { return (s.g - sum).mul_(s.y); });
}

void log_softmax_backward(const OpCall& call) {
  GradientShards s(call);
  const at::Tensor sum = s.sum_of_gradient();
  s.finish([&] { return s.g - s.y.exp().mul_(sum); });
}

bool is_real(const RuleCall& call) {
  return !c10::isComplexType(call.self().dtype) && shards_named_dim(call);
}

bool gradient_is_sharded(const RuleCall& call) {
  const std::vector<bool> dims = named_dims(call, call.self().ndim());
  return shards_any(*call.operand(0).placements, dims) ||
         shards_any(*call.operand(1).placements, dims);
}

}  // namespace

void add_softmax_decompositions(OpRegistry& ops) {
  ops.at("aten::_softmax").decomposition = {shards_named_dim, softmax};
  ops.at("aten::_log_softmax").decomposition = {shards_named_dim, log_softmax};
  ops.at("aten::_safe_softmax").decomposition = {
      shards_named_dim, safe_softmax};
  ops.at("aten::logsumexp").decomposition = {is_real, logsumexp};
  ops.at("aten::_softmax_backward_data").decomposition = {
      gradient_is_sharded, softmax_backward};
  ops.at("aten::_log_softmax_backward_data").decomposition = {
      gradient_is_sharded, log_softmax_backward};
}

}  // namespace tessera::detail::inline tensor_layer
