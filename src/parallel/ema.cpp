#include <tessera/parallel/ema.h>

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <tessera/comm/world.h>
#include <tessera/tensor/dtensor.h>
#include <torch/nn/module.h>

namespace tessera {

Ema::Ema(const torch::nn::Module& module, double decay, c10::ScalarType dtype)
    : decay_(decay) {
  TORCH_CHECK_VALUE(
      decay >= 0 && decay <= 1, "Ema, rank ", rank(),
      ": the decay must be between 0 and 1; got ", decay);
  TORCH_CHECK_VALUE(
      c10::isFloatingType(dtype), "Ema, rank ", rank(),
      ": averages need a floating dtype; got ", dtype);
  const at::NoGradGuard no_grad;
  for (const auto& entry : module.named_parameters()) {
    const at::Tensor& parameter = entry.value();
    if (parameter.is_floating_point() || parameter.is_complex()) {
      const auto wide = c10::promoteTypes(parameter.scalar_type(), dtype);
      averages_.push_back(
          {entry.key(), parameter,
           parameter.detach().to(wide, /*non_blocking=*/false, /*copy=*/true)});
    }
  }
}

Ema::~Ema() = default;

void Ema::check_layouts(const char* call) const {
  TORCH_CHECK_VALUE(
      !is_swapped_, call, ", rank ", rank(),
      ": the module holds the averages now; end the Ema::Swap first");
  for (const Average& average : averages_) {
    const at::Tensor& p = average.parameter;
    const bool alike =
        p.sizes() == average.value.sizes() &&
        is_dtensor(p) == is_dtensor(average.value) &&
        (!is_dtensor(p) || (device_mesh(p) == device_mesh(average.value) &&
                            placements(p) == placements(average.value)));
    TORCH_CHECK_VALUE(
        alike, call, ", rank ", rank(), ": parameter '", average.name,
        "' lies elsewhere than its average; make the Ema after the parameters "
        "are sharded");
  }
}

void Ema::update() {
  check_layouts("Ema::update");
  const at::NoGradGuard no_grad;
  for (const Average& average : averages_) {
    average.value.lerp_(
        average.parameter.detach().to(average.value.scalar_type()), 1 - decay_);
  }
}

std::vector<std::pair<std::string, at::Tensor>> Ema::averages() const {
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (const Average& average : averages_) {
    all.emplace_back(average.name, average.value);
  }
  return all;
}

Ema::Swap::Swap(Ema& ema) : ema_(ema) {
  ema_.check_layouts("Ema::Swap");
  const at::NoGradGuard no_grad;
  for (const Average& average : ema_.averages_) {
    own_.push_back(average.parameter.detach().clone());
  }
  for (const Average& average : ema_.averages_) {
    average.parameter.detach().copy_(average.value);
  }
  ema_.is_swapped_ = true;
}

Ema::Swap::~Swap() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < own_.size(); ++i) {
    ema_.averages_[i].parameter.detach().copy_(own_[i]);
  }
  ema_.is_swapped_ = false;
}

}  // namespace tessera
