#include <tessera/sharded_tensor/sharded_optimizer.h>

#include <set>

#include <c10/util/Exception.h>
#include <modules/module_path.h>
#include <modules/optimizer_state.h>
#include <sharded_tensor/module/tensor_members.h>
#include <sharded_tensor/tensor/state.h>
#include <tessera/tensor/dtensor.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

namespace tessera::sharded_tensor {

namespace {

// Calls `f` with each parameter that has a state and with the tensors of it.
template <class F>
void for_each_state(
    const char* call, const torch::optim::Optimizer& optimizer, F f) {
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const auto state =
          optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (state != optimizer.state().end() && is_dtensor(parameter)) {
        for (at::Tensor* tensor : detail::state_tensors(call, *state->second)) {
          if (tensor->defined()) {
            f(parameter, *tensor);
          }
        }
      }
    }
  }
}

}  // namespace

NamedParams named_params_with_sharded_tensor(
    const torch::nn::Module& module, const std::string& prefix, bool recurse) {
  NamedParams params;
  std::set<const void*> seen;
  detail::for_each_tensor_member(
      module, prefix, recurse,
      [&](const std::string& path, const ShardedTensorHolder& holder) {
        for (const auto& [name, member] : holder.sharded_tensors()) {
          const ShardedTensor* tensor = detail::tensor_of(member);
          if (tensor != nullptr && seen.insert(tensor->state().get()).second) {
            params.emplace(detail::join_path(path, name), *tensor);
            seen.insert(tensor->state()->dtensor.unsafeGetTensorImpl());
          }
        }
      });
  for (const auto& parameter : module.named_parameters(recurse)) {
    if (seen.insert(parameter.value().unsafeGetTensorImpl()).second) {
      params.emplace(
          detail::join_path(prefix, parameter.key()), parameter.value());
    }
  }
  return params;
}

std::vector<at::Tensor> optimizer_tensors(const NamedParams& params) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, value] : params) {
    if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
      tensors.push_back(*tensor);
      continue;
    }
    const auto& state = *std::get<ShardedTensor>(value).state();
    if (state.dtensor.defined()) {
      tensors.push_back(state.dtensor);
      continue;
    }
    for (const Shard& shard : state.local_shards) {
      tensors.push_back(shard.tensor);
    }
  }
  return tensors;
}

void save_optimizer(
    const torch::optim::Optimizer& optimizer,
    torch::serialize::OutputArchive& archive) {
  // The state shows its local tensors while it is written.
  std::vector<std::pair<at::Tensor*, at::Tensor>> shown;
  for_each_state(
      "save_optimizer", optimizer, [&](const at::Tensor&, at::Tensor& tensor) {
        shown.emplace_back(&tensor, tensor);
      });
  const auto put_back = [&] {
    for (auto& [slot, tensor] : shown) {
      *slot = tensor;
    }
  };
  try {
    for (auto& [slot, tensor] : shown) {
      *slot =
          is_dtensor(tensor) ? to_local(tensor.detach()).contiguous() : tensor;
    }
    optimizer.save(archive);
  } catch (...) {
    put_back();
    throw;
  }
  put_back();
}

void load_optimizer(
    torch::optim::Optimizer& optimizer,
    torch::serialize::InputArchive& archive) {
  optimizer.load(archive);
  for_each_state(
      "load_optimizer", optimizer,
      [](const at::Tensor& parameter, at::Tensor& tensor) {
        if (!is_dtensor(tensor)) {
          const DTensorSpec& spec = tessera::spec(parameter);
          tensor = from_local(
              tensor, spec.mesh(), spec.placements(),
              {.shape = spec.shape(), .stride = spec.strides()});
        }
      });
}

}  // namespace tessera::sharded_tensor
