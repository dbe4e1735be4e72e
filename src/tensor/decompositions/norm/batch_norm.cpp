// Batch norm in training whose batch or spatial dims are cut: the statistics of
// all ranks by one small all_gather, the two sums of the gradient by one. And
// batch norm of cut channels whose running statistics are not cut with them.
#include <algorithm>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/stack.h>
#include <c10/util/accumulate.h>
#include <tensor/decompositions/norm/joint_statistics.h>
#include <tensor/decompositions/norm/running_statistics.h>
#include <tensor/decompositions/table.h>
#include <tensor/state/replicated.h>
#include <tensor/state/strides.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// What is left of everything but the channels.
Reduced channels_of(const DTensorSpec& input) {
  std::vector<bool> dims(input.shape().size(), true);
  dims[1] = false;
  return reduced(input, dims, sum_type(input.dtype()));
}

// A value per channel, [c], as one that broadcasts to the input, [1, c, 1].
at::Tensor spread(const at::Tensor& t, int64_t ndim) {
  if (!t.defined()) {
    return t;
  }
  std::vector<int64_t> shape(static_cast<size_t>(ndim), 1);
  shape[1] = t.numel();
  return t.reshape(shape);
}

// running = (1 - momentum) * running + momentum * value, in this rank's part.
void update_running(
    const DecomposedCall& decomposed, const at::Tensor& running,
    const at::Tensor& value) {
  if (running.defined()) {
    const double momentum = decomposed.argument("momentum").toDouble();
    running.mul_(1 - momentum)
        .add_(
            value.reshape(running.sizes()).to(running.scalar_type()), momentum);
  }
}

// The dtype of the statistics that LibTorch's kernels save: on the CPU that of
// the input, unless its parameters are more precise.
c10::ScalarType saved_type(const DecomposedCall& decomposed) {
  const at::Tensor input = decomposed.tensor("input");
  if (!c10::isReducedFloatingType(input.scalar_type())) {
    return input.scalar_type();
  }
  for (const char* name : {"weight", "bias", "running_mean", "running_var"}) {
    const at::Tensor t = decomposed.optional_tensor(name);
    if (t.defined() && input.device().is_cpu()) {
      return t.scalar_type();
    }
  }
  return input.device().is_cpu() ? input.scalar_type() : c10::kFloat;
}

// The spec of the saved statistics, which exist in training only.
SpecPtr saved_spec(
    const DecomposedCall& decomposed, const Reduced& r, c10::ScalarType dtype) {
  return decomposed.argument("training").toBool()
             ? r.dropped->with_dtype(dtype)
             : DTensorSpec::make(
                   decomposed.mesh(), replicated(decomposed.mesh()), {0},
                   dtype);
}

// The spec of a result of the input's shape and memory format.
SpecPtr result_like(const DTensorSpec& input, const Reduced& r) {
  return in_format_of(*input.contiguous(r.operand, input.dtype()), input);
}

// Leaves the results of a forward call: y() and the saved statistics, of which
// this rank's parts are given.
template <class F>
void finish_forward(
    const DecomposedCall& decomposed, const Reduced& r, F y,
    c10::ScalarType saved_as, const at::Tensor& mean, const at::Tensor& rstd) {
  const at::Tensor input = decomposed.tensor("input");
  const SpecPtr saved = saved_spec(decomposed, r, saved_as);
  const auto statistic = [&](const at::Tensor& t) {
    return decomposed.wrap(saved, [&] {
      return t.reshape(saved->local_shape()).to(saved->dtype());
    });
  };
  decomposed.finish(
      {decomposed.wrap(result_like(*decomposed.spec(input), r), y),
       statistic(mean), statistic(rstd)});
}

