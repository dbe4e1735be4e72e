#include <tessera/parallel/clip_grad_norm.h>

#include <algorithm>
#include <cmath>

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <parallel/values_over_meshes.h>
#include <tessera/tensor/dtensor.h>

namespace tessera {

namespace {

// Returns the sum of powers of a shard's elements, the largest magnitude for an
// infinite norm. Powers of halves, and sums of many, need more than halves.
at::Tensor power_of(const at::Tensor& shard, double p) {
  if (shard.numel() == 0) {
    return at::zeros({}, shard.options().dtype(at::kDouble));
  }
  const at::Tensor norm = at::linalg_vector_norm(shard, p).to(at::kDouble);
  return std::isinf(p) ? norm : norm.pow(p);
}

// Of all gradients, known to all ranks; undefined where there are none.
at::Tensor total_norm(
    const std::vector<at::Tensor>& gradients, const ClipOptions& options) {
  const double p = options.norm_type;
  detail::ValuesOverMeshes powers(
      std::isinf(p) ? ReduceOp::kMax : ReduceOp::kSum);
  for (const at::Tensor& gradient : gradients) {
    powers.add(
        gradient,
        power_of(is_dtensor(gradient) ? to_local(gradient) : gradient, p));
  }
  const at::Tensor total = powers.take(options.stages);
  return !total.defined() || std::isinf(p) ? total : total.pow(1 / p);
}

}  // namespace

at::Tensor clip_grad_norm(
    const std::vector<at::Tensor>& parameters, double max_norm,
    const ClipOptions& options) {
  TORCH_CHECK_VALUE(
      options.norm_type > 0, "clip_grad_norm: the norm's power must be above ",
      "zero; got ", options.norm_type);
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients =
      detail::reduced_gradients("clip_grad_norm", parameters);
  const at::Tensor total = total_norm(gradients, options);
  if (!total.defined()) {
    return at::zeros({});
  }
  const double value = total.item<double>();
  TORCH_CHECK_VALUE(
      !options.error_if_nonfinite || std::isfinite(value),
      "clip_grad_norm: the norm of the gradients is not finite; got ", value,
      "; no gradient was changed");
  const double scale = max_norm / (value + 1e-6);
  if (!(scale >= 1)) {
    for (const at::Tensor& gradient : gradients) {
      gradient.mul_(scale);
    }
  }
  return gradients.empty()
             ? total
             : total.to(c10::toRealValueType(gradients[0].scalar_type()));
}

}  // namespace tessera
