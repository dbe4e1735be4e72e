#include <tessera/parallel/clip_grad_norm.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <tensor/dispatch/several_meshes.h>
#include <tessera/tensor/dtensor.h>

namespace tessera {

namespace {

// Sums of powers (largest magnitudes for an infinite norm) of gradients that
// need the same reduction.
struct Group {
  std::optional<DeviceMesh> mesh;  // none: plain gradients
  Placements placements;           // of the sum
  at::Tensor sum;
};

class TotalNorm {
 public:
  explicit TotalNorm(double norm_type) : p_(norm_type) {}

  void add(const at::Tensor& gradient) {
    if (!is_dtensor(gradient)) {
      return add(std::nullopt, {}, power(gradient));
    }
    const DTensorSpec& layout = spec(gradient);
    Placements placements;
    for (const Placement& p : layout.placements()) {
      placements.push_back(p.is_shard() ? Partial(reduction()) : Replicate());
    }
    add(layout.mesh(), placements, power(to_local(gradient)));
  }

  at::Tensor take() const {
    std::vector<DeviceMesh> meshes;
    for (const Group& group : groups_) {
      if (group.mesh) {
        meshes.push_back(*group.mesh);
      }
    }
    at::Tensor total;
    for (const Group& group : groups_) {
      const at::Tensor sum =
          group.mesh ? sum_over_mesh(group, meshes) : group.sum;
      total = total.defined() ? merged(total, sum) : sum;
    }
    return !total.defined() || is_infinite() ? total : total.pow(1 / p_);
  }

 private:
  // Ranks outside of a mesh, which are on another one, hear of its sum.
  static at::Tensor sum_over_mesh(
      const Group& group, const std::vector<DeviceMesh>& meshes) {
    const at::Tensor sum = from_local(
        group.sum, *group.mesh, group.placements,
        {.shape = std::vector<int64_t>()});
    const DeviceMesh all = detail::common_mesh(meshes);
    const bool all_know = detail::root_of(*group.mesh).size() == all.size();
    return all_know ? full_tensor(sum) : to_local(detail::value_on(sum, all));
  }

  bool is_infinite() const { return std::isinf(p_); }
  ReduceOp reduction() const {
    return is_infinite() ? ReduceOp::kMax : ReduceOp::kSum;
  }
  at::Tensor power(const at::Tensor& shard) const {
    // Powers of halves, and sums of many, need more than halves.
    if (shard.numel() == 0) {
      return at::zeros({}, shard.options().dtype(at::kDouble));
    }
    const at::Tensor norm = at::linalg_vector_norm(shard, p_).to(at::kDouble);
    return is_infinite() ? norm : norm.pow(p_);
  }
  at::Tensor merged(const at::Tensor& a, const at::Tensor& b) const {
    return is_infinite() ? at::maximum(a, b) : a + b;
  }

  void add(
      std::optional<DeviceMesh> mesh, const Placements& placements,
      const at::Tensor& sum) {
    for (Group& group : groups_) {
      if (group.mesh == mesh && group.placements == placements) {
        group.sum = merged(group.sum, sum);
        return;
      }
    }
    groups_.push_back({std::move(mesh), placements, sum});
  }

  double p_;
  std::vector<Group> groups_;
};

// A rank that no mesh holds cannot take part: the others do not know of it.
void check_is_here(const std::vector<at::Tensor>& parameters) {
  const DTensorSpec* outside = nullptr;
  bool inside = false;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined() && is_dtensor(parameter.grad())) {
      const DTensorSpec& layout = spec(parameter.grad());
      inside = inside || layout.has_shard();
      outside = layout.has_shard() ? outside : &layout;
    }
  }
  TORCH_CHECK_VALUE(
      inside || outside == nullptr, "clip_grad_norm: this rank is outside of ",
      to_string(outside->mesh()),
      ", on which the gradients are; clip them on its own ranks");
}

// A gradient that was kept Partial is summed up first, in place of the old one.
void reduce(const at::Tensor& parameter) {
  at::Tensor& gradient = parameter.mutable_grad();
  if (is_dtensor(gradient) && spec(gradient).layout().has_partial()) {
    gradient = redistribute(gradient, placements(parameter));
  }
}

}  // namespace

at::Tensor clip_grad_norm(
    const std::vector<at::Tensor>& parameters, double max_norm,
    const ClipOptions& options) {
  TORCH_CHECK_VALUE(
      options.norm_type > 0, "clip_grad_norm: the norm's power must be above ",
      "zero; got ", options.norm_type);
  const at::NoGradGuard no_grad;
  TotalNorm norm(options.norm_type);
  std::vector<at::Tensor> gradients;
  check_is_here(parameters);
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) {
      reduce(parameter);
      gradients.push_back(parameter.grad());
      norm.add(gradients.back());
    }
  }
  const at::Tensor total = norm.take();
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
  return total.to(c10::toRealValueType(gradients[0].scalar_type()));
}

}  // namespace tessera