// Where no rank needs statistics of another, the operator runs on the shards.
// Its kernels fail on empty ones.
void batch_norm_of_shards(DecomposedCall& decomposed, const Reduced& r) {
  const Placements& of_channels = r.dropped->placements();
  const auto operand = [&](const char* name, const Placements& placements) {
    return decomposed.shard(name, decomposed.optional_tensor(name), placements);
  };
  const at::Tensor x = operand("input", r.operand);
  const at::Tensor w = operand("weight", of_channels);
  const at::Tensor b = operand("bias", of_channels);
  RunningStatistics running(decomposed, of_channels);
  const bool training = decomposed.argument("training").toBool();
  at::Tensor y, mean, rstd;
  if (decomposed.computes()) {
    y = at::empty_like(x);
    mean = rstd = at::empty({0}, x.options());
    if (x.numel() > 0) {
      std::tie(y, mean, rstd) = at::native_batch_norm(
          x, w, b, running.mean(), running.variance(), training,
          decomposed.argument("momentum").toDouble(),
          decomposed.argument("eps").toDouble());
    }
    mean = training ? mean : at::empty({0}, x.options());
    rstd = training ? rstd : mean;
  }
  if (training) {
    running.write_back();
  }
  finish_forward(
      decomposed, r, [&] { return y; }, saved_type(decomposed), mean, rstd);
}

void batch_norm(const OpCall& call) {
  DecomposedCall decomposed(call);
  const at::Tensor input = decomposed.tensor("input");
  const Reduced r = channels_of(*decomposed.spec(input));
  if (r.over.empty() || !decomposed.argument("training").toBool()) {
    return batch_norm_of_shards(decomposed, r);
  }
  const Placements& of_channels = r.dropped->placements();
  const c10::ScalarType computed = r.kept->dtype();
  const auto count = static_cast<double>(r.count);
  const auto operand = [&](const char* name) {
    return spread(
        as_type(
            decomposed.shard(
                name, decomposed.optional_tensor(name), of_channels),
            computed),
        input.dim());
  };
  const at::Tensor x =
      as_type(decomposed.shard("input", input, r.operand), computed);
  const at::Tensor w = operand("weight");
  const at::Tensor b = operand("bias");
  const auto [mean, variance] =
      joint_statistics(decomposed, input.sizes().vec(), r, x);
  at::Tensor rstd;
  RunningStatistics running(decomposed, of_channels);
  if (decomposed.computes()) {
    rstd = variance.add(decomposed.argument("eps").toDouble()).rsqrt_();
    update_running(decomposed, running.mean(), mean);
    update_running(
        decomposed, running.variance(), variance * (count / (count - 1)));
  }
  running.write_back();
  const auto normalized = [&] {
    at::Tensor y = (x - mean).mul_(w.defined() ? rstd * w : rstd);
    y = b.defined() ? y.add_(b) : y;
    return y.to(input.scalar_type());
  };
  const at::Tensor weight = decomposed.optional_tensor("weight");
  finish_forward(
      decomposed, r, normalized,
      weight.defined() ? weight.scalar_type() : computed, mean, rstd);
}

