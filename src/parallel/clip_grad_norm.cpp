#include <tessera/parallel/clip_grad_norm.h>

#include <cmath>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <parallel/values_over_meshes.h>

namespace tessera {

namespace {

// Powers of halves, and sums of many, need more than halves.
c10::ScalarType wide(c10::ScalarType dtype) {
  return c10::isReducedFloatingType(dtype) ? at::kFloat : dtype;
}

// Returns the sum of powers of shards' elements, the largest magnitude for an
// infinite norm.
at::Tensor power_of(const std::vector<at::Tensor>& shards, double p) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;  // shards are plain
  std::vector<at::Tensor> norms;
  for (const at::Tensor& shard : shards) {
    if (shard.numel() > 0) {
      norms.push_back(
          at::linalg_vector_norm(
              shard, p, std::nullopt, false, wide(shard.scalar_type()))
              .view({1}));
    }
  }
  if (norms.empty()) {
    return at::zeros({}, shards[0].options().dtype(at::kDouble));
  }
  const at::Tensor all = at::cat(norms).to(at::kDouble);
  return std::isinf(p) ? all.max() : all.pow(p).sum();
}

// Of all gradients, known to all ranks; undefined where there are none.
at::Tensor total_norm(
    const std::vector<at::Tensor>& gradients, const ClipOptions& options) {
  const double p = options.norm_type;
  detail::ValuesOverMeshes powers(
      std::isinf(p) ? ReduceOp::kMax : ReduceOp::kSum);
  powers.add(
      gradients, [&](const auto& shards) { return power_of(shards, p); });
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
    detail::scale_gradients(gradients, scale);
  }
  return gradients.empty()
             ? total
             : total.to(c10::toRealValueType(wide(gradients[0].scalar_type())));
}

}  // namespace tessera
