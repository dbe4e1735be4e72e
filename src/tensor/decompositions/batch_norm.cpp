// Batch norm in training whose batch or spatial dims are cut: the statistics of
// all ranks by two small all_reduces, the two sums of the gradient by one.
#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <tensor/decompositions/cut_call.h>
#include <tensor/decompositions/families.h>
#include <tensor/strides.h>

namespace tessera::detail {

namespace {

at::Tensor as_type(const at::Tensor& t, c10::ScalarType dtype) {
  return t.defined() ? t.to(dtype) : t;
}

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

// running = (1 - momentum) * running + momentum * value, in this rank's shard.
void update_running(
    CutCall& cut, const char* name, const Placements& placements,
    const at::Tensor& value) {
  const at::Tensor running = cut.optional_tensor(name);
  const at::Tensor local = cut.shard(name, running, placements);
  if (!local.defined()) {
    return;
  }
  const double momentum = cut.argument("momentum").toDouble();
  local.mul_(1 - momentum)
      .add_(value.reshape(local.sizes()).to(local.scalar_type()), momentum);
  after_write(running);
}

void batch_norm(const OpCall& call) {
  CutCall cut(call);
  const at::Tensor input = cut.tensor("input");
  const at::Tensor weight = cut.optional_tensor("weight");
  const Reduced r = channels_of(*cut.spec(input));
  const Placements& of_channels = r.dropped->placements();
  const c10::ScalarType computed = r.kept->dtype();
  const auto count = static_cast<double>(r.count);
  const auto operand = [&](const char* name) {
    return spread(
        as_type(
            cut.shard(name, cut.optional_tensor(name), of_channels), computed),
        input.dim());
  };
  const at::Tensor x = as_type(cut.shard("input", input, r.operand), computed);
  const at::Tensor w = operand("weight");
  const at::Tensor b = operand("bias");
  const at::Tensor mean = cut.all_reduce(r.kept, r.over, ReduceOp::kSum, [&] {
    return x.sum(r.dims, /*keepdim=*/true).div_(count);
  });
  at::Tensor rest, rstd;
  const at::Tensor variance =
      cut.all_reduce(r.kept, r.over, ReduceOp::kSum, [&] {
        rest = x - mean;
        return rest.square().sum(r.dims, /*keepdim=*/true).div_(count);
      });
  if (cut.computes()) {
    rstd = variance.add(cut.argument("eps").toDouble()).rsqrt_();
  }
  update_running(cut, "running_mean", of_channels, mean);
  update_running(
      cut, "running_var", of_channels,
      cut.computes() ? variance * (count / (count - 1)) : variance);
  const SpecPtr saved = with_dtype(
      *r.dropped, weight.defined() ? weight.scalar_type() : computed);
  const auto statistic = [&](const at::Tensor& t) {
    return cut.wrap(saved, [&] {
      return t.reshape(saved->local_shape()).to(saved->dtype());
    });
  };
  cut.finish(
      {cut.wrap(
           with_placements(*cut.spec(input), r.operand, input.scalar_type()),
           [&] {
             at::Tensor y = rest.mul_(rstd);
             y = w.defined() ? y.mul_(w) : y;
             y = b.defined() ? y.add_(b) : y;
             return y.to(input.scalar_type());
           }),
       statistic(mean), statistic(rstd)});
}

// dx = rstd * w * (g - mean(g) - y * mean(g * y)) with y the normalized input.
// The sums of those means are the gradients of bias and weight.
void batch_norm_backward(const OpCall& call) {
  CutCall cut(call);
  const at::Tensor input = cut.tensor("input");
  const at::Tensor weight = cut.optional_tensor("weight");
  const auto mask = cut.argument("output_mask").toBoolList();
  const Reduced r = channels_of(*cut.spec(input));
  const c10::ScalarType computed = r.kept->dtype();
  const auto channel = [&](const char* name, const at::Tensor& t) {
    return spread(
        as_type(cut.shard(name, t, r.dropped->placements()), computed),
        input.dim());
  };
  const at::Tensor g = as_type(
      cut.shard("grad_out", cut.tensor("grad_out"), r.operand), computed);
  const at::Tensor x = as_type(cut.shard("input", input, r.operand), computed);
  const at::Tensor mean = channel("save_mean", cut.tensor("save_mean"));
  const at::Tensor rstd = channel("save_invstd", cut.tensor("save_invstd"));
  const at::Tensor w = channel("weight", weight);
  std::vector<int64_t> shape = r.kept->shape();
  shape.push_back(2);
  const SpecPtr both =
      DTensorSpec::make(cut.mesh(), r.kept->placements(), shape, computed);
  at::Tensor y;
  const at::Tensor sums = cut.all_reduce(both, r.over, ReduceOp::kSum, [&] {
    y = (x - mean).mul_(rstd);
    return at::stack(
        {g.sum(r.dims, /*keepdim=*/true),
         (g * y).sum(r.dims, /*keepdim=*/true)},
        -1);
  });
  std::vector<c10::IValue> results(3, at::Tensor());
  if (mask[0]) {
    results[0] = cut.wrap(
        with_placements(*cut.spec(input), r.operand, input.scalar_type()), [&] {
          const at::Tensor means = sums / static_cast<double>(r.count);
          at::Tensor dx =
              (g - means.select(-1, 0) - y * means.select(-1, 1)).mul_(rstd);
          dx = w.defined() ? dx.mul_(w) : dx;
          return dx.to(input.scalar_type());
        });
  }
  const SpecPtr gradient = with_dtype(
      *r.dropped,
      weight.defined() ? weight.scalar_type() : input.scalar_type());
  for (const size_t i : {1, 2}) {
    if (mask[i]) {
      results[i] = cut.wrap(gradient, [&] {
        return sums.select(-1, i == 1 ? 1 : 0)
            .reshape(gradient->local_shape())
            .to(gradient->dtype());
      });
    }
  }
  cut.finish(std::move(results));
}

bool is_contiguous(const Operand& t) {
  return t.strides.vec() == contiguous_strides(t.shape.vec());
}

// What the kernel writes lies where its statistics come out.
bool lies_by_channel(const Operand& running, const Placements& input) {
  for (size_t m = 0; m < input.size() && running.defined; ++m) {
    const Placement& p = (*running.placements)[m];
    if (input[m] == Shard(1) ? p != Shard(0) : !p.is_replicate()) {
      return false;
    }
  }
  return true;
}

bool cuts_what_is_averaged(const Operand& x) {
  bool cut = false;
  for (const Placement& p : *x.placements) {
    cut = cut || (p.is_shard() && p.dim() != 1);
  }
  return cut && x.ndim() > 1 && c10::isFloatingType(x.dtype) &&
         is_contiguous(x);
}

bool forward_is_cut(const RuleCall& call) {
  const Operand& x = call.self();
  return call.boolean("training") && cuts_what_is_averaged(x) &&
         lies_by_channel(call.operand(3), *x.placements) &&
         lies_by_channel(call.operand(4), *x.placements);
}
bool backward_is_cut(const RuleCall& call) {
  return call.boolean("train") && cuts_what_is_averaged(call.operand(1)) &&
         call.operand(5).defined && call.operand(6).defined;
}

}  // namespace

void add_batch_norm_decompositions(Decompositions& all) {
  all.push_back({"aten::native_batch_norm", forward_is_cut, batch_norm});
  all.push_back(
      {"aten::native_batch_norm_backward", backward_is_cut,
       batch_norm_backward});
}

}  // namespace tessera::detail
