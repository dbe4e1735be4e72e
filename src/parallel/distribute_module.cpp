#include <tessera/parallel/distribute_module.h>

#include <c10/util/Exception.h>
#include <modules/optimizer_state.h>
#include <parallel/parameter_names.h>
#include <tessera/tensor/dtensor.h>
#include <torch/optim/optimizer.h>

namespace tessera {

namespace {

void replicate(const at::Tensor& tensor, const DeviceMesh& mesh) {
  if (tensor.defined() && !is_dtensor(tensor)) {
    make_dtensor_(
        tensor, mesh,
        Placements(static_cast<size_t>(mesh.ndim()), Replicate()));
  }
}

void distribute_state(
    torch::optim::OptimizerParamState& state, const at::Tensor& parameter) {
  const DTensorSpec& layout = spec(parameter);
  for (at::Tensor* tensor :
       detail::state_tensors("distribute_optimizer", state)) {
    if (!tensor->defined() || is_dtensor(*tensor)) {
      continue;
    }
    TORCH_CHECK_VALUE(
        tensor->sizes() == parameter.sizes(),
        "distribute_optimizer: the state must have the parameter's shape; got ",
        tensor->sizes(), " for ", to_string(layout));
    *tensor =
        distribute_tensor(tensor->detach(), layout.mesh(), layout.placements());
  }
}

}  // namespace

void distribute_parameters(
    torch::nn::Module& module, const DeviceMesh& mesh,
    const PartitionFn& partition) {
  detail::name_parameters(module);
  const auto place = [&](const std::string& name, torch::nn::Module& part) {
    if (partition) {
      partition(name, part, mesh);
    }
    for (const at::Tensor& parameter : part.parameters(/*recurse=*/false)) {
      replicate(parameter, mesh);
    }
    for (const at::Tensor& buffer : part.buffers(/*recurse=*/false)) {
      replicate(buffer, mesh);
    }
  };
  place("", module);
  for (const auto& part :
       module.named_modules(/*name_prefix=*/"", /*include_self=*/false)) {
    place(part.key(), *part.value());
  }
  detail::name_parameters(module);  // those that `partition` has made
}

void distribute_optimizer(torch::optim::Optimizer& optimizer) {
  for (auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      auto& states = optimizer.state();
      auto state = states.find(parameter.unsafeGetTensorImpl());
      if (state != states.end() && is_dtensor(parameter)) {
        distribute_state(*state->second, parameter);
      }
    }
  }
}

void detail::check_tensor_count(
    const char* which, size_t given, size_t returned) {
  TORCH_CHECK_VALUE(
      given == returned, "distribute_module: ", which,
      " must return as many tensors as it receives; got ", given, " and ",
      returned);
}

}  // namespace tessera