// dx = rstd * w * (g - mean(g) - y * mean(g * y)) with y the normalized input.
// The sums of those means are the gradients of bias and weight.
void batch_norm_backward(const OpCall& call) {
  DecomposedCall decomposed(call);
  const at::Tensor input = decomposed.tensor("input");
  const at::Tensor weight = decomposed.optional_tensor("weight");
  const auto mask = decomposed.argument("output_mask").toBoolList();
  const Reduced r = channels_of(*decomposed.spec(input));
  const c10::ScalarType computed = r.kept->dtype();
  const auto channel = [&](const char* name, const at::Tensor& t) {
    return spread(
        as_type(decomposed.shard(name, t, r.dropped->placements()), computed),
        input.dim());
  };
  const at::Tensor g = as_type(
      decomposed.shard("grad_out", decomposed.tensor("grad_out"), r.operand),
      computed);
  const at::Tensor x =
      as_type(decomposed.shard("input", input, r.operand), computed);
  const at::Tensor mean = channel("save_mean", decomposed.tensor("save_mean"));
  const at::Tensor rstd =
      channel("save_invstd", decomposed.tensor("save_invstd"));
  const at::Tensor w = channel("weight", weight);
  std::vector<int64_t> shape = r.kept->shape();
  shape.push_back(2);
  const SpecPtr both = DTensorSpec::make(
      decomposed.mesh(), r.kept->placements(), shape, computed);
  at::Tensor y;
  const at::Tensor sums =
      decomposed.all_reduce(both, r.over, ReduceOp::kSum, [&] {
        y = (x - mean).mul_(rstd);
        return at::stack(
            {g.sum(r.dims, /*keepdim=*/true),
             (g * y).sum(r.dims, /*keepdim=*/true)},
            -1);
      });
  std::vector<c10::IValue> results(3, at::Tensor());
  if (mask[0]) {
    results[0] = decomposed.wrap(result_like(*decomposed.spec(input), r), [&] {
      const at::Tensor means = sums / static_cast<double>(r.count);
      at::Tensor dx =
          (g - means.select(-1, 0) - y * means.select(-1, 1)).mul_(rstd);
      dx = w.defined() ? dx.mul_(w) : dx;
      return dx.to(input.scalar_type());
    });
  }
  const SpecPtr gradient = r.dropped->with_dtype(
      weight.defined() ? weight.scalar_type() : input.scalar_type());
  for (const size_t i : {1, 2}) {
    if (mask[i]) {
      results[i] = decomposed.wrap(gradient, [&] {
        return sums.select(-1, i == 1 ? 1 : 0)
            .reshape(gradient->local_shape())
            .to(gradient->dtype());
      });
    }
  }
  decomposed.finish(std::move(results));
}

bool is_contiguous(const Operand& t) {
  return t.strides.vec() == contiguous_strides(t.shape.vec());
}

// What the kernel writes lies where its statistics come out.
bool lies_by_channel(const Operand& running, const Placements& input) {
  for (size_t m = 0; m < input.size() && running.defined; ++m) {
    const Placement& p = (*running.placements)[m];
    if (input[m].is_shard(1) ? input[m] != Shard(1) || p != Shard(0)
                             : !p.is_replicate()) {
      return false;
    }
  }
  return true;
}

bool has_partials(const Operand& t) {
  return t.defined && std::any_of(
                          t.placements->begin(), t.placements->end(),
                          [](const Placement& p) { return p.is_partial(); });
}

bool is_plain_image(const Operand& x) {
  return x.ndim() > 1 && c10::isFloatingType(x.dtype) && is_contiguous(x) &&
         c10::multiply_integers(x.shape) > 0;
}

bool shards_averaged_dims(const Operand& x) {
  bool sharded = false;
  for (const Placement& p : *x.placements) {
    sharded = sharded || (p.is_shard() && p.dim() != 1);
  }
  return sharded && is_plain_image(x);
}

// A rule serves channels that are cut and nothing else, unless statistics have
// to be cut with them, and written where they lie.
bool batch_norm_is_sharded(const RuleCall& call) {
  const Operand& x = call.self();
  const Operand& mean = call.operand(3);
  const Operand& variance = call.operand(4);
  if (!is_plain_image(x) || !shards_any(*x.placements) || has_partials(mean) ||
      has_partials(variance)) {
    return false;
  }
  return (call.boolean("training") && shards_averaged_dims(x)) ||
         !lies_by_channel(mean, *x.placements) ||
         !lies_by_channel(variance, *x.placements);
}
bool batch_norm_backward_is_sharded(const RuleCall& call) {
  return call.boolean("train") && shards_averaged_dims(call.operand(1)) &&
         call.operand(5).defined && call.operand(6).defined;
}

}  // namespace

void add_batch_norm_decompositions(OpRegistry& ops) {
  for (const char* name :
       {"aten::native_batch_norm", "aten::_native_batch_norm_legit"}) {
    ops.at(name).decomposition = {batch_norm_is_sharded, batch_norm};
  }
  ops.at("aten::native_batch_norm_backward").decomposition = {
      batch_norm_backward_is_sharded, batch_norm_backward};
}

}  // namespace tessera::detail::inline tensor_layer
