#include <tessera/parallel/check_module.h>

#include <torch/nn/module.h>

namespace tessera {

void check_replicas(
    const torch::nn::Module& module, const ReplicaCheckOptions& options) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& parameter : module.named_parameters()) {
    tensors.emplace_back(parameter.key(), parameter.value());
  }
  for (const auto& buffer : module.named_buffers()) {
    tensors.emplace_back(buffer.key(), buffer.value());
  }
  check_replicas(tensors, options);
}

}  // namespace tessera
